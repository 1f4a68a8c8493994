// Bundles the pages: node build.mjs [OUT_DIR]
// report.html: the simulator's report, one self-contained file.
// study.html: what `rubato learn` and `rubato graph place` found, one self-contained file.
// page.html, page.js, page.css, worker.js: the daemon's page, which the daemon serves.
import { createHash } from "node:crypto";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const dataMarker = "@@RUBATO_REPORT_DATA@@";
const bundledPackages = ["preact", "uplot"];

const mostGzipBytes = 200_000;

async function bundle(entry, define = {}) {
  const result = await build({
    entryPoints: [join(here, "src", entry)],
    absWorkingDir: here,
    bundle: true,
    minify: true,
    write: false,
    format: "iife",
    target: "es2020",
    define,
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

async function buildReport(outDir, name) {
  const [template, style, script, legal] = await Promise.all([
    readFile(join(here, "src", `${name}.html`), "utf8"),
    bundle(`${name}.css`),
    bundle(`${name}.tsx`),
    licences(),
  ]);
  const page = template
    .replace("/* STYLE */", () => style)
    .replace("/* SCRIPT */", () => script)
    .replace("LICENCES", () => legal);
  assertEmbeddable(script, page);
  await mkdir(outDir, { recursive: true });
  const path = join(outDir, `${name}.html`);
  await writeFile(path, page);
  console.log(`${path}: ${(Buffer.byteLength(page) / 1024).toFixed(0)} KiB`);
}

/** The path under which the daemon serves a file (cmd/pages.cc), so browsers may keep it for ever. */
function assetPath(stem, extension, text) {
  const bytes = Buffer.from(text);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(bytes.length));
  const digits = createHash("sha256").update(length).update(bytes).digest("hex").slice(0, 12);
  return `/assets/${stem}-${digits}.${extension}`;
}

async function buildPage(outDir) {
  const [template, style, worker, legal] = await Promise.all([
    readFile(join(here, "src", "page.html"), "utf8"),
    bundle("page.css"),
    bundle("worker.ts"),
    licences(),
  ]);
  const script = await bundle("page.tsx", { WORKER_PATH: JSON.stringify(assetPath("worker", "js", worker)) });
  const page = template
    .replace("STYLE_PATH", () => assetPath("page", "css", style))
    .replace("SCRIPT_PATH", () => assetPath("page", "js", script))
    .replace("LICENCES", () => legal);
  const files = { "page.html": page, "page.js": script, "page.css": style, "worker.js": worker };
  const size = Object.values(files).reduce((sum, text) => sum + gzipSync(text).length, 0);
  if (size > mostGzipBytes) throw new Error(`the page has ${size} bytes after gzip, more than ${mostGzipBytes}`);
  await mkdir(outDir, { recursive: true });
  await Promise.all(Object.entries(files).map(([name, text]) => writeFile(join(outDir, name), text)));
  console.log(`${join(outDir, "page.html")} and its files: ${(size / 1024).toFixed(0)} KiB after gzip`);
}

const outDir = resolve(process.argv[2] ?? join(here, "dist"));
await Promise.all([buildReport(outDir, "report"), buildReport(outDir, "study"), buildPage(outDir)]);
