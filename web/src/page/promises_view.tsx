// Who was promised what, and whether it will be kept. The least slack comes first.
import { useMemo } from "preact/hooks";
import { formatDuration } from "../parts/format";
import type { Job } from "./api";
import { Card, Clock, JobLink, Progress, Slack, State } from "./bits";
import { jobAddress, route } from "./route";
import { ended, store } from "./store";
import { Table, type Column } from "./table";
import { exact, seconds } from "./time";
import { matches } from "./jobs_view";

const columns: Column<Job>[] = [
  { name: "slack", title: "Slack", cell: (job) => <Slack job={job} />, value: (job) => job.slack_seconds },
  { name: "job", title: "Job", cell: (job) => <JobLink job={job} />, value: (job) => job.id },
  { name: "state", title: "State", cell: (job) => <State state={job.state} />, value: (job) => job.state },
  { name: "deadline", title: "Deadline", cell: (job) => <Clock when={job.deadline} />, value: (job) => exact(job.deadline) },
  { name: "end", title: "Ends", cell: (job) => <End job={job} />, value: (job) => exact(job.ended ?? job.eta) || null },
  { name: "promise", title: "Promise", cell: (job) => promiseText(job), value: promiseText },
  { name: "done", title: "Done", cell: (job) => <Progress job={job} />, value: (job) => job.progress.done },
  { name: "gpus", title: "GPUs", number: true, cell: (job) => job.gpus, value: (job) => job.gpus },
];

function End({ job }: { job: Job }) {
  if (job.ended) return <Clock when={job.ended} />;
  return job.eta ? <>expected <Clock when={job.eta} /></> : <span class="quiet">not known yet</span>;
}

export function promiseText(job: Job): string {
  if (job.promised && job.honoured === false) return "was given, is not honoured by the present policy";
  if (job.promised) return "promised";
  if (job.state === "PROFILING") return "decided when its speed is measured";
  return job.state === "REFUSED" ? "refused" : "none: the deadline is a wish";
}

export function PromisesView({ search }: { search: string }) {
  const past = route.get("past") === "1";
  const all = [...store.jobs.values()].filter((job) => job.deadline !== null && matches(job, search));
  const rows = useMemo(() => all.filter((job) => past || !ended.has(job.state)), [all, past]);
  const late = rows.filter((job) => !ended.has(job.state) && (job.slack_seconds ?? 0) < 0);
  const least = rows.reduce<number | null>((worst, { slack_seconds: slack }) => (slack === null ? worst : Math.min(worst ?? slack, slack)), null);
  return (
    <Card
      title="Promises" id="promises-title"
      head={
        <label class="check">
          <input type="checkbox" checked={past} onChange={(event) => route.set({ past: event.currentTarget.checked ? "1" : null })} />
          with jobs that have ended
        </label>
      }
    >
      {late.length > 0 && (
        <p class="trouble" role="status">
          {late.length === 1 ? "One job is" : `${late.length} jobs are`} expected to miss {late.length === 1 ? "its" : "their"} deadline:{" "}
          {late.slice(0, 5).map((job) => <span key={job.id}><JobLink job={job} /> </span>)}
          {late.length > 5 && `and ${late.length - 5} more`}
        </p>
      )}
      <Table
        name="promises" label="Deadlines and promises" rows={rows} columns={columns} keyOf={(job) => job.id}
        address={(job) => jobAddress(job.id)} sort="slack"
        classOf={(job) => ((job.slack_seconds ?? 0) < 0 && !ended.has(job.state) ? "is-late" : undefined)}
        empty="No job here has a deadline."
      >
        {least !== null && least >= 0 && `The least slack is ${formatDuration(least)}. `}
        The expected end is the daemon's estimate from the speed that it has measured; it has no uncertainty of its own.
      </Table>
    </Card>
  );
}

/** Seconds from now to the deadline. */
export function untilDeadline(job: Job, now: number): number | null {
  const deadline = seconds(job.deadline);
  return deadline === null ? null : deadline - now;
}
