// Who was promised what, and whether it will be kept. The least slack comes first.
import { formatDuration } from "../parts/format";
import type { Job } from "./api";
import { Card, Clock, ExpectedEnd, JobLink, Progress, Slack, State } from "./bits";
import { jobAddress, route } from "./route";
import { ended, store } from "./store";
import { Table, type Column } from "./table";
import { exact } from "./time";
import { matches } from "./jobs_view";

const columns: Column<Job>[] = [
  { name: "slack", title: "Slack", cell: (job) => <Slack job={job} />, value: (job) => job.slack_seconds },
  { name: "job", title: "Job", cell: (job) => <JobLink job={job} />, value: (job) => job.id },
  { name: "state", title: "State", cell: (job) => <State state={job.state} />, value: (job) => job.state },
  { name: "deadline", title: "Deadline", cell: (job) => <Clock when={job.deadline} />, value: (job) => exact(job.deadline) },
  { name: "end", title: "Ends", cell: (job) => <ExpectedEnd job={job} />, value: (job) => exact(job.ended ?? job.eta) || null },
  { name: "promise", title: "Promise", cell: (job) => promiseText(job), value: promiseText },
  { name: "done", title: "Done", cell: (job) => <Progress job={job} />, value: (job) => job.progress.done },
  { name: "gpus", title: "GPUs", number: true, cell: (job) => job.gpus, value: (job) => job.gpus },
];

const exported: Column<Job>[] = columns.flatMap((column) =>
  column.name !== "end" ? [column] : [
    column,
    { name: "earliest", title: "Earliest end", cell: () => null, value: (job) => exact(job.eta_range?.earliest) || null },
    { name: "latest", title: "Latest end", cell: () => null, value: (job) => exact(job.eta_range?.latest) || null },
  ],
);

export function promiseText(job: Job): string {
  if (job.promised && job.state === "COMPLETED") return (job.slack_seconds ?? 0) < 0 ? "broken" : "kept";
  if (job.promised && job.state === "FAILED") return "broken";
  if (job.promised && job.state === "CANCELLED") return "ended with the job";
  if (job.promised && job.honoured === false) return "was given, is not honoured by the present policy";
  if (job.promised) return "promised";
  if (job.state === "PROFILING") return "decided when its speed is measured";
  return job.state === "REFUSED" ? "refused" : "none: the deadline is a wish";
}

export function PromisesView({ search }: { search: string }) {
  const past = route.get("past") === "1";
  const rows = [...(past ? store.jobs : store.live).values()].filter((job) => job.deadline !== null && matches(job, search));
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
        name="promises" label="Table of deadlines and promises" rows={rows} columns={columns} all={exported} keyOf={(job) => job.id}
        address={(job) => jobAddress(job.id)} sort="slack"
        classOf={(job) => ((job.slack_seconds ?? 0) < 0 && !ended.has(job.state) ? "is-late" : undefined)}
        empty="No job here has a deadline."
      >
        {least !== null && least >= 0 && `The least slack is ${formatDuration(least)}. `}
        The expected end is the daemon's estimate from measured speeds. The range beside it is the end if the rest went as fast, or as
        slowly, as a tenth of the job's reports.
      </Table>
    </Card>
  );
}
