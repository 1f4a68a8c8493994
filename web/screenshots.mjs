// Makes the pictures of the README from a real cluster with real jobs: node screenshots.mjs [OUT_DIR] [--looks DIR]
// With --looks, also each of them in light and dark, at 1440 and at 400 pixels, for a person to look at.
import { mkdirSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { chromium } from "playwright-core";
import { chromiumFlags, Daemon, until } from "./test/daemon.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const { values, positionals } = parseArgs({ allowPositionals: true, options: { looks: { type: "string" } } });
const outDir = resolve(positionals[0] ?? join(here, "..", "docs"));
const looksDir = values.looks && resolve(values.looks);
const pause = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

const daemon = new Daemon(["--cluster", "4x4"]);

/** How much slower this machine is now than one on which the first job takes 20 seconds. */
let slowness = 1;

/** A job whose speed is known is admitted with a promise at once. */
function promised(name, steps, gpus, minutes) {
  const deadline = `+${Math.ceil(60 * minutes * slowness)}s`;
  return daemon.train(name, steps, "--gpus", gpus, "--profile", "mlp", "--work", `steps=${steps}`, "--deadline", deadline);
}

async function fillCluster() {
  const began = Date.now();
  const first = daemon.train("warm-up", 200, "--gpus", "1:4", "--profile", "mlp", "--work", "steps=200");
  const explore = daemon.train("explore", 100000, "--gpus", "1:8");
  await until(() => ["COMPLETED"].includes(daemon.json("status", String(first)).state), 180_000);
  slowness = Math.max(1, (Date.now() - began) / 20_000);
  promised("nightly", 1500, "1:6", 6);
  daemon.train("vision-large", 100000, "--gpus", "2:8");
  await pause(15);
  promised("urgent", 400, "2:8", 3);
  await pause(12);
  daemon.train("ablation-a", 300, "--gpus", "1:2");
  daemon.train("ablation-b", 300, "--gpus", "1:2");
  await pause(12);
  promised("paper-figures", 600, "1:6", 4);
  daemon.train("whole-cluster", 5000, "--gpus", "16");
  await pause(14);
  return explore;
}

/** Takes a picture of what a window of this width shows, or of all of the page. */
async function take(browser, { hash, ready, steps }, path, { scheme, width, fullPage }) {
  const context = await browser.newContext({ viewport: { width, height: 860 }, colorScheme: scheme, timezoneId: "UTC" });
  const page = await context.newPage();
  await page.goto(daemon.page());
  await page.waitForSelector('[data-status="live"]');
  await page.evaluate((address) => (location.hash = address), hash);
  await page.waitForSelector(ready);
  await steps(page);
  await pause(2);
  await page.screenshot({ path, fullPage });
  console.log(path);
  await context.close();
}

const timeline = {
  name: "page-timeline", hash: "#/?span=15m", ready: ".timeline-plot[data-time]",
  steps: async (page) => {
    // The part in which something happened.
    await page.getByRole("button", { name: "Zoom in" }).click();
  },
};

const oneJob = (id) => ({
  name: "page-job", hash: `#/jobs/${id}`, ready: ".plot canvas",
  steps: async (page) => {
    await pause(15);
    await page.getByRole("heading", { name: "Over time" }).evaluate((title) => title.scrollIntoView());
  },
});

async function takeLooks(browser, pictures) {
  mkdirSync(looksDir, { recursive: true });
  for (const picture of pictures)
    for (const width of [1440, 400])
      for (const scheme of ["light", "dark"])
        await take(browser, picture, join(looksDir, `${picture.name}-${width}-${scheme}.png`), { scheme, width, fullPage: true });
}

await daemon.start();
const browser = await chromium.launch({ executablePath: process.env.RUBATO_CHROMIUM ?? "/usr/bin/chromium", headless: true, args: chromiumFlags });
try {
  const job = oneJob(await fillCluster());
  await take(browser, timeline, join(outDir, "page-timeline.png"), { scheme: "light", width: 1440 });
  await take(browser, job, join(outDir, "page-job.png"), { scheme: "dark", width: 1440 });
  if (looksDir) await takeLooks(browser, [timeline, job]);
} finally {
  await browser.close();
  await daemon.end();
}
