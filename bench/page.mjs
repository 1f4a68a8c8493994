// What the daemon's page costs a browser: 10,000 jobs in history, 500 live ones, 20 changes a second.
//
//   node bench/page.mjs [--minutes 10] [--history 10000] [--live 500] [--view '#/jobs']
//
// The daemon, its jobs and their changes are real: jobs that wait are held and released. Prints the CPU time of the
// page's main thread for each delivery of changes (p50, p95), and its heap after garbage collection after one minute
// and at the end.
import { createRequire } from "node:module";
import { chromiumFlags, Daemon, until } from "../web/test/daemon.mjs";

const { chromium } = createRequire(new URL("../web/package.json", import.meta.url))("playwright-core");

function option(name, otherwise) {
  const at = process.argv.indexOf(`--${name}`);
  return at < 0 ? otherwise : process.argv[at + 1];
}
const minutes = Number(option("minutes", 10));
const history = Number(option("history", 10_000));
const live = Number(option("live", 500));
const views = option("view", "#/jobs,#/").split(",");
const changesPerSecond = 20;
/** The daemon delivers changes at most four times a second. */
const delivery = 0.25;

const daemon = new Daemon(["--cluster", "8x8"]);
const pause = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

async function call(method, path, body) {
  const response = await fetch(daemon.url + path, {
    method,
    headers: { Authorization: `Bearer ${daemon.adminToken()}`, ...(body ? { "Content-Type": "application/json" } : {}) },
    body: body && JSON.stringify(body),
  });
  const answer = await response.json();
  if (!response.ok) throw new Error(`${method} ${path}: ${answer.error}`);
  return answer;
}

async function submit(count, name) {
  let next = 0;
  const ids = [];
  const worker = async () => {
    // They want more GPUs than there are nodes up for, so they wait and cost nothing.
    while (next < count) ids.push((await call("POST", "/v1/jobs", { command: ["sleep", "3600"], name: `${name}-${next++}`, gpus: 64 })).id);
  };
  await Promise.all(Array.from({ length: 16 }, worker));
  return ids;
}

function percentile(values, share) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
}

/** CPU milliseconds of the main thread in each delivery, from a trace of so many seconds. */
async function cpuOf(browser, page, seconds) {
  await browser.startTracing(page, { categories: ["disabled-by-default-devtools.timeline", "devtools.timeline", "toplevel"] });
  await pause(seconds);
  const { traceEvents } = JSON.parse((await browser.stopTracing()).toString());
  const mains = new Set(traceEvents.filter((event) => event.name === "thread_name" && event.args?.name === "CrRendererMain").map((event) => `${event.pid} ${event.tid}`));
  const byThread = new Map();
  for (const event of traceEvents) {
    const key = `${event.pid} ${event.tid}`;
    if (!mains.has(key) || event.ph !== "X" || !/RunTask$/.test(event.name) || event.tdur === undefined) continue;
    if (!byThread.has(key)) byThread.set(key, []);
    byThread.get(key).push(event);
  }
  const busiest = [...byThread.values()].sort((a, b) => b.reduce((sum, e) => sum + e.tdur, 0) - a.reduce((sum, e) => sum + e.tdur, 0))[0] ?? [];
  const buckets = new Map();
  for (const { ts, tdur } of busiest) {
    const bucket = Math.floor(ts / 1e6 / delivery);
    buckets.set(bucket, (buckets.get(bucket) ?? 0) + tdur / 1000);
  }
  return [...buckets.values()];
}

async function heapOf(session) {
  await session.send("HeapProfiler.collectGarbage");
  return (await session.send("Runtime.getHeapUsage")).usedSize;
}

await daemon.start();
for (let node = 0; node < 8; node++) daemon.run("drain", String(node));
const browser = await chromium.launch({ executablePath: process.env.RUBATO_CHROMIUM ?? "/usr/bin/chromium", headless: true, args: chromiumFlags });
try {
  await submit(history, "past");
  await call("POST", "/v1/jobs/cancel", { name: "past-*" });
  const ids = await submit(live, "live");
  await until(async () => (await call("GET", "/v1/jobs?limit=1000&state=PENDING")).jobs.length === live);
  let stop = false;
  const changing = (async () => {
    for (let i = 0; !stop; i++) {
      const job = ids[(i * 7) % ids.length];
      await call("POST", `/v1/jobs/${job}/${Math.floor((i * 7) / ids.length) % 2 === 0 ? "hold" : "release"}`).catch(() => {});
      await pause(1 / changesPerSecond);
    }
  })();
  const page = await (await browser.newContext({ viewport: { width: 1440, height: 900 } })).newPage();
  await page.goto(daemon.page());
  await page.waitForSelector('[data-status="live"]');
  const session = await page.context().newCDPSession(page);
  for (const view of views) {
    await page.evaluate((hash) => (location.hash = hash), view);
    await pause(5);
    const cpu = await cpuOf(browser, page, 20);
    console.log(`${view}: CPU of the main thread in a delivery: p50 ${percentile(cpu, 0.5).toFixed(1)} ms, p95 ${percentile(cpu, 0.95).toFixed(1)} ms, ${cpu.length} deliveries`);
  }
  await pause(60);
  const first = await heapOf(session);
  await pause(Math.max(0, minutes - 1) * 60);
  const last = await heapOf(session);
  console.log(`heap after garbage collection: ${(first / 1e6).toFixed(1)} MB after one minute, ${(last / 1e6).toFixed(1)} MB after ${minutes}, ratio ${(last / first).toFixed(3)}`);
  stop = true;
  await changing;
} finally {
  await browser.close();
  await daemon.end();
}
