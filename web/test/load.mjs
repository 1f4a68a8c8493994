// Loads modules of src/FOLDER for tests that need no browser.
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const src = join(dirname(fileURLToPath(import.meta.url)), "..", "src");

export async function load(folder, ...names) {
  const contents = names.map((name) => `export * from "./${name}";`).join("\n");
  const { outputFiles } = await build({
    stdin: { contents, resolveDir: join(src, folder), loader: "ts" },
    bundle: true,
    write: false,
    format: "esm",
    platform: "neutral",
    mainFields: ["module", "main"],
  });
  return import(`data:text/javascript;base64,${Buffer.from(outputFiles[0].text).toString("base64")}`);
}
