// What the daemon's page costs a browser: 10,000 jobs in history, 500 live ones, 20 changes a second.
//
//   node bench/page.mjs [--minutes 10] [--history 10000] [--history-minutes 5] [--live 500] [--view '#/jobs']
//
// The daemon, its jobs and their changes are real. The jobs in history have each held a GPU for half a second. What the
// machine did not run of them in --history-minutes is cancelled before it starts. Of the live jobs, 38 hold GPUs, and the
// others wait. In each second 5 jobs start, 5 end, one is resized, and 9 that wait are held or released. Their programs
// sleep. Prints the CPU time of the page's main thread for each delivery of changes (p50, p95), and its heap after garbage
// collection after one minute and at the end.
import { createRequire } from "node:module";
import { chromiumFlags, Daemon, until } from "../web/test/daemon.mjs";

const { chromium } = createRequire(new URL("../web/package.json", import.meta.url))("playwright-core");

function option(name, otherwise) {
  const at = process.argv.indexOf(`--${name}`);
  return at < 0 ? otherwise : process.argv[at + 1];
}
const minutes = Number(option("minutes", 10));
const history = Number(option("history", 10_000));
const historyMinutes = Number(option("history-minutes", 5));
const live = Number(option("live", 500));
const views = option("view", "#/jobs,#/").split(",");
/** The daemon delivers changes at most four times a second. */
const delivery = 0.25;

/** The jobs run on 8 nodes of 8 GPUs. The ninth is drained: a job that needs all 72 GPUs waits. */
const drained = 8;
const allGpus = 72;
const daemon = new Daemon(["--cluster", "9x8", "--policy", "fifo-backfill"]);
const pause = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));
const now = () => performance.now() / 1000;

async function answer(method, path, body) {
  const response = await fetch(daemon.url + path, {
    method,
    headers: { Authorization: `Bearer ${daemon.adminToken()}`, ...(body ? { "Content-Type": "application/json" } : {}) },
    body: body && JSON.stringify(body),
  });
  if (!response.ok) throw new Error(`${method} ${path}: ${await response.text()}`);
  return response;
}

const call = async (method, path, body) => (await answer(method, path, body)).json();

async function submit(name, gpus, seconds) {
  return (await call("POST", "/v1/jobs", { command: ["sleep", String(seconds)], name, gpus, elastic: false })).id;
}

async function submitMany(count, name, gpus, seconds) {
  let next = 0;
  const ids = [];
  const worker = async () => {
    while (next < count) ids.push(await submit(`${name}-${next++}`, gpus, seconds));
  };
  await Promise.all(Array.from({ length: 16 }, worker));
  return ids;
}

/** How many jobs are in these states. */
async function countOf(...states) {
  const metrics = await (await answer("GET", "/metrics")).text();
  return states.reduce((sum, state) => sum + Number(new RegExp(`^rubato_jobs\\{state="${state}"\\} (\\S+)$`, "m").exec(metrics)?.[1] ?? 0), 0);
}

const liveStates = ["PENDING", "PROFILING", "HELD", "RUNNING", "RESIZING", "STOPPING"];

async function makeHistory() {
  const began = now();
  const batch = 200;
  let ran = 0;
  while (ran < history && now() < began + 60 * historyMinutes) {
    // The next ones are there before the last ones have ended, so the GPUs do not wait.
    await until(async () => (await countOf(...liveStates)) < batch, 600_000);
    const count = Math.min(batch, history - ran);
    await submitMany(count, `past-${ran}`, 1, 0.5);
    ran += count;
  }
  await until(async () => (await countOf(...liveStates)) === 0, 600_000);
  console.log(`history: ${await countOf("COMPLETED")} jobs have held a GPU and completed, in ${(now() - began).toFixed(0)} s`);
  if (ran === history) return;
  await submitMany(history - ran, "never", allGpus, 3600);
  await call("POST", "/v1/jobs/cancel", { name: "never-*" });
  console.log(`history: ${history - ran} jobs were cancelled before they started`);
}

/** Jobs that stay and change between one and two GPUs. */
const resized = 8;
/** How long a job that starts in the measurement holds its GPU. */
const holdSeconds = 6;
const startsPerSecond = 5;
/** 5 submissions, one resize and 9 holds or releases. With 5 ends of jobs, these are 20 changes. */
const actionsPerSecond = 15;
/** A prime number, so that all jobs have their turn. */
const stride = 101;

/** Changes the cluster until told to stop. */
class Changes {
  stopped = false;
  done = 0;
  turn = 0;
  refused = 0;

  constructor(waiting, growing) {
    this.waiting = waiting;
    this.growing = growing;
    this.finished = this.run();
  }

  async run() {
    const began = now();
    for (; !this.stopped; this.done++) {
      await pause(Math.max(0, began + this.done / actionsPerSecond - now()));
      await this.act(this.done).catch(() => this.refused++);
    }
    const seconds = now() - began;
    console.log(`changes: ${(this.done / seconds).toFixed(1)} requests a second, ${this.refused} of ${this.done} refused; ${actionsPerSecond} were wanted`);
  }

  act(i) {
    if (i % (actionsPerSecond / startsPerSecond) === 0) return submit(`short-${i}`, 1, holdSeconds);
    if (i % actionsPerSecond === 1) return this.resize(Math.floor(i / actionsPerSecond));
    return this.holdOrRelease(this.turn++);
  }

  resize(round) {
    const gpus = Math.floor(round / this.growing.length) % 2 === 0 ? 2 : 1;
    return call("POST", `/v1/jobs/${this.growing[round % this.growing.length]}/resize`, { gpus });
  }

  /** Of all that wait, everywhere in the table: each is held once, then each is released once. */
  holdOrRelease(turn) {
    const job = this.waiting[(turn * stride) % this.waiting.length];
    return call("POST", `/v1/jobs/${job}/${Math.floor(turn / this.waiting.length) % 2 === 0 ? "hold" : "release"}`);
  }

  async stop() {
    this.stopped = true;
    await this.finished;
  }
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
daemon.run("drain", String(drained));
const browser = await chromium.launch({ executablePath: process.env.RUBATO_CHROMIUM ?? "/usr/bin/chromium", headless: true, args: chromiumFlags });
try {
  await makeHistory();
  const growing = await submitMany(resized, "growing", 1, 86_400);
  const waiting = await submitMany(live - resized - startsPerSecond * holdSeconds, "live", allGpus, 3600);
  await until(async () => (await countOf("RUNNING")) === resized && (await countOf("PENDING")) === waiting.length);
  const changes = new Changes(waiting, growing);
  const page = await (await browser.newContext({ viewport: { width: 1440, height: 900 } })).newPage();
  await page.goto(daemon.page());
  await page.waitForSelector('[data-status="live"]');
  const session = await page.context().newCDPSession(page);
  for (const view of views) {
    await page.evaluate((hash) => (location.hash = hash), view);
    await pause(5);
    const cpu = await cpuOf(browser, page, 20);
    console.log(`${view}: CPU of the main thread in a delivery: p50 ${percentile(cpu, 0.5).toFixed(1)} ms, p95 ${percentile(cpu, 0.95).toFixed(1)} ms, ${cpu.length} deliveries`);
    const drawn = await page.locator(".timeline-plot").getAttribute("aria-label", { timeout: 1000 }).catch(() => null);
    if (drawn) console.log(`${view}: ${drawn.split(". ")[0]}; ${await countOf("RUNNING", "RESIZING")} jobs run`);
  }
  await pause(60);
  const first = await heapOf(session);
  await pause(Math.max(0, minutes - 1) * 60);
  const last = await heapOf(session);
  console.log(`heap after garbage collection: ${(first / 1e6).toFixed(1)} MB after one minute, ${(last / 1e6).toFixed(1)} MB after ${minutes}, ratio ${(last / first).toFixed(3)}`);
  await changes.stop();
} finally {
  await browser.close();
  await daemon.end();
}
