// Opens a report in Chromium and uses it as a reader would. RUBATO_REPORT names a report made by
// the rubato binary; without it, one is made from sample data.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { chromium } from "playwright-core";
import { fillPage, makeReport } from "./sample.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const scratch = mkdtempSync(join(tmpdir(), "rubato-report-"));
const flags = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];

let browser;
before(async () => {
  const executablePath = process.env.RUBATO_CHROMIUM ?? "/usr/bin/chromium";
  browser = await chromium.launch({ executablePath, headless: true, args: flags });
});
after(async () => {
  await browser?.close();
  rmSync(scratch, { recursive: true, force: true });
});

let emptyPage;
function writeReport(name, report) {
  if (!emptyPage) {
    execFileSync(process.execPath, [join(here, "..", "build.mjs"), scratch], { stdio: "ignore" });
    emptyPage = readFileSync(join(scratch, "report.html"), "utf8");
  }
  const path = join(scratch, `${name}.html`);
  writeFileSync(path, fillPage(emptyPage, report));
  return path;
}

function readData(path) {
  const block = readFileSync(path, "utf8").match(/<script type="application\/json" id="rubato-report">(.*?)<\/script>/s);
  return JSON.parse(block[1]);
}

/** Runs the steps on an open report; any error on the page or request to the network is a failure. */
async function withPage(path, steps, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1366, height: 768 }, ...options });
  const page = await context.newPage();
  const complaints = [];
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("request", (request) => {
    if (!/^(file|data):/.test(request.url())) complaints.push(`request to ${request.url()}`);
  });
  try {
    await page.goto(pathToFileURL(path).href);
    await steps(page);
    assert.deepEqual(complaints, []);
  } finally {
    await context.close();
  }
}

async function drawn(page) {
  await page.waitForSelector(".timeline-plot[data-time]");
}

/** How many colours a canvas shows, and the share of its pixels close to the colour of a CSS variable. */
function coloursOf(canvas, variable) {
  return canvas.evaluate((element, name) => {
    const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const wanted = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
    // Reading from a copy leaves the page's own canvas as fast as it was.
    const copy = new OffscreenCanvas(element.width, element.height).getContext("2d", { willReadFrequently: true });
    copy.drawImage(element, 0, 0);
    const { data } = copy.getImageData(0, 0, element.width, element.height);
    let count = 0;
    for (let i = 0; i < data.length; i += 4) {
      if (data[i + 3] > 200 && wanted.every((value, c) => Math.abs(value - data[i + c]) < 12)) count++;
    }
    return { share: (count * 4) / data.length, distinct: new Set(new Uint32Array(data.buffer)).size };
  }, variable);
}

function spanOf(text) {
  const [lo, hi] = text.split(" ").map(Number);
  return { lo, hi };
}

async function visibleSpan(plot, name) {
  return spanOf(await plot.getAttribute(`data-${name}`));
}

/** Where the middle of a rectangle of the data is on the screen. */
async function placeOf(plot, timeline, row) {
  const area = await plot.boundingBox();
  const time = await visibleSpan(plot, "time");
  const lanes = await visibleSpan(plot, "lanes");
  const moment = (timeline.start_s[row] + timeline.end_s[row]) / 2;
  const lane = timeline.lane[row] + timeline.width[row] / 2;
  return {
    x: area.x + ((moment - time.lo) / (time.hi - time.lo)) * area.width,
    y: area.y + ((lane - lanes.lo) / (lanes.hi - lanes.lo)) * area.height,
  };
}

function largestRow({ start_s: start, end_s: end, width }) {
  const area = (row) => (end[row] - start[row]) * width[row];
  return start.reduce((best, _, row) => (area(row) > area(best) ? row : best), 0);
}

function columnValues(page, column) {
  return page.$$eval(`.summary tbody td[data-column="${column}"]`, (cells) => cells.map((cell) => cell.dataset.value));
}

const reportPath = process.env.RUBATO_REPORT ? resolve(process.env.RUBATO_REPORT) : writeReport("sample", makeReport());
const data = readData(reportPath);

// Lines may cover each other, but nothing covers the last one.
const seriesColours = 8;
const topColour = `--series-${(data.runs.length - 1) % seriesColours}`;

describe("a report", () => {
  test("summarises every run and marks the best values", () =>
    withPage(reportPath, async (page) => {
      await drawn(page);
      assert.equal(await page.locator(".summary tbody tr").count(), data.runs.length);
      const names = await page.locator(".summary .policy-name").allTextContents();
      assert.deepEqual(names, data.runs.map((run) => run.policy));
      const averages = data.runs.map((run) => run.summary.avg_jct_s).filter((value) => value !== null);
      const marked = await page.$$eval('.summary td.best[data-column="avg_jct_s"]', (cells) => cells.map((cell) => Number(cell.dataset.value)));
      const contested = new Set(averages).size > 1;
      assert.deepEqual([...new Set(marked)], contested ? [Math.min(...averages)] : []);
      if (contested) assert.match(await page.locator(".summary td.best").first().textContent(), /★.*best/);
    }));

  test("sorts by a column, best first, then worst first, then as given", () =>
    withPage(reportPath, async (page) => {
      await drawn(page);
      const given = await columnValues(page, "avg_jct_s");
      const rank = (value) => (value === "" ? Infinity : Number(value));
      const ascending = [...given].sort((a, b) => rank(a) - rank(b));
      const heading = page.locator('.summary button[data-column="avg_jct_s"]');
      await heading.click();
      await page.waitForSelector('th[aria-sort="ascending"]');
      assert.deepEqual(await columnValues(page, "avg_jct_s"), ascending);
      await heading.click();
      await page.waitForSelector('th[aria-sort="descending"]');
      if (!given.includes("")) assert.deepEqual(await columnValues(page, "avg_jct_s"), ascending.reverse());
      await heading.click();
      await page.waitForFunction(() => !document.querySelector('th[aria-sort="ascending"], th[aria-sort="descending"]'));
      assert.deepEqual(await columnValues(page, "avg_jct_s"), given);
    }));

  test("draws a line per run in every chart, and hides a run on request", () =>
    withPage(reportPath, async (page) => {
      await drawn(page);
      const charts = page.locator(".plot canvas");
      assert.equal(await charts.count(), 3);
      for (let i = 0; i < 3; i++) {
        assert.ok((await coloursOf(charts.nth(i), topColour)).share > 0.0005, `chart ${i} shows its last run`);
      }
      await page.locator(".summary input[type=checkbox]").last().click();
      await page.waitForFunction((runs) => document.querySelector(".readout").querySelectorAll("li").length === runs - 1, data.runs.length);
      if (data.runs.length <= seriesColours) assert.equal((await coloursOf(charts.first(), topColour)).share, 0);
    }));

  test("reads out every run's value under the pointer", () =>
    withPage(reportPath, async (page) => {
      await drawn(page);
      const chart = page.locator(".plot .u-over").first();
      await chart.scrollIntoViewIfNeeded();
      const area = await chart.boundingBox();
      await page.mouse.move(area.x + area.width * 0.6, area.y + area.height / 2);
      await page.waitForFunction(() => document.querySelector(".readout-caption").textContent.startsWith("Finished within"));
      const values = await page.locator(".readout").first().locator(".number").allTextContents();
      assert.equal(values.length, data.runs.length);
      for (const value of values) assert.match(value, /^[\d.]+%$/);
    }));

  test("paints a timeline that is neither blank nor uniform", () =>
    withPage(reportPath, async (page) => {
      await drawn(page);
      const picture = page.locator(".timeline canvas").first();
      const { share, distinct } = await coloursOf(picture, "--idle");
      assert.ok(share < 0.98, `${share} of the pixels are idle`);
      assert.ok(distinct > 5, `${distinct} colours`);
    }));

  test("shows the job under the pointer", () =>
    withPage(reportPath, async (page) => {
      await drawn(page);
      const { timeline } = data.runs[0];
      const row = largestRow(timeline);
      const job = timeline.job[row];
      const plot = page.locator(".timeline-plot").first();
      await plot.scrollIntoViewIfNeeded();
      const { x, y } = await placeOf(plot, timeline, row);
      await page.mouse.move(x, y);
      await page.waitForSelector(".tooltip");
      assert.equal(await page.locator(".tooltip .job-name").textContent(), data.jobs.name[job]);
      const details = await page.locator(".tooltip").textContent();
      assert.ok(details.includes(data.jobs.user[job]));
      assert.ok(details.includes(`${data.jobs.gpus[job]} GPU`));
    }));

  test("pins a clicked job and lets go of it again", () =>
    withPage(reportPath, async (page) => {
      await drawn(page);
      const { timeline } = data.runs[0];
      const row = largestRow(timeline);
      const plot = page.locator(".timeline-plot").first();
      await plot.scrollIntoViewIfNeeded();
      const { x, y } = await placeOf(plot, timeline, row);
      await page.mouse.click(x, y);
      await page.waitForSelector(".pinned");
      assert.equal(await page.locator(".pinned .job-name").textContent(), data.jobs.name[timeline.job[row]]);
      await page.keyboard.press("Escape");
      await page.waitForSelector(".pinned", { state: "detached" });
    }));

  test("zooms all views over time together", () =>
    withPage(reportPath, async (page) => {
      await drawn(page);
      const plot = page.locator(".timeline-plot").first();
      const whole = await visibleSpan(plot, "time");
      const chart = page.locator(".plot .u-over").nth(1);
      await chart.scrollIntoViewIfNeeded();
      const area = await chart.boundingBox();
      await page.mouse.move(area.x + area.width * 0.25, area.y + 40);
      await page.mouse.down();
      await page.mouse.move(area.x + area.width * 0.5, area.y + 40, { steps: 4 });
      await page.mouse.up();
      const before = `${whole.lo} ${whole.hi}`;
      await page.waitForFunction((text) => document.querySelector(".timeline-plot").dataset.time !== text, before);
      const zoomed = await visibleSpan(plot, "time");
      const part = (zoomed.hi - zoomed.lo) / (whole.hi - whole.lo);
      assert.ok(Math.abs(part - 0.25) < 0.02, `a quarter is on view, got ${part}`);
      await chart.dblclick();
      await page.waitForFunction((text) => document.querySelector(".timeline-plot").dataset.time === text, before);
    }));

  test("zooms the timeline with the wheel once it has the focus", () =>
    withPage(reportPath, async (page) => {
      await drawn(page);
      const plot = page.locator(".timeline-plot").first();
      await plot.focus();
      const before = await plot.getAttribute("data-time");
      await plot.hover();
      await page.mouse.wheel(0, -100);
      await page.waitForFunction((text) => document.querySelector(".timeline-plot").dataset.time !== text, before);
      await page.keyboard.press("0");
      await page.waitForFunction((text) => document.querySelector(".timeline-plot").dataset.time === text, before);
    }));

  test("switches the policy of the detailed views", { skip: data.runs.length < 2 }, () =>
    withPage(reportPath, async (page) => {
      await drawn(page);
      const { policy: last, timeline } = data.runs[data.runs.length - 1];
      const differs = JSON.stringify(timeline) !== JSON.stringify(data.runs[0].timeline);
      const picture = () => page.locator(".timeline canvas").first().evaluate((canvas) => canvas.toDataURL());
      const first = await picture();
      await page.locator(".summary tbody tr").last().click();
      await page.waitForFunction((policy) => document.querySelector("figcaption").textContent.includes(policy), last);
      assert.ok((await page.locator("#unhappy-title").textContent()).endsWith(last));
      await page.waitForFunction(
        ([old, changes]) => (document.querySelector(".timeline canvas").toDataURL() !== old) === changes,
        [first, differs],
      );
      await page.getByLabel("Compare with").selectOption("0");
      await page.waitForFunction(() => document.querySelectorAll(".timeline-plot[data-time]").length === 2);
    }));

  test("finds a job by name, highlights it and zooms to it", () =>
    withPage(reportPath, async (page) => {
      await drawn(page);
      const run = data.runs[0];
      const job = run.timeline.job[largestRow(run.timeline)];
      const whole = await visibleSpan(page.locator(".timeline-plot").first(), "time");
      await page.getByLabel("Find a job by name").fill(data.jobs.name[job]);
      await page.waitForSelector("#job-matches [role=option]");
      await page.keyboard.press("Enter");
      await page.waitForSelector(".pinned");
      assert.equal(await page.locator(".pinned .job-name").textContent(), data.jobs.name[job]);
      await page.waitForFunction(
        ([lo, hi]) => {
          const [from, to] = document.querySelector(".timeline-plot").dataset.time.split(" ").map(Number);
          return from <= lo && hi <= to;
        },
        [Math.max(whole.lo, run.jobs.start_s[job]), Math.min(whole.hi, run.jobs.end_s[job] ?? whole.hi)],
      );
    }));

  test("lists the slowest jobs of the selected policy", () =>
    withPage(reportPath, async (page) => {
      await drawn(page);
      const { end_s: ends } = data.runs[0].jobs;
      const times = ends.map((end, job) => (end === null ? -1 : end - data.jobs.submit_s[job]));
      const finished = times.filter((time) => time >= 0);
      if (finished.length === 0) return;
      assert.equal(await page.locator("#slowest-jobs tbody tr").count(), Math.min(20, finished.length));
      const slowest = await page.locator("#slowest-jobs .job-link").first().textContent();
      assert.ok(times[data.jobs.name.indexOf(slowest)] >= 0);
      assert.equal(times[data.jobs.name.indexOf(slowest)], Math.max(...times));
    }));

  test("fits a laptop, in the dark too", () =>
    withPage(
      reportPath,
      async (page) => {
        await drawn(page);
        assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true);
        assert.ok((await coloursOf(page.locator(".plot canvas").first(), topColour)).share > 0.0005);
      },
      { colorScheme: "dark" },
    ));

  test("prints on white within the page's width", () =>
    withPage(
      reportPath,
      async (page) => {
        await drawn(page);
        await page.setViewportSize({ width: 1047, height: 718 });
        await page.emulateMedia({ media: "print", colorScheme: "dark" });
        await page.waitForSelector("html.printing");
        const shown = await page.evaluate(() => ({
          background: getComputedStyle(document.body).backgroundColor,
          controls: [...document.querySelectorAll(".controls")].map((element) => getComputedStyle(element).display),
          widest: Math.max(...[...document.querySelectorAll("canvas, table")].map((element) => element.getBoundingClientRect().right)),
        }));
        assert.equal(shown.background, "rgb(255, 255, 255)");
        assert.ok(shown.controls.every((display) => display === "none"));
        assert.ok(shown.widest <= 1047, `the widest part ends at ${shown.widest}`);
      },
      { colorScheme: "dark" },
    ));
});

/** Reports that nobody wants but somebody will have. */
function oddReports() {
  const small = () => makeReport({ jobs: 12, nodes: 1, perNode: 4 });
  const onePolicy = small();
  onePolicy.runs.length = 1;
  const noJobs = makeReport({ jobs: 0 });
  const noRuns = { ...small(), runs: [] };
  const oneGpu = makeReport({ jobs: 3, nodes: 1, perNode: 1 });
  const allRejected = small();
  for (const run of allRejected.runs) {
    const none = run.jobs.end_s.map(() => null);
    Object.assign(run.jobs, { start_s: none, end_s: none, rejected: Object.fromEntries(none.map((_, job) => [job, "too big <script>"])) });
    run.timeline = { job: [], lane: [], width: [], start_s: [], end_s: [], total: 0, shown: 0 };
    run.series = { t_s: [], queue: [], running: [], gpus_busy: [], efficiency: [] };
    for (const key of Object.keys(run.summary)) run.summary[key] = null;
  }
  const zeroLength = small();
  for (const { timeline } of zeroLength.runs) timeline.end_s = timeline.start_s;
  return { onePolicy, noJobs, noRuns, oneGpu, allRejected, zeroLength, nearlyEmpty: { version: 1, runs: [{ policy: "p" }] } };
}

describe("odd data", { skip: process.env.RUBATO_REPORT !== undefined }, () => {
  for (const [name, report] of Object.entries(oddReports())) {
    test(`shows ${name} without complaint`, () =>
      withPage(writeReport(name, report), async (page) => {
        await page.waitForSelector("main .card");
        assert.equal(await page.locator(".summary tbody tr").count(), report.runs.length);
      }));
  }

  test("an unreadable report says so", () =>
    withPage(writeReport("unreadable", '{"version": 1, "runs": ['), async (page) => {
      assert.match(await page.locator(".problem").textContent(), /cannot be read/);
    }));

  test("five thousand jobs stay usable", () =>
    withPage(writeReport("large", makeReport({ jobs: 5000, nodes: 64, round: 120 })), async (page) => {
      await drawn(page);
      assert.ok((await coloursOf(page.locator(".timeline canvas").first(), "--idle")).share < 0.98);
      await page.locator(".timeline-plot").first().focus();
      for (const key of ["+", "+", "ArrowRight", "-", "0"]) await page.keyboard.press(key);
      await page.getByLabel("Find a job by name").fill("job-04321");
      await page.keyboard.press("Enter");
      await page.waitForSelector(".pinned");
    }));
});
