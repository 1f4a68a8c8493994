// Opens the daemon's page in Chromium and uses it as a person would. The daemon and its jobs are real.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { chromium } from "playwright-core";
import { Daemon, chromiumFlags, hasProgram, mlp, until } from "./daemon.mjs";

const daemon = new Daemon(["--cluster", "2x4", "--measuring", "1"]);
let browser;

before(async () => {
  assert.ok(hasProgram(), "build the program and its examples first: ./dev build");
  await daemon.start();
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

const live = (page) => page.waitForSelector('[data-status="live"]');

async function goTo(page, address) {
  await page.evaluate((hash) => (location.hash = hash), address);
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
      const job = daemon.train("spruce", 30, "--gpus", "1:2");
      const row = page.locator("tbody tr", { hasText: "spruce" });
      await row.waitFor();
      await row.getByText("completed").waitFor();
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
      await page.getByRole("button", { name: "What would happen?" }).click();
      await page.locator(".verdict").waitFor();
      assert.equal(daemon.json("ls").jobs.length, 0, "a dry run stores nothing");
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

describe("what if", () => {
  test("the past is simulated under the policy that ran, with what is taken as truth", () =>
    withPage(daemon.page(), async (page) => {
      await live(page);
      daemon.run("wait", String(daemon.train("ash", 30, "--gpus", "1:2")));
      await goTo(page, "#/whatif");
      await page.getByLabel("Policies").fill("as-run, srtf");
      await page.getByRole("button", { name: "Run" }).click();
      await page.getByRole("heading", { name: "What is taken as truth" }).waitFor();
      const rows = page.getByRole("region", { name: "Summary" }).locator("tbody tr");
      assert.equal(await rows.count(), 3, "what really happened, and two policies");
      assert.match(await rows.nth(1).textContent(), /as-run/);
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
        await page.waitForTimeout(150);
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
        await page.waitForTimeout(400);
        assert.equal((await page.locator("body").textContent()).includes("secretname"), false, view);
      }
      await goTo(page, "#/nodes");
      await page.locator(".slot.is-other").first().waitFor();
      assert.equal(await page.locator(".node-grid .slot.is-other").count(), 2);
      assert.equal(await page.getByRole("button", { name: "Drain…" }).count(), 0);
      await goTo(page, `#/jobs/${job}`);
      await page.getByText(`there is no job ${job}`).waitFor();
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
  for (const width of [1440, 400]) {
    test(`nothing is wider than a screen of ${width} pixels`, () =>
      withPage(daemon.page(), async (page) => {
        await live(page);
        for (const view of ["#/", "#/jobs?show=all", "#/promises?past=1", "#/nodes", "#/decisions", "#/use", "#/whatif", "#/policy", "#/submit", "#/jobs/1", "#/jobs/1?tab=log"]) {
          await goTo(page, view);
          await page.waitForTimeout(200);
          const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
          assert.ok(over <= 0, `${view} is ${over} pixels too wide`);
        }
      }, { viewport: { width, height: 800 } }));
  }

  test("everything that can be used has a name, and every view has a heading", () =>
    withPage(daemon.page(), async (page, context) => {
      await live(page);
      const session = await context.newCDPSession(page);
      for (const view of ["#/?table=1", "#/jobs?show=all", "#/promises?past=1", "#/nodes", "#/decisions", "#/use", "#/whatif", "#/policy", "#/submit", "#/submit?mode=file", "#/jobs/1", "#/jobs/1?tab=log"]) {
        await goTo(page, view);
        await page.waitForTimeout(200);
        const { nodes } = await session.send("Accessibility.getFullAXTree");
        const used = nodes.filter(({ ignored, role }) => !ignored && /^(button|link|textbox|searchbox|combobox|checkbox|spinbutton|image|application|progressbar|dialog)$/.test(role?.value));
        const nameless = used.filter(({ name }) => !name?.value?.trim()).map(({ role }) => role.value);
        assert.deepEqual(nameless, [], view);
        assert.equal(await page.locator("h1").count(), 1, view);
      }
    }));

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
