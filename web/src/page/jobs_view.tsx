// All jobs that the reader may see; the queue is the part of them that waits.
import { useEffect, useMemo } from "preact/hooks";
import { Toggle } from "../parts/choice";
import { formatDuration } from "../parts/format";
import type { Job } from "./api";
import { Card, Clock, ExpectedEnd, JobLink, Progress, Slack, State, useTick } from "./bits";
import { connection } from "./connection";
import { jobAddress, route } from "./route";
import { active, ended, store, waiting } from "./store";
import { Table, type Column } from "./table";
import { exact, seconds } from "./time";

type Which = "live" | "queue" | "ended" | "all";

const choices: [Which, string][] = [["live", "Live"], ["queue", "Waiting"], ["ended", "Ended"], ["all", "All"]];

const keep: Record<Which, (job: Job) => boolean> = {
  live: (job) => !ended.has(job.state),
  queue: (job) => waiting.has(job.state),
  ended: (job) => ended.has(job.state),
  all: () => true,
};

/** The text that the reader looks for, in what a row shows. */
export function matches(job: Job, text: string): boolean {
  const wanted = text.trim().toLowerCase();
  if (wanted === "") return true;
  return [String(job.id), job.name, job.user, job.state, job.reason, job.search?.name ?? ""].some((field) => field.toLowerCase().includes(wanted));
}

const idColumn: Column<Job> = { name: "job", title: "Job", width: 190, cell: (job) => <JobLink job={job} />, value: (job) => job.id };
const nameColumn: Column<Job> = { name: "name", title: "Name", cell: () => null, value: (job) => job.name };
const userColumn: Column<Job> = { name: "user", title: "User", width: 90, cell: (job) => <bdi>{job.user}</bdi>, value: (job) => job.user };
const stateColumn: Column<Job> = { name: "state", title: "State", width: 105, cell: (job) => <State state={job.state} />, value: (job) => job.state };
const gpusColumn: Column<Job> = {
  name: "gpus", title: "GPUs", number: true, width: 92, value: (job) => job.gpus,
  cell: (job) => (
    <>
      {job.gpus} <span class="quiet">of {job.limits.min === job.limits.max ? job.limits.max : `${job.limits.min}–${job.limits.max}`}</span>
    </>
  ),
};
const whyColumn: Column<Job> = {
  name: "why", title: "Why", width: 240, value: (job) => job.reason,
  cell: (job) => (
    <span class="why-cell" title={job.reason}>
      <a href={jobAddress(job.id, "why")} aria-label={`why? Job ${job.id}`}>why?</a> <bdi>{job.reason}</bdi>
    </span>
  ),
};
const timeOf = (name: string, title: string, when: (job: Job) => Job["submitted"] | null | undefined): Column<Job> => ({
  name, title, width: 150, cell: (job) => <Clock when={when(job)} />, value: (job) => exact(when(job)) || null,
});

const columnsOf: Record<Which, Column<Job>[]> = {
  live: [
    idColumn, userColumn, stateColumn, gpusColumn,
    { name: "done", title: "Done", width: 130, cell: (job) => <Progress job={job} />, value: (job) => job.progress.done },
    { name: "eta", title: "Expected end", width: 250, cell: (job) => (job.eta ? <ExpectedEnd job={job} /> : "–"), value: (job) => exact(job.eta) || null },
    { name: "slack", title: "Before its deadline", width: 190, cell: (job) => <Slack job={job} />, value: (job) => job.slack_seconds },
    whyColumn,
  ],
  queue: [
    { name: "position", title: "Position", number: true, width: 80, cell: (job) => job.position ?? "–", value: (job) => job.position },
    idColumn, userColumn, stateColumn,
    { name: "wants", title: "Wants", number: true, width: 80, cell: (job) => gpusWanted(job), value: (job) => job.limits.min },
    timeOf("submitted", "Submitted", (job) => job.submitted),
    timeOf("start", "Estimated start", (job) => job.estimated_start),
    whyColumn,
  ],
  ended: [
    idColumn, userColumn, stateColumn,
    timeOf("ended", "Ended", (job) => job.ended),
    { name: "took", title: "Took", number: true, width: 90, cell: (job) => formatDuration(tookOf(job)), value: tookOf },
    { name: "gpu-hours", title: "GPU-hours", number: true, width: 100, cell: (job) => (job.gpu_seconds / 3600).toFixed(2), value: (job) => job.gpu_seconds / 3600 },
    { name: "slack", title: "Before its deadline", width: 190, cell: (job) => <Slack job={job} />, value: (job) => job.slack_seconds },
    { name: "why", title: "How", width: 260, cell: (job) => <bdi>{job.reason}</bdi>, value: (job) => job.reason },
  ],
  all: [
    idColumn, userColumn, stateColumn, gpusColumn,
    timeOf("submitted", "Submitted", (job) => job.submitted),
    timeOf("ended", "Ended", (job) => job.ended),
    { name: "gpu-hours", title: "GPU-hours", number: true, width: 100, cell: (job) => (job.gpu_seconds / 3600).toFixed(2), value: (job) => job.gpu_seconds / 3600 },
    whyColumn,
  ],
};

const sortOf: Record<Which, string> = { live: "job", queue: "position", ended: "-ended", all: "-job" };

function gpusWanted({ limits }: Job): string {
  return limits.min === limits.max ? `${limits.max}` : `${limits.min}–${limits.max}`;
}

function tookOf(job: Job): number | null {
  const from = seconds(job.started);
  const until = seconds(job.ended);
  return from === null || until === null ? null : until - from;
}

const queueEvery = 5;

/** Reads the places in the queue again and again while they are shown. */
export function useQueue(on: boolean): void {
  const tick = useTick(queueEvery);
  useEffect(() => {
    if (on) void store.refreshQueue();
  }, [on, tick]);
}

export function JobsView({ search }: { search: string }) {
  const which = choices.find(([choice]) => choice === route.get("show"))?.[0] ?? "live";
  useQueue(which === "queue");
  const jobs = [...(which === "ended" || which === "all" ? store.jobs : store.live).values()];
  const rows = jobs.filter((job) => keep[which](job) && matches(job, search));
  const others = connection.session?.role === "admin" ? columnsOf[which] : columnsOf[which].filter((column) => column !== userColumn);
  const columns = useMemo(() => others, [which, others.length]);
  // The name stands beside the number already; an export has a column of its own for it.
  const exported = useMemo(() => columns.flatMap((column) => (column === idColumn ? [column, nameColumn] : [column])), [columns]);
  const live = [...store.live.values()];
  const counts: Record<Which, number> = {
    live: live.length, queue: live.filter(keep.queue).length, ended: store.jobs.size - live.length, all: store.jobs.size,
  };
  return (
    <Card
      title={which === "queue" ? "Queue" : "Jobs"}
      id="jobs-title"
      head={<Toggle label="Jobs shown" value={which} options={choices.map(([choice, text]) => [choice, `${text} ${counts[choice]}`])} onChange={(show) => route.set({ show, "jobs-sort": null })} />}
    >
      <Table
        name="jobs" label="Table of jobs" rows={rows} columns={columns} all={exported} keyOf={(job) => job.id} address={(job) => jobAddress(job.id)}
        sort={sortOf[which]} empty={search ? `No job here has “${search}” in its number, name, user, state, reason or search.` : emptyText[which]}
        classOf={(job) => (job.slack_seconds !== null && job.slack_seconds < 0 && active.has(job.state) ? "is-late" : undefined)}
      />
    </Card>
  );
}

const emptyText: Record<Which, string> = {
  live: "No job waits or runs. Submit one, or look at the jobs that have ended.",
  queue: "No job waits.",
  ended: "No job has ended yet.",
  all: "There is no job yet.",
};
