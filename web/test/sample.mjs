// Makes realistic report data from a seed: a small round-based scheduler run under three policies.

/** A reproducible source of numbers in [0, 1). */
function seededRandom(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const models = ["resnet50", "bert-base", "vgg16", "gpt2", "deepspeech2", "inception3", "yolo3", ""];
const sizes = [1, 1, 1, 1, 2, 2, 4, 4, 8, 8, 16, 32];

function pick(list, random) {
  return list[Math.floor(random() * list.length)];
}

function normal(random) {
  return Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
}

function makeJobs(count, gpus, load, random) {
  const jobs = [];
  let now = 0;
  for (let i = 0; i < count; i++) {
    const requested = Math.min(gpus, pick(sizes, random));
    const alone = Math.round(Math.exp(7.6 + 1.3 * normal(random)));
    const hasDeadline = random() < 0.5;
    jobs.push({
      name: `job-${String(i).padStart(5, "0")}`,
      user: `user-${String(Math.floor(random() ** 2 * 14) + 1).padStart(2, "0")}`,
      model: pick(models, random),
      submit: now,
      gpus: requested,
      work: requested * alone,
      deadline: hasDeadline ? Math.round(now + alone * (1.2 + 4 * random())) : null,
    });
    now += Math.round((-Math.log(1 - random()) * requested * alone) / (gpus * load));
  }
  return jobs;
}

/** Policies map the active jobs to GPUs: an array of [job, gpus]. */
const policies = [
  {
    policy: "fifo",
    paper: "",
    elastic: false,
    admits: () => null,
    allocate(active, gpus) {
      const chosen = active.filter((job) => job.held > 0).map((job) => [job, job.gpus]);
      let free = gpus - chosen.reduce((sum, [, held]) => sum + held, 0);
      for (const job of active) {
        if (job.held > 0) continue;
        if (job.gpus > free) break;
        chosen.push([job, job.gpus]);
        free -= job.gpus;
      }
      return chosen;
    },
  },
  {
    policy: "tiresias-las:queues=2",
    paper: "Gu et al., NSDI'19",
    elastic: false,
    admits: () => null,
    allocate(active, gpus) {
      const level = (job) => Math.floor(Math.log2(1 + job.attained / 600));
      const ranked = [...active].sort((a, b) => level(a) - level(b) || a.index - b.index);
      const chosen = [];
      let free = gpus;
      for (const job of ranked) {
        if (job.gpus > free) continue;
        chosen.push([job, job.gpus]);
        free -= job.gpus;
      }
      return chosen;
    },
  },
  {
    policy: "elasticflow",
    paper: "Gu et al., ASPLOS'23",
    elastic: true,
    admits(job, active, gpus) {
      const backlog = active.reduce((sum, other) => sum + other.left, 0) / gpus;
      const late = job.deadline !== null && job.submit + job.work / job.gpus + backlog * 0.15 > job.deadline;
      return late ? "deadline cannot be met even with every GPU that admitted jobs leave free" : null;
    },
    allocate(active, gpus) {
      const chosen = active.slice(0, gpus).map((job) => [job, 1]);
      let free = gpus - chosen.length;
      for (let grew = true; grew && free > 0; ) {
        grew = false;
        for (const entry of chosen) {
          const more = entry[1];
          if (entry[1] * 2 > entry[0].gpus * 2 || more > free) continue;
          entry[1] += more;
          free -= more;
          grew = true;
        }
      }
      return chosen;
    },
  },
];

function rate(job, held) {
  return job.gpus * (held / job.gpus) ** 0.85;
}

class Lanes {
  constructor(count, perNode) {
    this.free = new Uint8Array(count).fill(1);
    this.perNode = perNode;
  }

  release(ranges) {
    for (const { lane, width } of ranges) this.free.fill(1, lane, lane + width);
  }

  /** First-fit ranges that do not cross nodes. */
  take(wanted) {
    const ranges = [];
    for (let lane = 0; lane < this.free.length && wanted > 0; lane++) {
      if (!this.free[lane]) continue;
      const last = ranges[ranges.length - 1];
      if (last && last.lane + last.width === lane && lane % this.perNode !== 0) last.width++;
      else ranges.push({ lane, width: 1 });
      this.free[lane] = 0;
      wanted--;
    }
    return ranges;
  }
}

function simulate(policy, jobs, cluster, round) {
  const states = jobs.map((job, index) => ({ ...job, index, left: job.work, attained: 0, held: 0, start: null, end: null, ranges: [], since: 0, preemptions: 0 }));
  const lanes = new Lanes(cluster.gpus, cluster.perNode);
  const timeline = { job: [], lane: [], width: [], start_s: [], end_s: [] };
  const series = { t_s: [], queue: [], running: [], gpus_busy: [], efficiency: [] };
  const rejected = {};
  const counts = { preemptions: 0, resizes: 0, migrations: 0 };
  let active = [];
  let next = 0;

  const vacate = (job, now) => {
    for (const { lane, width } of job.ranges) {
      timeline.job.push(job.index);
      timeline.lane.push(lane);
      timeline.width.push(width);
      timeline.start_s.push(job.since);
      timeline.end_s.push(now);
    }
    lanes.release(job.ranges);
    job.ranges = [];
  };

  const change = (job, held, now) => {
    if (job.held > 0 && held === 0) {
      counts.preemptions++;
      job.preemptions++;
    } else if (job.held > 0) counts.resizes++;
    vacate(job, now);
    job.held = held;
    job.since = now;
  };

  for (let now = 0; next < states.length || active.length > 0; now += round) {
    for (; next < states.length && states[next].submit <= now; next++) {
      const why = policy.admits(states[next], active, cluster.gpus);
      if (why === null) active.push(states[next]);
      else rejected[next] = why;
    }
    const wanted = new Map(policy.allocate(active, cluster.gpus));
    const moving = active.filter((job) => (wanted.get(job) ?? 0) !== job.held);
    for (const job of moving) change(job, wanted.get(job) ?? 0, now);
    for (const job of moving) {
      if (job.held === 0) continue;
      job.ranges = lanes.take(job.held);
      job.start ??= now;
    }
    const running = active.filter((job) => job.held > 0);
    series.t_s.push(now);
    series.queue.push(active.length - running.length);
    series.running.push(running.length);
    series.gpus_busy.push(running.reduce((sum, job) => sum + job.held, 0));
    series.efficiency.push(running.reduce((sum, job) => sum + Math.min(job.held, rate(job, job.held)), 0) / cluster.gpus);
    for (const job of running) {
      const seconds = Math.min(round, job.left / rate(job, job.held));
      job.left -= seconds * rate(job, job.held);
      job.attained += seconds * job.held;
      if (job.left > 1e-6) continue;
      job.end = now + seconds;
      vacate(job, job.end);
    }
    active = active.filter((job) => job.end === null);
  }
  return { states, timeline, series, rejected, counts };
}

const average = (list) => (list.length > 0 ? list.reduce((sum, value) => sum + value, 0) / list.length : null);

function quantile(list, share) {
  const sorted = [...list].sort((a, b) => a - b);
  return sorted.length > 0 ? sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] : null;
}

function thinSeries(series, most) {
  const stride = Math.ceil(series.t_s.length / most);
  const thin = (values) => {
    const out = [];
    for (let i = 0; i < values.length; i += stride) out.push(average(values.slice(i, i + stride)));
    return out;
  };
  const { t_s: times, ...values } = series;
  const kept = Object.fromEntries(Object.entries(values).map(([name, list]) => [name, thin(list)]));
  return { t_s: times.filter((_, i) => i % stride === 0), ...kept };
}

function summarise(run, gpus) {
  const done = run.states.filter((job) => job.end !== null);
  const jct = done.map((job) => job.end - job.submit);
  const waits = done.map((job) => job.start - job.submit);
  const fairness = done.map((job) => (job.end - job.submit) / (job.work / job.gpus));
  const makespan = Math.max(0, ...done.map((job) => job.end));
  const deadlines = run.states.filter((job) => job.deadline !== null);
  return {
    jobs: run.states.length,
    completed: done.length,
    rejected: Object.keys(run.rejected).length,
    avg_jct_s: average(jct),
    p50_jct_s: quantile(jct, 0.5),
    p90_jct_s: quantile(jct, 0.9),
    p99_jct_s: quantile(jct, 0.99),
    makespan_s: makespan,
    avg_queue_s: average(waits),
    p99_queue_s: quantile(waits, 0.99),
    avg_queue_length: average(run.series.queue),
    gpu_busy: makespan > 0 ? done.reduce((sum, job) => sum + job.attained, 0) / (makespan * gpus) : null,
    cluster_efficiency: average(run.series.efficiency),
    deadlines_total: deadlines.length,
    deadlines_met: deadlines.filter((job) => job.end !== null && job.end <= job.deadline).length,
    deadlines_feasible: deadlines.length,
    ftf_mean: average(fairness),
    ftf_max: fairness.length > 0 ? Math.max(...fairness) : null,
    ...run.counts,
    events: run.timeline.job.length,
    decisions: run.series.t_s.length,
    decide_ms_p50: 0.012,
    decide_ms_p99: 0.31,
    wall_s: 1.4,
  };
}

function toRun({ policy, paper, elastic, ...rules }, jobs, cluster, round) {
  const run = simulate({ ...rules }, jobs, cluster, round);
  const { states, timeline, rejected } = run;
  const total = timeline.job.length;
  return {
    policy,
    paper,
    elastic,
    summary: summarise(run, cluster.gpus),
    jobs: {
      start_s: states.map((job) => job.start),
      end_s: states.map((job) => job.end),
      attained_gpu_s: states.map((job) => job.attained),
      rejected,
      preemptions: states.map((job) => job.preemptions),
    },
    series: thinSeries(run.series, 1500),
    timeline: { ...timeline, total, shown: total },
  };
}

export function makeReport({ seed = 1, jobs: count = 200, nodes = 8, perNode = 8, round = 60, load = 0.95 } = {}) {
  const random = seededRandom(seed);
  const cluster = { gpus: nodes * perNode, perNode };
  const jobs = makeJobs(count, cluster.gpus, load, random);
  const column = (name) => jobs.map((job) => job[name]);
  return {
    version: 1,
    tool: "rubato 0.1.0",
    title: `sample.csv on ${nodes}x${perNode}`,
    trace: { name: "sample.csv", jobs: count },
    cluster: { spec: `${nodes}x${perNode}:v100`, gpus: cluster.gpus, groups: [{ nodes, gpus_per_node: perNode, type: "v100" }] },
    settings: [
      ["placement", "pack"],
      ["restart cost", "30 s"],
      ["interval", `${round} s`],
      ["seed", String(seed)],
      ["command", `rubato simulate --trace sample.csv --cluster ${nodes}x${perNode}:v100 --policies fifo,tiresias-las,elasticflow --report report.html`],
    ],
    notes: ["3 jobs of the trace ask for more GPUs than a node has."],
    jobs: {
      name: column("name"),
      user: column("user"),
      model: column("model"),
      submit_s: column("submit"),
      gpus: column("gpus"),
      deadline_s: column("deadline"),
      work_gpu_s: column("work"),
    },
    runs: policies.map((policy) => toRun(policy, jobs, cluster, round)),
  };
}

/** The page with the data in place of its marker, as the rubato binary writes it. */
export function fillPage(page, report) {
  const json = typeof report === "string" ? report : JSON.stringify(report);
  return page.replace("@@RUBATO_REPORT_DATA@@", () => json.replaceAll("<", "\\u003c"));
}
