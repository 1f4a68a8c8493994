// Opens the daemon's page in Chromium and uses it as a person would. The daemon and its jobs are real.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
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
    withPage(daemon.page(), async (page) => {
      await live(page);
      await goTo(page, "#/submit");
      const submit = page.getByRole("button", { name: "Submit", exact: true });
      assert.ok(await submit.isDisabled(), "nothing is submitted before the verdict");
      await page.getByLabel("Command").fill(`${mlp} --steps 100000`);
      await page.getByLabel("Name").fill("oak");
      await page.getByLabel("Most GPUs").fill("4");
      assert.match(await page.locator("code.command").textContent(), /^rubato submit --name oak .* -- \S+mlp --steps 100000$/);
      const before = daemon.json("ls").jobs.length;
      await page.getByRole("button", { name: "What would happen?" }).click();
      await page.locator(".verdict").waitFor();
      assert.equal(daemon.json("ls").jobs.length, before, "a dry run stores nothing");
      await submit.click();
      await page.getByRole("heading", { name: "oak" }).waitFor();
      const id = Number(/jobs\/(\d+)/.exec(page.url())[1]);
      // It is alone, so it grows to its limit.
      await page.locator(".job-line", { hasText: "4 GPUs" }).waitFor();

      await page.getByRole("button", { name: "Resize…" }).click();
      const dialog = page.getByRole("dialog");
      await dialog.getByLabel("Most GPUs").fill("2");
      await dialog.getByRole("button", { name: "Resize", exact: true }).click();
      await page.locator(".job-line", { hasText: "2 GPUs" }).waitFor();
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

describe("a log of 1 GB", () => {
  const script = "yes 'epoch 3 step 000000012345 loss 0.123456 rate 51' | head -c 1000000000; echo; echo the-very-end; sleep 600";

  test("is followed and linked to without hurting the browser", () =>
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
      }, [job, 500_000_000]);
      await goTo(page, "#/jobs");
      await goTo(page, `#/jobs/${job}?tab=log&at=${middle}`);
      await log.locator(`.log-line.is-marked[data-at="${middle}"]`).waitFor();
      assert.ok((await log.locator(".log-line").count()) < 200, "only what is in view is in the document");
      const session = await context.newCDPSession(page);
      await session.send("HeapProfiler.collectGarbage");
      const { usedSize } = await session.send("Runtime.getHeapUsage");
      assert.ok(usedSize < 50e6, `the heap has ${usedSize} bytes`);
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
      const painted = (wanted) =>
        page.locator(".timeline canvas").first().evaluate((canvas, [red, green, blue]) => {
          const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d");
          copy.drawImage(canvas, 0, 0);
          const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
          let count = 0;
          for (let i = 0; i < data.length; i += 4) if (data[i] === red && data[i + 1] === green && data[i + 2] === blue) count++;
          return count;
        }, wanted);
      await until(async () => (await painted(colour)) > 100);
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

      await goTo(page, "#/decisions");
      await page.locator(".decision", { hasText: "larch" }).getByText("starts").first().waitFor();
      await goTo(page, "#/use");
      await page.locator(".use-bar").waitFor();
      assert.match(await page.locator(".grid-legend").textContent(), /of 8 GPUs/);
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

describe("what if", () => {
  test("the past is simulated under the policy that ran, with what is taken as truth", () =>
    withPage(daemon.page(), async (page) => {
      await live(page);
      daemon.run("wait", String(daemon.train("ash", 30, "--gpus", "1:2")));
      await goTo(page, "#/whatif");
      await page.getByLabel("Policies").fill("as-run, srtf");
      await page.locator("main select").selectOption("1h");
      assert.match(page.url(), /policies=as-run%2C\+srtf&span=1h/);
      await page.getByRole("button", { name: "Run" }).click();
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
      assert.equal(await page.locator(".node-grid .slot.is-other").count(), 2);
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
