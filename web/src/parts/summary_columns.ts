// The columns of the summary table: what they show and which values are best.
import type { MaybeNumber, Summary } from "./data";
import { formatCount, formatDuration, formatExactSeconds, formatNumber, formatPercent, missing } from "./format";

export interface Column {
  key: string;
  group: string;
  label: string;
  help: string;
  better: "low" | "high";
  value(summary: Summary): MaybeNumber;
  text(value: number, summary: Summary): string;
  /** The precise figure behind the text. */
  exact(value: number, summary: Summary): string;
  /** If the value is zero in every run, the column is hidden. */
  emptyWhenZero?: boolean;
}

type Describe = Pick<Column, "better" | "text" | "exact">;

const duration: Describe = { better: "low", text: (value) => formatDuration(value), exact: formatExactSeconds };
const share: Describe = { better: "high", text: formatPercent, exact: (value) => `${formatNumber(value * 100)}%` };
const count: Describe = { better: "low", text: formatCount, exact: String };
const plain: Describe = { better: "low", text: formatNumber, exact: String };
const milliseconds: Describe = { better: "low", text: (value) => `${formatNumber(value)} ms`, exact: (value) => `${value} ms` };

function column(key: keyof Summary, group: string, label: string, help: string, describe: Describe): Column {
  return { key, group, label, help, ...describe, value: (summary) => summary[key] };
}

function disruption(key: keyof Summary, label: string, help: string): Column {
  return { ...column(key, "Disruption", label, help, count), emptyWhenZero: true };
}

const deadlines: Column = {
  key: "deadlines",
  group: "Service",
  label: "Deadlines met",
  help: "Share of the jobs with a deadline that finished in time",
  better: "high",
  value: ({ deadlines_met: met, deadlines_total: total }) => (met !== null && total ? met / total : null),
  text: formatPercent,
  exact: (_, { deadlines_met: met, deadlines_total: total, deadlines_feasible: feasible }) =>
    `${formatCount(met)} of ${formatCount(total)} deadlines met` +
    (feasible === null ? "" : `; ${formatCount(feasible)} could be met if each job were alone on the cluster`),
};

const unfinished: Column = {
  key: "unfinished",
  group: "Service",
  label: "Unfinished",
  help: "Jobs that neither finished nor were rejected",
  ...count,
  emptyWhenZero: true,
  value: ({ jobs, completed, rejected }) =>
    jobs === null || completed === null ? null : jobs - completed - (rejected ?? 0),
};

export const summaryColumns: Column[] = [
  column("avg_jct_s", "Completion time", "Average", "Average time from submission to completion", duration),
  column("p50_jct_s", "Completion time", "p50", "Half of the jobs finished within this time", duration),
  column("p90_jct_s", "Completion time", "p90", "90% of the jobs finished within this time", duration),
  column("p99_jct_s", "Completion time", "p99", "99% of the jobs finished within this time", duration),
  column("makespan_s", "Completion time", "Makespan", "From the first submission to the last completion", duration),
  column("avg_queue_s", "Queueing", "Average", "Average time from submission to first start", duration),
  column("p99_queue_s", "Queueing", "p99", "99% of the jobs waited at most this long", duration),
  column("avg_queue_length", "Queueing", "Length", "Average number of waiting jobs", plain),
  column("gpu_busy", "Cluster", "GPU use", "Share of GPU time held by jobs", share),
  column("cluster_efficiency", "Cluster", "Efficiency", "Sum of the jobs' speedups over one GPU, divided by all GPUs", share),
  column("utility", "Cluster", "Utility", "Sum of the speedups over one GPU that the policy estimates, divided by all GPUs", share),
  column("advised_nodes", "Cluster", "Nodes advised", "Average number of nodes that the policy advises", plain),
  deadlines,
  { ...column("rejected", "Service", "Rejected", "Jobs that were refused", count), emptyWhenZero: true },
  unfinished,
  column("ftf_mean", "Fairness", "Mean", "Finish-time fairness: completion time divided by the time alone on a 1/N slice of the cluster; lower is fairer", plain),
  column("ftf_max", "Fairness", "Worst", "Finish-time fairness of the worst-treated job", plain),
  disruption("preemptions", "Preempted", "How often a running job lost all its GPUs"),
  disruption("resizes", "Resized", "How often a running job got more or fewer GPUs"),
  disruption("migrations", "Migrated", "How often a running job was moved to other GPUs"),
  column("decide_ms_p50", "Deciding", "p50", "Median time of one decision", milliseconds),
  column("decide_ms_p99", "Deciding", "p99", "99th percentile of the time of one decision", milliseconds),
];

export function isEmptyColumn({ value, emptyWhenZero }: Column, summaries: Summary[]): boolean {
  return summaries.every((summary) => {
    const found = value(summary);
    return found === null || (emptyWhenZero === true && found === 0);
  });
}

export function cellText(column: Column, summary: Summary): string {
  const value = column.value(summary);
  return value === null ? missing : column.text(value, summary);
}

/** The best value of a column, or null if all values are equal. */
export function bestValue({ value, better }: Column, summaries: Summary[]): MaybeNumber {
  const values = summaries.map(value).filter((found): found is number => found !== null);
  const best = better === "low" ? Math.min(...values) : Math.max(...values);
  return values.length > 1 && values.some((found) => found !== best) ? best : null;
}

export type Order = "given" | "best first" | "worst first";

/** Run indices in table order; runs without a value come last. */
export function sortRuns({ value, better }: Column, order: Order, summaries: Summary[]): number[] {
  const runs = summaries.map((_, run) => run);
  if (order === "given") return runs;
  const ascending = (better === "low") === (order === "best first");
  const rank = (run: number) => {
    const found = value(summaries[run]!);
    if (found === null) return Infinity;
    return ascending ? found : -found;
  };
  return runs.sort((a, b) => compare(rank(a), rank(b)) || a - b);
}

function compare(a: number, b: number): number {
  return a === b ? 0 : a < b ? -1 : 1;
}
