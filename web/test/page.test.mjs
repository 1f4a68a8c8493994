// Opens the daemon's page in Chromium and uses it as a person would. The daemon and its jobs are real.
import assert from "node:assert/strict";
import { closeSync, fstatSync, openSync, readFileSync, readSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, describe, test } from "node:test";
import { chromium } from "playwright-core";
import { Daemon, chromiumFlags, hasProgram, mlp, until } from "./daemon.mjs";

const daemon = new Daemon(["--cluster", "2x4", "--measuring", "1", "--log-limit", "4G"]);
let browser;
/** A job that trains from the beginning, so that there are reports of it when they are looked at. */
let maple;

before(async () => {
  assert.ok(hasProgram(), "build the program and its examples first: ./dev build");
  await daemon.start();
  daemon.run("wait", String(daemon.train("known", 40, "--gpus", "1:2", "--profile", "charts", "--work", "steps=40")));
  maple = daemon.train("maple", 20000, "--gpus", "2", "--profile", "charts", "--work", "steps=20000", "--deadline", "+50h", "--env", "SEASON=autumn");
  browser = await chromium.launch({ executablePath: process.env.RUBATO_CHROMIUM ?? "/usr/bin/chromium", headless: true, args: chromiumFlags });
});
after(async () => {
  await browser?.close();
  await daemon.end();
});

/** Runs the steps on an open page. An error on the page or a request elsewhere is a failure; `expected` says which
    complaints belong to the test. */
async function withPage(address, steps, { expected = /^$/, ...options } = {}) {
  const context = await browser.newContext({ viewport: { width: 1366, height: 768 }, ...options });
  const complaints = [];
  const watch = (page) => {
    page.open = new Set();
    page.on("request", (request) => request.url().includes("/v1/") && !request.url().includes("/log") && page.open.add(request));
    for (const end of ["requestfinished", "requestfailed"]) page.on(end, (request) => page.open.delete(request));
    page.on("console", (message) => ["error", "warning"].includes(message.type()) && complaints.push(message.text()));
    page.on("pageerror", (error) => complaints.push(String(error)));
    page.on("request", (request) => {
      if (!request.url().startsWith(daemon.url) && !/^(data|blob):/.test(request.url())) complaints.push(`request to ${request.url()}`);
    });
    page.on("dialog", (dialog) => {
      complaints.push(`dialog: ${dialog.message()}`);
      void dialog.dismiss();
    });
  };
  context.on("page", watch);
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  try {
    await page.goto(address);
    await steps(page, context);
    assert.deepEqual(complaints.filter((text) => !expected.test(text)), []);
  } finally {
    await context.close();
  }
}

/** Job 1 has ended when they are looked at. */
const everyView = [
  "#/?table=1", "#/jobs?show=live", "#/jobs?show=queue", "#/jobs?show=all", "#/promises?past=1", "#/nodes", "#/decisions", "#/use", "#/whatif", "#/policy",
  "#/submit", "#/submit?mode=file", "#/jobs/1", "#/jobs/1?tab=why", "#/jobs/1?tab=log", "#/jobs/1?tab=history", "#/nowhere",
];
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

const live = (page) => page.waitForSelector('[data-status="live"]');

async function goTo(page, address) {
  await page.evaluate((hash) => (location.hash = hash), address);
}

/** Waits until the view has its answers and is drawn. A log is followed, so its request does not end. */
async function settled(page) {
  const drawn = () => page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
  do {
    await drawn();
    await until(() => page.open.size === 0);
    await drawn();
  } while (page.open.size > 0);
}

/** How many pixels of the timeline have exactly this colour. */
function painted(page, wanted) {
  return page.locator(".timeline canvas").first().evaluate((canvas, [red, green, blue]) => {
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d");
    copy.drawImage(canvas, 0, 0);
    const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
    let count = 0;
    for (let i = 0; i < data.length; i += 4) if (data[i] === red && data[i + 1] === green && data[i + 2] === blue) count++;
    return count;
  }, wanted);
}

describe("the page", () => {
  test("is entered with a one-time code, which leaves no trace in the address", () =>
    withPage(daemon.page(), async (page, context) => {
      await live(page);
      assert.equal(new URL(page.url()).hash.includes("code"), false);
      assert.ok(await page.getByRole("navigation", { name: "Views" }).isVisible());
      assert.deepEqual(await context.cookies(), []);
      // A second tab of the same browser needs no login.
      const second = await context.newPage();
      second.setDefaultTimeout(60_000);
      await second.goto(`${daemon.url}/#/jobs`);
      await live(second);
      const watchers = /rubato_watchers (\d+)/.exec(daemon.run("metrics"))[1];
      assert.equal(watchers, "1", "one stream for both tabs");
    }));

  test("is entered with a pasted token, and refuses a wrong one and a used code", async () => {
    await withPage(daemon.url, async (page) => {
      await page.getByLabel("Or paste a token").fill("rub_wrong");
      await page.getByRole("button", { name: "Log in" }).click();
      await page.getByText("this token is not known").waitFor();
      await page.getByLabel("Or paste a token").fill(daemon.adminToken());
      await page.getByRole("button", { name: "Log in" }).click();
      await live(page);
      const kept = await page.evaluate(() => JSON.stringify([{ ...sessionStorage }, { ...localStorage }]));
      assert.equal(kept.includes(daemon.adminToken()), false, "the pasted token is not kept");
    }, { expected: /401/ });
    const used = daemon.page();
    await withPage(used, live);
    await withPage(used, (page) => page.getByText("this code was used already").waitFor(), { expected: /401/ });
  });

  test("shows a job from its submission to its end without a reload", () =>
    withPage(daemon.page(), async (page) => {
      await live(page);
      await goTo(page, "#/jobs?show=all");
      await page.locator("tbody tr", { hasText: "maple" }).waitFor();
      // A new row may move others. What changes in a row must not.
      const job = daemon.train("spruce", 30, "--gpus", "1:2");
      const row = page.locator("tbody tr", { hasText: "spruce" });
      await row.waitFor();
      await page.evaluate(() => {
        window.shifted = 0;
        new PerformanceObserver((list) => list.getEntries().forEach((entry) => (window.shifted += entry.value))).observe({ type: "layout-shift" });
      });
      await row.getByText("completed").waitFor();
      const shifted = await page.evaluate(() => window.shifted);
      assert.ok(shifted < 0.001, `${shifted}: more than a word has moved`);
      await row.getByRole("link", { name: "spruce" }).click();
      await page.getByRole("heading", { name: "spruce" }).waitFor();
      assert.ok(page.url().endsWith(`#/jobs/${job}`));
    }));
});

describe("a job on the page", () => {
  test("is submitted after its verdict was seen, grows, is resized and cancelled", () =>
    withPage(daemon.page(), async (page, context) => {
      await context.grantPermissions(["clipboard-read", "clipboard-write"]);
      await live(page);
      await goTo(page, "#/submit");
      const submit = page.getByRole("button", { name: "Submit", exact: true });
      assert.ok(await submit.isDisabled(), "nothing is submitted before the verdict");
      await page.getByLabel("Command").fill(`${mlp} --steps 100000`);
      await page.getByLabel("Name").fill("oak");
      await page.getByLabel("Most GPUs").fill("4");
      assert.match(await page.locator("code.command").textContent(), /^rubato submit --name oak .* -- \S+mlp --steps 100000$/);
      await page.getByRole("button", { name: "Copy" }).click();
      await page.getByRole("button", { name: "Copied" }).waitFor();
      assert.equal(await page.evaluate(() => navigator.clipboard.readText()), await page.locator("code.command").textContent());
      const before = daemon.json("ls").jobs.length;
      await page.getByRole("button", { name: "What would happen?" }).click();
      await page.locator(".verdict").waitFor();
      assert.equal(daemon.json("ls").jobs.length, before, "a dry run stores nothing");
      await submit.click();
      await page.getByRole("heading", { name: "oak" }).waitFor();
      const id = Number(/jobs\/(\d+)/.exec(page.url())[1]);
      // It is alone, so it grows to its limit.
      await page.locator(".job-line", { hasText: "4 GPUs" }).waitFor();
      const fact = (name) => page.locator(".facts-list div", { has: page.locator("dt", { hasText: name }) }).locator("dd").first();
      // New workers that have not joined yet would cost nothing.
      await until(async () => /the last paused it for/.test(await fact("Resizes").textContent()));

      await page.getByRole("button", { name: "Resize…" }).click();
      const dialog = page.getByRole("dialog");
      await dialog.getByLabel("Most GPUs").fill("2");
      await dialog.getByRole("button", { name: "Resize", exact: true }).click();
      await page.locator(".job-line", { hasText: "2 GPUs" }).waitFor();
      // The change is a mark in the chart and a row of its table.
      await page.getByText("Changes as a table").click();
      const marks = page.getByRole("region", { name: "Changes of this job" }).locator("tbody tr");
      await marks.filter({ hasText: "start" }).first().waitFor();
      await marks.filter({ hasText: "shrink" }).first().waitFor();
      // What a change cost is told by the program, a moment later. A shrink often costs nothing that can be measured.
      await marks.filter({ hasText: /(grow|shrink).*\d ms/ }).first().waitFor();
      await until(async () => /^[1-9]/.test(await fact("Resizes").textContent()));
      assert.equal(await fact("Restarts").textContent(), "0", "a resize is no restart");
      await page.getByRole("button", { name: "Cancel…" }).click();
      await page.getByRole("button", { name: "Leave it" }).click();
      assert.equal(daemon.json("status", String(id)).state === "CANCELLED", false, "nothing happens without the confirmation");
      await page.getByRole("button", { name: "Cancel…" }).click();
      await page.getByRole("button", { name: "Cancel the job" }).click();
      await page.locator(".job-line", { hasText: "cancelled" }).waitFor();
      assert.equal(await page.getByRole("button", { name: "Cancel…" }).count(), 0);
    }));

  test("shows what its program reported before the page was opened, its promise and how sure its end is", () =>
    withPage(daemon.page(), async (page) => {
      const job = maple;
      await until(() => daemon.json("status", String(job)).eta_range !== null, 180_000);
      await live(page);
      await goTo(page, `#/jobs/${job}`);
      for (const title of ["GPUs", "Loss", "Samples a second", "Batch size", "Learning rate"]) await page.locator("figcaption", { hasText: title }).waitFor();
      // All of them have the same time axis.
      const widths = await page.locator("figure .u-over").evaluateAll((places) => places.map((place) => [place.getBoundingClientRect().left, place.clientWidth].join()));
      assert.equal(widths.length, 5);
      assert.equal(new Set(widths).size, 1);
      await page.getByText("Reports as a table").click();
      const rates = await page.getByRole("region", { name: "Reports of this job" }).locator("tbody td:last-child").allTextContents();
      assert.ok(rates.length > 2 && rates.every((rate) => Number(rate) > 0), rates.join());
      const promises = page.getByRole("region", { name: "Promises to this job" });
      assert.match(await promises.locator("tbody tr").first().textContent(), /promised/);
      await page.locator(".facts-list .expected", { hasText: /\d\d to .*\d\d:\d\d:\d\d/ }).waitFor();
      await page.getByText("SEASON", { exact: true }).waitFor();
      await page.getByText("autumn", { exact: true }).waitFor();
      // A dragged range is in the address.
      const drawn = page.locator("figure .u-over").nth(1);
      // A report that comes now may draw it anew.
      await until(() => drawn.scrollIntoViewIfNeeded().then(() => true, () => false));
      const chart = await drawn.boundingBox();
      await page.mouse.move(chart.x + 20, chart.y + 20);
      await page.mouse.down();
      await page.mouse.move(chart.x + 200, chart.y + 20, { steps: 4 });
      await page.mouse.up();
      await page.waitForFunction(() => /from=\d+&to=\d+/.test(location.hash));

      // The plan behind its promise is right of the present.
      await goTo(page, "#/");
      await page.getByLabel(/[1-9]\d* planned step/).waitFor();
      // Its deadline, far beyond that, is a flag in the colour of what is late.
      const due = Date.parse(daemon.json("status", String(job)).deadline) / 1000;
      await goTo(page, `#/?span=7d&from=${Math.round(due - 3600)}&to=${Math.round(due + 600)}`);
      const late = await page.evaluate(() => {
        const probe = document.body.appendChild(document.createElement("i"));
        probe.style.color = "var(--late)";
        const numbers = getComputedStyle(probe).color.match(/\d+/g).map(Number);
        probe.remove();
        return numbers;
      });
      await until(async () => (await painted(page, late)) > 10);

      // Which promises another policy would not honour is known before the switch.
      await goTo(page, "#/policy");
      await page.getByLabel("Switch to").fill("fifo");
      await page.getByRole("button", { name: "Switch…" }).click();
      await page.getByRole("dialog").getByText("It would not honour this promise").waitFor();
      await page.getByRole("dialog").getByText("maple").waitFor();
      await page.getByRole("button", { name: "Leave it" }).click();
      assert.equal(daemon.json("policy").policy, "rubato");
      daemon.run("cancel", String(job));
      await goTo(page, `#/jobs/${job}`);
      await promises.locator("tbody tr", { hasText: "cancelled" }).waitFor();
    }));

  test("is held and released, waits with its position, and a node is drained and used again", () =>
    withPage(daemon.page(), async (page) => {
      await live(page);
      const big = daemon.shell("big", "sleep 600", "--gpus", "8");
      const jobs = ["second", "third"].map((name) => daemon.shell(name, "sleep 600", "--gpus", "8"));
      await goTo(page, "#/jobs?show=queue");
      const place = (name) => page.locator("tbody tr", { hasText: name }).locator("td").first().textContent();
      await page.locator("tbody tr", { hasText: "third" }).waitFor();
      await until(async () => (await place("second")) === "1" && (await place("third")) === "2");
      // One click from the table to why it waits, for whom, and what would change that.
      await page.locator("tbody tr", { hasText: "second" }).getByRole("link", { name: "second" }).click();
      await page.getByRole("heading", { name: "Why it has the GPUs it has" }).waitFor();
      await page.getByRole("heading", { name: "What would change it" }).waitFor();
      assert.match(await page.locator(".why-text").textContent(), /It waits for.*big/);
      await page.getByRole("button", { name: "Hold…" }).click();
      await page.getByRole("button", { name: "Hold", exact: true }).click();
      await page.locator(".job-line", { hasText: "held" }).waitFor();
      // The other one moves up, though nothing has happened to it.
      await goTo(page, `#/jobs/${jobs[1]}`);
      await page.getByText("Position 1 in the queue").waitFor();
      await goTo(page, `#/jobs/${jobs[0]}`);
      await page.getByRole("button", { name: "Release…" }).click();
      await page.getByRole("button", { name: "Release", exact: true }).click();
      await page.locator(".job-line", { hasText: "pending" }).waitFor();
      await goTo(page, "#/nodes");
      await page.locator("tr", { hasText: "up" }).last().getByRole("button", { name: "Drain…" }).click();
      await page.getByRole("dialog").getByRole("button", { name: "Drain", exact: true }).click();
      await page.locator(".node.is-closed").waitFor();
      await page.getByRole("button", { name: "Resume…" }).click();
      await page.getByRole("dialog").getByRole("button", { name: "Resume", exact: true }).click();
      await page.locator(".node.is-closed").waitFor({ state: "detached" });
      for (const job of [...jobs, big]) daemon.run("cancel", String(job));
    }));

  test("moves off a node that is drained", () =>
    withPage(daemon.page(), async (page) => {
      await live(page);
      const job = daemon.train("elm", 100000, "--gpus", "1");
      await until(() => daemon.json("status", String(job)).slots.length === 1);
      const [from] = daemon.json("status", String(job)).slots[0].split(".").map(Number);
      await goTo(page, "#/nodes");
      const here = page.locator(".node", { hasText: `node ${from}` }).locator(`a.slot[href="#/jobs/${job}"]`);
      await here.waitFor();
      await page.locator("tr", { hasText: `node${from}` }).getByRole("button", { name: "Drain…" }).click();
      await page.getByRole("dialog").getByRole("button", { name: "Drain", exact: true }).click();
      await here.waitFor({ state: "detached" });
      await page.locator(".node", { hasText: `node ${1 - from}` }).locator(`a.slot[href="#/jobs/${job}"]`).waitFor();
      daemon.run("resume", String(from));
      daemon.run("cancel", String(job));
    }));

  test("is refused with the earliest deadline that is possible, and a bad file with the words of the command line", () =>
    withPage(daemon.page(), async (page) => {
      await live(page);
      // Its speed is known from a job before, which was measured because of its deadline.
      const measured = daemon.train("measured", 60, "--gpus", "1:2", "--profile", "page", "--work", "steps=60", "--deadline", "+30m");
      daemon.run("wait", String(measured));
      await goTo(page, "#/submit?mode=file");
      const file = page.getByLabel("Job file, JSON or YAML");
      await file.fill(`command: [${mlp}, --steps, "9000000"]\nprofile: page\nwork: {steps: 9000000}\ngpus: {min: 1, max: 2}\ngoal: {deadline: +1m}\n`);
      await page.getByRole("button", { name: "What would happen?" }).click();
      const verdict = page.locator(".verdict.is-late");
      await verdict.waitFor();
      assert.match(await verdict.textContent(), /^Refused, earliest feasible /);
      assert.ok(await page.getByRole("button", { name: "Submit", exact: true }).isDisabled());
      await file.fill("command: [train]\nnmae: x\n");
      await page.getByRole("button", { name: "What would happen?" }).click();
      await page.getByRole("alert").waitFor();
      assert.match(await page.getByRole("alert").textContent(), /nmae.*did you mean name/);
    }, { expected: /409|422/ }));

  test("has a log that is followed, searched, linked to and downloaded", () =>
    withPage(daemon.page(), async (page) => {
      const lines = 30_000;
      const job = daemon.shell("talk", `i=1; while [ $i -le ${lines} ]; do echo "line $i"; i=$((i+1)); done; printf '\\033[31mneedle\\033[0m at the end\\n'; sleep 5; echo later; sleep 600`);
      await live(page);
      await goTo(page, `#/jobs/${job}?tab=log`);
      const log = page.getByRole("log");
      await log.locator(".fg-red", { hasText: "needle" }).waitFor();
      await log.getByText("later", { exact: false }).waitFor();
      assert.ok((await log.locator(".log-line").count()) < 200, "only what is in view is in the document");
      await page.getByLabel("Search the log").fill("LINE 12345");
      await page.keyboard.press("Enter");
      await page.locator('[data-matches="1"]').waitFor();
      await page.getByRole("button", { name: "Next match" }).click();
      const hit = log.locator(".log-line.is-marked", { hasText: "line 12345" });
      await hit.waitFor();
      assert.equal(await hit.locator("mark").textContent(), "line 12345");
      await page.getByLabel("Search the log").fill("line 1234");
      await page.keyboard.press("Enter");
      await page.locator('[data-matches="11"]').waitFor();
      for (const [button, text] of [["Next match", "line 1234"], ["Next match", "line 12340"], ["Previous match", "line 1234"], ["Previous match", "line 12349"]]) {
        await page.getByRole("button", { name: button }).click();
        await until(async () => new RegExp(`${text}$`).test(await log.locator(".log-line.is-marked").textContent()));
      }
      await page.getByLabel("Search the log").fill("LINE 12345");
      await page.keyboard.press("Enter");
      await page.locator('[data-matches="1"]').waitFor();
      await page.getByRole("button", { name: "Next match" }).click();
      await hit.waitFor();
      // The address leads there again.
      const address = page.url();
      await page.goto("about:blank");
      await page.goto(address);
      await log.locator(".log-line.is-marked", { hasText: "line 12345" }).waitFor();
      const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Download" }).click()]);
      assert.equal(download.suggestedFilename(), `talk-${job}.log`);
      daemon.run("cancel", String(job));
    }));
});

/** The most memory that a process of the browser that runs pages has had, in bytes. */
async function mostMemoryOfPages() {
  const session = await browser.newBrowserCDPSession();
  const { processInfo } = await session.send("SystemInfo.getProcessInfo");
  await session.detach();
  const pages = processInfo.filter(({ type }) => type === "renderer");
  assert.ok(pages.length > 0);
  return Math.max(...pages.map(({ id }) => peakOf(id)));
}

function peakOf(pid) {
  try {
    return 1024 * Number(/^VmHWM:\s*(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))[1]);
  } catch {
    return 0; // it has just ended
  }
}

function endOf(path, bytes) {
  const file = openSync(path);
  const end = Buffer.alloc(bytes);
  readSync(file, end, 0, bytes, fstatSync(file).size - bytes);
  closeSync(file);
  return end.toString();
}

describe("a log of 1 GB", () => {
  const half = "yes 'epoch 3 step 000000012345 loss 0.123456 rate 51' | head -c 500000000; echo";
  const script = `echo needle; ${half}; echo needle; ${half}; echo Needle; echo the-very-end; sleep 600`;
  const patience = { timeout: 180_000 };

  test("is followed, linked to, searched and downloaded without hurting the browser", () =>
    withPage(daemon.page(), async (page, context) => {
      const job = daemon.shell("gigabyte", script);
      await live(page);
      await goTo(page, `#/jobs/${job}?tab=log`);
      const log = page.getByRole("log");
      await log.getByText("the-very-end").waitFor({ timeout: 120_000 });
      const [last] = await log.locator(".log-line").filter({ hasText: "the-very-end" }).evaluateAll((found) => found.map((line) => Number(line.dataset.at)));
      assert.ok(last >= 0.99e9, `the log has ${last} bytes`);
      // A line in the middle, by its address.
      const middle = await page.evaluate(async ([id, at]) => {
        const { token } = JSON.parse(sessionStorage.getItem("rubato-session"));
        const abort = new AbortController();
        const answer = await fetch(`/v1/jobs/${id}/log?from=${at}`, { headers: { Authorization: `Bearer ${token}` }, signal: abort.signal });
        const { value } = await answer.body.getReader().read();
        abort.abort();
        return at + value.indexOf(10) + 1;
      }, [job, 400_000_000]);
      await goTo(page, "#/jobs");
      await goTo(page, `#/jobs/${job}?tab=log&at=${middle}`);
      const marked = log.locator(".log-line.is-marked");
      await log.locator(`.log-line.is-marked[data-at="${middle}"]`).waitFor();

      await page.getByLabel("Search the log").fill("NEEDLE");
      await page.keyboard.press("Enter");
      await page.locator('[data-matches="3"]').waitFor(patience);
      const places = [middle];
      for (const button of ["Next match", "Next match", "Next match", "Previous match"]) {
        await page.getByRole("button", { name: button }).click();
        await until(async () => (await marked.count()) === 1 && Number(await marked.getAttribute("data-at")) !== places.at(-1));
        assert.match(await marked.locator("mark").textContent(), /^needle$/i);
        places.push(Number(await marked.getAttribute("data-at")));
      }
      const [, first, second, third, back] = places;
      // A line begins with the number of its worker.
      assert.equal(third, last - "[1] Needle\n".length);
      assert.equal(second - first, third - second);
      assert.equal(back, second);
      assert.ok((await log.locator(".log-line").count()) < 200, "only what is in view is in the document");

      const [download] = await Promise.all([page.waitForEvent("download", patience), page.getByRole("button", { name: "Download" }).click()]);
      const path = await download.path();
      assert.equal(statSync(path).size, last + "[1] the-very-end\n".length);
      assert.equal(endOf(path, 28), "[1] Needle\n[1] the-very-end\n");
      await download.delete();
      const session = await context.newCDPSession(page);
      await session.send("HeapProfiler.collectGarbage");
      const { usedSize } = await session.send("Runtime.getHeapUsage");
      assert.ok(usedSize < 50e6, `the heap has ${usedSize} bytes`);
      const most = await mostMemoryOfPages();
      assert.ok(most < 700e6, `the process of the page had ${most} bytes`);
      daemon.run("cancel", String(job));
    }));
});

describe("the cluster on the page", () => {
  test("is a timeline whose live edge moves, with a table of the same, decisions and use", () =>
    withPage(daemon.page(), async (page) => {
      const job = daemon.train("larch", 100000, "--gpus", "1:4");
      await live(page);
      await goTo(page, "#/?table=1");
      const plot = page.locator(".timeline-plot[data-time]");
      await plot.waitFor();
      const row = page.locator("details table tbody tr", { hasText: "larch" }).first();
      await row.waitFor();
      assert.match(await row.textContent(), /now/);
      // Its colour is on the canvas, left of the present.
      const colour = await row.locator(".job-colour").evaluate((chip) => getComputedStyle(chip).backgroundColor.match(/\d+/g).map(Number));
      await until(async () => (await painted(page, colour)) > 100);
      const before = await plot.getAttribute("data-time");
      await page.waitForFunction((text) => document.querySelector(".timeline-plot").dataset.time !== text, before);

      // Zooming is in the address, and the address leads there again.
      await page.getByRole("button", { name: "Zoom in" }).click();
      await page.waitForFunction(() => /from=\d+&to=\d+/.test(location.hash));
      const zoomed = await plot.getAttribute("data-time");
      await page.reload();
      await live(page);
      await plot.waitFor();
      const [lo, hi] = zoomed.split(" ").map(Number);
      await page.waitForFunction(([from, to]) => {
        const [a, b] = (document.querySelector(".timeline-plot")?.dataset.time ?? "0 0").split(" ").map(Number);
        return Math.abs(a - from) < 2 && Math.abs(b - to) < 2;
      }, [lo, hi]);

      // An address without a part of the time leads back to all of it.
      await goTo(page, "#/?table=1");
      await until(async () => (([a, b]) => b - a > 1.2 * (hi - lo))((await plot.getAttribute("data-time")).split(" ").map(Number)));

      // Dragging zooms, with Shift it moves.
      const shown = async () => (await plot.getAttribute("data-time")).split(" ").map(Number);
      const box = await page.locator(".timeline canvas").first().boundingBox();
      const drag = async (from, to) => {
        await page.mouse.move(box.x + from * box.width, box.y + 40);
        await page.mouse.down();
        await page.mouse.move(box.x + to * box.width, box.y + 40, { steps: 4 });
        await page.mouse.up();
      };
      const [wideFrom, wideTo] = await shown();
      await drag(0.3, 0.6);
      await until(async () => (([a, b]) => b - a < 0.6 * (wideTo - wideFrom))(await shown()));
      const [left] = await shown();
      await page.keyboard.down("Shift");
      await drag(0.3, 0.5);
      await page.keyboard.up("Shift");
      await until(async () => (await shown())[0] < left);

      // Beside the picture, a pinned job says why it has what it has.
      await goTo(page, "#/jobs");
      await goTo(page, `#/?pin=${job}`);
      await page.locator(".pinned").getByRole("heading", { name: "Why" }).waitFor();
      await page.locator(".pinned .why-text").waitFor();

      await goTo(page, "#/use");
      await page.locator(".use-bar").waitFor();
      assert.match(await page.locator(".grid-legend").textContent(), /of 8 GPUs/);
      await page.getByText("deadlines kept").waitFor();
      await page.getByText("99th percentile").waitFor();
      assert.match(await page.getByRole("region", { name: "Use by user" }).textContent(), /GPU-hours.*Share.*Weight/);
      await page.getByRole("heading", { name: "Why idle" }).waitFor();
      // A decision leads to the simulator, from there on.
      await goTo(page, "#/decisions");
      await page.locator(".decision", { hasText: "larch" }).getByText("starts").first().waitFor();
      await page.locator(".decision").first().getByRole("link", { name: /replay from here/ }).click();
      await page.waitForFunction(() => /^#\/whatif\?since=\d+$/.test(location.hash));
      await page.getByText("Since", { exact: false }).first().waitFor();
      await goTo(page, `#/jobs/${job}`);
      await page.locator(".plot canvas").first().waitFor();
      daemon.run("cancel", String(job));
    }));
});

describe("nodes of a cluster manager", () => {
  test("have names, labels, cells and GPUs that are used outside Rubato", () =>
    withPage(daemon.url, async (page) => {
      // No cluster manager runs here, so the daemon's answer gets on its way what one would add.
      await page.route("**/v1/nodes", async (route) => {
        const response = await route.fetch();
        const body = await response.json();
        Object.assign(body.nodes[1], { name: "tux07<b>", labels: { rack: "3" }, used: [], others: [2, 3], others_reason: "Slurm job 4711", cells: [{ tenant: "vision", gpus: 4 }] });
        await route.fulfill({ response, json: body });
      });
      await page.getByLabel("Or paste a token").fill(daemon.adminToken());
      await page.getByRole("button", { name: "Log in" }).click();
      await live(page);
      await goTo(page, "#/nodes");
      const node = page.locator(".node", { hasText: "tux07<b>" });
      await node.getByText("2 GPUs used outside Rubato: Slurm job 4711").waitFor();
      await node.getByText("Cells of vision (4 GPUs)").waitFor();
      assert.equal(await node.locator(".slot.is-outside").count(), 2);
      assert.equal(await node.locator(".slot.is-free").count(), 2);
      const row = page.locator("tbody tr", { hasText: "tux07<b>" });
      assert.match(await row.textContent(), /rack=3/);
      assert.match(await page.locator("main").textContent(), /2 are used outside Rubato/);
      await row.getByRole("button", { name: "Drain…" }).click();
      await page.getByRole("dialog").getByText("Drain tux07<b>?").waitFor();
    }));
});

/** Changes what the daemon answers about its jobs, as if they were in such a state. */
async function pretend(page, change) {
  await page.route(/\/v1\/jobs\?/, async (route) => {
    const response = await route.fetch();
    const body = await response.json();
    body.jobs.forEach(change);
    await route.fulfill({ response, json: body });
  });
}

async function enter(page) {
  await page.getByLabel("Or paste a token").fill(daemon.adminToken());
  await page.getByRole("button", { name: "Log in" }).click();
  await live(page);
}

describe("promises", () => {
  test("come with the least slack first, and a late one cannot be overlooked", async () => {
    const jobs = ["ample", "tight", "tardy"].map((name) => daemon.shell(name, "sleep 600"));
    const slack = new Map([[jobs[0], 3000], [jobs[1], 60], [jobs[2], -90]]);
    await withPage(daemon.url, async (page) => {
      await pretend(page, (job) => {
        if (!slack.has(job.id)) return;
        const deadline = Date.now() / 1000 + 3600;
        Object.assign(job, { deadline, slack_seconds: slack.get(job.id), eta: deadline - slack.get(job.id) });
      });
      await enter(page);
      await page.getByRole("link", { name: /1 of \d+\s*Deadlines in danger/ }).click();
      const rows = page.getByRole("region", { name: "Table of deadlines and promises" }).locator("tbody tr").filter({ hasText: /ample|tight|tardy/ });
      await rows.nth(2).waitFor();
      const texts = await rows.allTextContents();
      assert.deepEqual(texts.map((text) => /ample|tight|tardy/.exec(text)[0]), ["tardy", "tight", "ample"]);
      assert.match(texts[0], /late/);
      assert.match(texts[2], /to spare/);
      assert.ok(await rows.nth(0).evaluate((row) => row.classList.contains("is-late")));
      assert.equal(await rows.locator(".slack-bar").count(), 3);
      assert.match(await page.locator("main .trouble").textContent(), /One job is expected to miss its deadline:.*tardy/);
    });
    for (const job of jobs) daemon.run("cancel", String(job));
  });
});

describe("what is new to the page", () => {
  test("is a state without a name, a job that shares its GPU, and a GPU that nobody counts twice", async () => {
    const [host, guest] = ["host", "guest"].map((name) => daemon.shell(name, "sleep 600"));
    await until(() => daemon.json("status", String(guest)).slots.length === 1);
    await withPage(daemon.url, async (page) => {
      await pretend(page, (job) => {
        if (job.id === host) job.state = "HIBERNATING";
        if (job.id === guest) Object.assign(job, { guest_share: 0.4, note: "a guest of another job; it computes 40% of the time now" });
      });
      await page.route("**/v1/nodes", async (route) => {
        const response = await route.fetch();
        const body = await response.json();
        for (const node of body.nodes) {
          node.used = node.id === 0 ? [host, guest].map((job) => ({ gpu: 1, job, worker: 0, measuring: false })) : [];
          if (node.id === 1) node.state = "unknown";
        }
        await route.fulfill({ response, json: body });
      });
      await enter(page);
      await goTo(page, "#/jobs");
      await page.locator("tbody tr", { hasText: "host" }).getByText("hibernating").waitFor();
      await goTo(page, "#/nodes");
      await page.locator(".slot-pair").waitFor();
      assert.deepEqual(await page.locator(".slot-pair .slot").allTextContents(), [host, guest].map(String));
      assert.match(await page.locator("main").textContent(), /1 of 8 GPUs are held, 3 free on nodes that are up; the most on one node is 3, .*1 is shared by two or more jobs/);
      await page.locator(".node.is-closed").getByText("unknown").waitFor();
      await goTo(page, `#/jobs/${guest}`);
      await page.getByText("It is a guest of another job; it computes 40% of the time now.").waitFor();
      await page.locator(".facts-list").getByRole("link", { name: "host" }).waitFor();
    });
    for (const job of [host, guest]) daemon.run("cancel", String(job));
  });

  test("is a trial of a search, with its number, its metric and why it has its GPUs", () =>
    withPage(daemon.page(), async (page) => {
      await live(page);
      const job = daemon.train("trial-a", 100000, "--gpus", "1", "--search", "lr:trials=4:steps=2000");
      await goTo(page, `#/jobs/${job}`);
      await page.locator(".facts-list").getByText(/trial 1 of 4; no stage is finished/).waitFor();
      assert.match(await page.locator(".why-text").textContent(), /trial 1 of 4 of the search lr/);
      await page.locator(".facts-list").getByRole("link", { name: "lr" }).click();
      await page.locator("tbody tr", { hasText: "trial-a" }).waitFor();
      assert.equal(await page.locator("tbody tr").count(), 1, "all trials of the search");
      daemon.run("cancel", String(job));
    }));

  test("are the cells of tenants, whose names only admins see", async () => {
    const token = daemon.run("users", "add", "ben").trim();
    daemon.run("users", "cells", "set", "vision", "1xnode", "--members", "ada");
    const job = daemon.shell("birch", "sleep 600");
    await until(() => daemon.json("nodes").nodes.some((node) => node.cells?.length > 0));
    await withPage(daemon.page(), async (page) => {
      await live(page);
      await goTo(page, "#/nodes");
      await page.locator(".node").getByText("Cells of vision (4 GPUs)").waitFor();
      const row = page.getByRole("region", { name: "Table of tenants' cells" }).locator("tbody tr");
      assert.match(await row.textContent(), /vision.*1x4|vision.*1xnode/);
      assert.match(await row.textContent(), /ada/);
    });
    await withPage(daemon.url, async (page) => {
      await page.getByLabel("Or paste a token").fill(token);
      await page.getByRole("button", { name: "Log in" }).click();
      await live(page);
      await goTo(page, "#/nodes");
      await page.locator(".node").first().waitFor();
      await settled(page);
      assert.equal((await page.locator("body").textContent()).includes("vision"), false);
    });
    daemon.run("cancel", String(job));
    daemon.run("users", "cells", "remove", "vision");
    daemon.run("users", "remove", "ben");
  });
});

describe("what if", () => {
  test("the past is simulated under the policy that ran, with what is taken as truth", () =>
    withPage(daemon.page(), async (page) => {
      await live(page);
      daemon.run("wait", String(daemon.train("ash", 30, "--gpus", "1:2")));
      await goTo(page, "#/whatif");
      await page.getByLabel("Policies").fill("as-run, srtf");
      await page.locator("main select").selectOption("1h");
      assert.match(page.url(), /policies=as-run%2C\+srtf&span=1h/);
      // It may be over before anybody looks, so its first answer says that it goes on.
      let asked = 0;
      await page.route(/\/v1\/whatif\/\d+$/, async (route) => {
        const response = await route.fetch();
        await (asked++ === 0 ? route.fulfill({ response, json: { id: 1, state: "running", progress: 0.4 } }) : route.fulfill({ response }));
      });
      await page.getByRole("button", { name: "Run" }).click();
      await page.getByRole("progressbar", { name: "Progress of the run" }).waitFor();
      await page.getByRole("heading", { name: "What is taken as truth" }).waitFor();
      const rows = page.getByRole("region", { name: "Summary" }).locator("tbody tr");
      assert.equal(await rows.count(), 3, "what really happened, and two policies");
      assert.match(await rows.nth(1).textContent(), /as-run/);
      assert.match(await page.locator("main").textContent(), /simulated completion times of \d+ jobs differ from the real ones by/);
      await page.locator(".timeline-plot[data-time]").nth(2).waitFor();
    }));
});

describe("text of users", () => {
  // The daemon refuses blanks, slashes and marks of direction in names.
  const hostile = '"><script>alert(1)&lt;\u05d0\u05d1';

  test("does nothing, wherever it is shown", () =>
    withPage(daemon.page(), async (page) => {
      const script = `printf '<script>alert(2)</script>\\n\\033]0;title\\007\\033[2J\\342\\200\\256reversed\\n\\000\\377\\n'; echo '"><img src=x onerror=alert(3)>'; sleep 600`;
      const job = daemon.shell(hostile, script);
      await live(page);
      for (const view of ["#/jobs?show=all", "#/promises?past=1", "#/nodes", "#/", `#/jobs/${job}`, `#/jobs/${job}?tab=why`, `#/jobs/${job}?tab=history`, "#/decisions"]) {
        await goTo(page, view);
        await page.locator("main").waitFor();
        await settled(page);
      }
      await goTo(page, `#/jobs/${job}?tab=log`);
      await page.getByRole("log").getByText("<script>alert(2)</script>").waitFor();
      await page.getByRole("log").getByText("onerror=alert(3)").waitFor();
      assert.equal(await page.locator("main img, main script").count(), 0);
      assert.equal((await page.getByRole("heading", { level: 1 }).textContent()).trim(), hostile);
      daemon.run("cancel", String(job));
    }));
});

describe("another user", () => {
  test("sees neither names nor details of others, only that GPUs are held", async () => {
    const token = daemon.run("users", "add", "bob").trim();
    const job = daemon.train("secretname", 100000, "--gpus", "2");
    await until(() => daemon.json("status", String(job)).gpus === 2);
    await withPage(daemon.url, async (page) => {
      const bodies = [];
      page.on("response", async (response) => {
        if (response.url().includes("/v1/")) bodies.push(await response.text().catch(() => ""));
      });
      await page.getByLabel("Or paste a token").fill(token);
      await page.getByRole("button", { name: "Log in" }).click();
      await live(page);
      for (const view of ["#/", "#/jobs?show=all", "#/promises?past=1", "#/nodes", "#/decisions", "#/use"]) {
        await goTo(page, view);
        await settled(page);
        assert.equal((await page.locator("body").textContent()).includes("secretname"), false, view);
      }
      await goTo(page, "#/nodes");
      await page.locator(".slot.is-other").first().waitFor();
      const held = daemon.json("ls").jobs.reduce((sum, { gpus }) => sum + gpus, 0);
      assert.equal(await page.locator(".node-grid .slot.is-other").count(), held);
      assert.equal(await page.getByRole("button", { name: "Drain…" }).count(), 0);
      for (const address of [`#/jobs/${job}`, `#/jobs/${job}?tab=log`]) {
        await goTo(page, address);
        await page.getByText(`there is no job ${job}`).waitFor();
      }
      const answers = await page.evaluate(async (id) => {
        const { token } = JSON.parse(sessionStorage.getItem("rubato-session"));
        const ask = (rest, method = "GET") => fetch(`/v1/jobs/${id}${rest}`, { method, headers: { Authorization: `Bearer ${token}` } });
        return Promise.all([ask(""), ask("/log"), ask("/past"), ask("/explain"), ask("/hold", "POST"), ask("", "DELETE")].map(async (answer) => (await answer).status));
      }, job);
      assert.deepEqual(answers, [404, 404, 404, 404, 404, 404]);
      assert.equal(bodies.join().includes("secretname"), false, "the daemon did not send it either");
    }, { expected: /404/ });
    daemon.run("cancel", String(job));
    daemon.run("users", "remove", "bob");
  });
});

describe("the connection", () => {
  test("comes back by itself when the daemon does, and says so", () =>
    withPage(daemon.page(), async (page) => {
      await live(page);
      await goTo(page, "#/jobs");
      const job = daemon.train("willow", 100000, "--gpus", "1:2");
      await page.locator("tbody tr", { hasText: "willow" }).waitFor();
      await daemon.stop("SIGKILL");
      await page.locator('[data-status="lost"]').waitFor();
      assert.ok(await page.locator("tbody tr", { hasText: "willow" }).isVisible(), "what was there stays");
      await daemon.start();
      await live(page);
      daemon.run("cancel", String(job));
      await page.locator("tbody tr", { hasText: "willow" }).waitFor({ state: "detached" });
    }, { expected: /ERR_|Failed to load|404/ }));

  test("ends with the session that an admin ends", () =>
    withPage(daemon.page(), async (page) => {
      await live(page);
      for (const user of daemon.json("users", "list").users)
        for (const { token } of user.pages) daemon.run("users", "token", user.name, "--revoke", token);
      await page.getByRole("heading", { name: "Log in" }).waitFor();
    }, { expected: /401|ERR_/ }));
});

describe("the keys", () => {
  test("find, move through rows, open one and show the help", () =>
    withPage(daemon.page(), async (page) => {
      await live(page);
      await goTo(page, "#/jobs?show=all");
      await page.locator("tbody tr").nth(1).waitFor();
      await page.keyboard.press("j");
      await page.keyboard.press("j");
      assert.equal(await page.locator("tbody tr").nth(1).evaluate((row) => row === document.activeElement), true);
      await page.keyboard.press("k");
      await page.keyboard.press("Enter");
      await page.getByRole("navigation", { name: "Parts of the job" }).waitFor();
      await page.keyboard.press("/");
      assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-label")), "Find a job");
      await page.keyboard.type("spruce");
      await page.keyboard.press("Enter");
      await page.locator("tbody tr", { hasText: "spruce" }).waitFor();
      assert.equal(await page.locator("tbody tr").count(), 1);
      await page.locator("body").click({ position: { x: 5, y: 300 } });
      await page.keyboard.press("?");
      await page.getByRole("dialog", { name: "Keys and help" }).waitFor();
    }));

  test("every table is exported as CSV that a spreadsheet does not run", () =>
    withPage(daemon.page(), async (page) => {
      const tables = { "#/?table=1": "timeline", "#/promises?past=1": "promises", "#/nodes": "nodes", "#/decisions": "decisions", "#/use": "users", "#/jobs/1?tab=history": "history" };
      for (const [view, name] of Object.entries(tables)) {
        await live(page);
        await goTo(page, view);
        const button = page.getByRole("button", { name: "Export CSV" });
        await until(() => button.isEnabled());
        const [file] = await Promise.all([page.waitForEvent("download"), button.click()]);
        assert.equal(file.suggestedFilename(), `rubato-${name}.csv`);
        const lines = readFileSync(await file.path(), "utf8").trimEnd().split("\r\n");
        assert.ok(lines.length > 1 && lines[0].split(",").length > 2, `${view}: ${lines[0]}`);
      }
      const job = daemon.shell("=cmd()", "sleep 600");
      await live(page);
      await goTo(page, "#/jobs?show=all");
      await page.locator("tbody tr", { hasText: "=cmd()" }).waitFor();
      const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Export CSV" }).click()]);
      const text = readFileSync(await download.path(), "utf8");
      assert.match(text, /^Job,Name,/);
      assert.match(text, /,'=cmd\(\),/);
      daemon.run("cancel", String(job));
    }));
});

describe("the look", () => {
  for (const [width, colorScheme] of [[1440, "light"], [400, "dark"]]) {
    test(`is ${colorScheme}: axe finds nothing to complain of in any view, and none is wider than ${width} pixels`, () =>
      withPage(daemon.page(), async (page) => {
        await live(page);
        await page.evaluate(axe);
        const complaints = async () => {
          const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
          return violations.flatMap(({ id, nodes }) => nodes.map(({ target, failureSummary }) => `${id}: ${target}: ${failureSummary}`));
        };
        for (const view of everyView) {
          await goTo(page, view);
          await settled(page);
          assert.deepEqual(await complaints(), [], view);
          assert.equal(await page.locator("h1").count(), 1, view);
          const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
          assert.ok(over <= 0, `${view} is ${over} pixels too wide`);
        }
        await page.keyboard.press("?");
        await page.getByRole("dialog").waitFor();
        assert.deepEqual(await complaints(), [], "the help");
        await page.keyboard.press("Escape");
        await page.locator(".menu summary").click();
        assert.deepEqual(await complaints(), [], "the menu");
        await page.getByRole("button", { name: "Log out" }).click();
        await page.getByRole("heading", { name: "Log in" }).waitFor();
        assert.deepEqual(await complaints(), [], "the login");
      }, { colorScheme, viewport: { width, height: 800 }, expected: /401|ERR_/ }));
  }

  test("has times of this place or of UTC, as chosen", () =>
    withPage(daemon.page(), async (page) => {
      await live(page);
      await goTo(page, "#/jobs/1");
      const submitted = page.locator(".facts-list div", { hasText: "Submitted" }).locator("time");
      const here = await submitted.textContent();
      await page.locator(".menu summary").click();
      await page.getByRole("button", { name: "UTC" }).click();
      await until(async () => (await submitted.textContent()) !== here);
    }, { timezoneId: "Asia/Tokyo" }));

  test("comes with a policy that runs the daemon's own scripts only", async () => {
    const { headers } = await fetch(daemon.url);
    const policy = headers.get("content-security-policy");
    for (const rule of ["default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"]) assert.ok(policy.includes(rule), policy);
    assert.equal(/unsafe|\*/.test(policy), false, policy);
  });

  test("is light or dark as chosen, and remembers it", () =>
    withPage(daemon.page(), async (page) => {
      await live(page);
      const colour = () => page.evaluate(() => getComputedStyle(document.documentElement).getPropertyValue("--page").trim());
      const light = await colour();
      await page.locator(".menu summary").click();
      await page.getByRole("button", { name: "Dark" }).click();
      const dark = await colour();
      assert.notEqual(dark, light);
      await page.reload();
      await live(page);
      assert.equal(await colour(), dark);
    }, { colorScheme: "light" }));
});
