// What a report holds, and how it is read from text that may be incomplete.

export type MaybeNumber = number | null;

const summaryKeys = [
  "jobs", "completed", "rejected", "avg_jct_s", "p50_jct_s", "p90_jct_s", "p99_jct_s", "makespan_s",
  "avg_queue_s", "p99_queue_s", "avg_queue_length", "gpu_busy", "cluster_efficiency",
  "utility", "advised_nodes",
  "deadlines_total", "deadlines_met", "deadlines_feasible", "ftf_mean", "ftf_max", "preemptions", "resizes", "migrations",
  "events", "decisions", "decide_ms_p50", "decide_ms_p99", "wall_s",
] as const;

export type Summary = Record<(typeof summaryKeys)[number], MaybeNumber>;

export interface NodeGroup {
  nodes: number;
  gpusPerNode: number;
  type: string;
}

export interface Jobs {
  count: number;
  name: string[];
  user: string[];
  model: string[];
  submit: number[];
  gpus: number[];
  /** Point in time, on the same clock as submit. */
  deadline: MaybeNumber[];
  workGpuSeconds: number[];
}

export interface JobOutcomes {
  start: MaybeNumber[];
  end: MaybeNumber[];
  attainedGpuSeconds: number[];
  preemptions: number[];
  /** Reason by job index. */
  rejected: Map<number, string>;
}

export interface Series {
  time: number[];
  queue: number[];
  gpusBusy: number[];
  efficiency: number[];
  /** Of a GPU, in job-seconds saved a second; empty if the policy has no prices. */
  price: number[];
}

/** Rectangles as parallel columns: one job holding neighbouring GPUs for a while. */
export interface Segments {
  job: number[];
  lane: number[];
  width: number[];
  start: number[];
  end: number[];
  total: number;
  shown: number;
}

export interface Run {
  policy: string;
  paper: string;
  elastic: boolean;
  summary: Summary;
  jobs: JobOutcomes;
  series: Series;
  timeline: Segments;
}

export interface Report {
  tool: string;
  title: string;
  trace: { name: string; jobs: number };
  cluster: { spec: string; gpus: number; groups: NodeGroup[] };
  settings: [string, string][];
  notes: string[];
  jobs: Jobs;
  runs: Run[];
}

export type ReadResult = { report: Report } | { problem: string };

const supportedVersion = 1;

export function readReport(text: string): ReadResult {
  let raw: unknown;
  try {
    raw = JSON.parse(text);
  } catch {
    return { problem: "The data in this report cannot be read: the file may be cut off or edited." };
  }
  const version = asRecord(raw).version;
  if (version !== supportedVersion) {
    return { problem: `This page reads report version ${supportedVersion}, but the data says ${String(version)}.` };
  }
  return { report: toReport(asRecord(raw)) };
}

type Raw = Record<string, unknown>;

function asRecord(value: unknown): Raw {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Raw) : {};
}

function asArray(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

function asText(value: unknown): string {
  return value === null || value === undefined ? "" : String(value);
}

function asMaybeNumber(value: unknown): MaybeNumber {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

function asNumber(value: unknown): number {
  return asMaybeNumber(value) ?? 0;
}

/** A column padded or cut to the table's length, so that rows can be read without bounds checks. */
function column<T>(value: unknown, length: number, convert: (item: unknown) => T): T[] {
  const items = asArray(value);
  return Array.from({ length }, (_, i) => convert(items[i]));
}

function toReport(raw: Raw): Report {
  const trace = asRecord(raw.trace);
  const cluster = asRecord(raw.cluster);
  const jobs = toJobs(asRecord(raw.jobs));
  return {
    tool: asText(raw.tool),
    title: asText(raw.title),
    trace: { name: asText(trace.name), jobs: asMaybeNumber(trace.jobs) ?? jobs.count },
    cluster: {
      spec: asText(cluster.spec),
      gpus: asNumber(cluster.gpus),
      groups: asArray(cluster.groups).map((group) => toGroup(asRecord(group))),
    },
    settings: asArray(raw.settings).map((pair) => [asText(asArray(pair)[0]), asText(asArray(pair)[1])]),
    notes: asArray(raw.notes).map(asText),
    jobs,
    runs: asArray(raw.runs).map((run) => toRun(asRecord(run), jobs.count)),
  };
}

function toGroup(raw: Raw): NodeGroup {
  return { nodes: asNumber(raw.nodes), gpusPerNode: asNumber(raw.gpus_per_node), type: asText(raw.type) };
}

function toJobs(raw: Raw): Jobs {
  const count = asArray(raw.name).length;
  return {
    count,
    name: column(raw.name, count, asText),
    user: column(raw.user, count, asText),
    model: column(raw.model, count, asText),
    submit: column(raw.submit_s, count, asNumber),
    gpus: column(raw.gpus, count, asNumber),
    deadline: column(raw.deadline_s, count, asMaybeNumber),
    workGpuSeconds: column(raw.work_gpu_s, count, asNumber),
  };
}

function toRun(raw: Raw, jobCount: number): Run {
  return {
    policy: asText(raw.policy),
    paper: asText(raw.paper),
    elastic: raw.elastic === true,
    summary: toSummary(asRecord(raw.summary)),
    jobs: toOutcomes(asRecord(raw.jobs), jobCount),
    series: toSeries(asRecord(raw.series)),
    timeline: toSegments(asRecord(raw.timeline), jobCount),
  };
}

function toSummary(raw: Raw): Summary {
  return Object.fromEntries(summaryKeys.map((key) => [key, asMaybeNumber(raw[key])])) as Summary;
}

function toOutcomes(raw: Raw, count: number): JobOutcomes {
  const reasons = Object.entries(asRecord(raw.rejected));
  return {
    start: column(raw.start_s, count, asMaybeNumber),
    end: column(raw.end_s, count, asMaybeNumber),
    attainedGpuSeconds: column(raw.attained_gpu_s, count, asNumber),
    preemptions: column(raw.preemptions, count, asNumber),
    rejected: new Map(reasons.map(([job, why]) => [Number(job), asText(why)])),
  };
}

function toSeries(raw: Raw): Series {
  const count = asArray(raw.t_s).length;
  return {
    time: column(raw.t_s, count, asNumber),
    queue: column(raw.queue, count, asNumber),
    gpusBusy: column(raw.gpus_busy, count, asNumber),
    efficiency: column(raw.efficiency, count, asNumber),
    price: raw.price === undefined ? [] : column(raw.price, count, asNumber),
  };
}

function toSegments(raw: Raw, jobCount: number): Segments {
  const jobs = asArray(raw.job).map(asNumber);
  const rows = jobs.map((_, row) => row).filter((row) => jobs[row]! >= 0 && jobs[row]! < jobCount);
  const pick = (name: string) => {
    const items = asArray(raw[name]);
    return rows.map((row) => asNumber(items[row]));
  };
  return {
    job: pick("job"),
    lane: pick("lane"),
    width: pick("width"),
    start: pick("start_s"),
    end: pick("end_s"),
    total: asMaybeNumber(raw.total) ?? rows.length,
    shown: asMaybeNumber(raw.shown) ?? rows.length,
  };
}
