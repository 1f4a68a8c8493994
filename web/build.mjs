// Bundles the report page into one self-contained HTML file: node build.mjs [OUT_DIR]
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const dataMarker = "@@RUBATO_REPORT_DATA@@";
const bundledPackages = ["preact", "uplot"];

async function bundle(entry) {
  const result = await build({
    entryPoints: [join(here, "src", entry)],
    absWorkingDir: here,
    bundle: true,
    minify: true,
    write: false,
    format: "iife",
    target: "es2020",
    legalComments: "none",
    logLevel: "warning",
  });
  return result.outputFiles[0].text.trim();
}

async function licences() {
  const texts = bundledPackages.map(async (name) => {
    const text = await readFile(join(here, "node_modules", name, "LICENSE"), "utf8");
    return `This page contains ${name}.\n${text.trim()}`;
  });
  return (await Promise.all(texts)).join("\n\n");
}

function countOf(needle, text) {
  return text.split(needle).length - 1;
}

// A stray marker or closing tag would only show up as a broken page in a user's hands.
function assertEmbeddable(script, page) {
  if (/<\/script/i.test(script)) throw new Error("the bundle contains a literal </script");
  if (countOf(dataMarker, page) !== 1) throw new Error(`the page must contain ${dataMarker} exactly once`);
}

async function buildReport(outDir) {
  const [template, style, script, legal] = await Promise.all([
    readFile(join(here, "src", "report.html"), "utf8"),
    bundle("report.css"),
    bundle("report.tsx"),
    licences(),
  ]);
  const page = template
    .replace("/* STYLE */", () => style)
    .replace("/* SCRIPT */", () => script)
    .replace("LICENCES", () => legal);
  assertEmbeddable(script, page);
  await mkdir(outDir, { recursive: true });
  const path = join(outDir, "report.html");
  await writeFile(path, page);
  console.log(`${path}: ${(Buffer.byteLength(page) / 1024).toFixed(0)} KiB`);
}

await buildReport(resolve(process.argv[2] ?? join(here, "dist")));
