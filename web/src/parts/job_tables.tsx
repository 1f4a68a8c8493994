// Who fared badly under a policy: the slowest jobs, and those that never finished.
import { useMemo, useState } from "preact/hooks";
import { Toggle } from "./choice";
import type { Jobs, MaybeNumber, Report, Run } from "./data";
import { formatCount, formatDuration, formatExactSeconds, formatNumber, missing } from "./format";
import { completionTime, reasonsForDelay, slowdown, waitingTime } from "./outcome";

const rowsShown = 20;

type Measure = "completion" | "slowdown" | "waiting";

const measures: [Measure, string][] = [
  ["completion", "Completion time"],
  ["slowdown", "Slowdown"],
  ["waiting", "Wait"],
];

const measureOf: Record<Measure, (jobs: Jobs, run: Run, job: number) => MaybeNumber> = {
  completion: completionTime,
  slowdown,
  waiting: waitingTime,
};

interface Props {
  report: Report;
  run: Run;
  pinned: number | null;
  onPin(job: number | null): void;
}

export function SlowestJobs({ report, run, pinned, onPin }: Props) {
  const [measure, setMeasure] = useState<Measure>("completion");
  const rows = useMemo(() => slowestJobs(report.jobs, run, measure), [report, run, measure]);
  if (rows.length === 0) return <p class="empty">No job finished under this policy.</p>;
  return (
    <>
      <div class="controls">
        <span class="quiet">Ranked by</span>
        <Toggle label="Rank jobs by" options={measures} value={measure} onChange={setMeasure} />
      </div>
      <div class="scroller" tabIndex={0} role="region" aria-label="Slowest jobs">
        <table class="jobs" id="slowest-jobs">
          <thead>
            <tr>
              <th scope="col">Job</th>
              <th scope="col">User</th>
              <th scope="col" class="number">GPUs</th>
              <th scope="col" class="number">Wait</th>
              <th scope="col" class="number">Completion time</th>
              <th scope="col" class="number" title="Completion time divided by the time alone on the requested GPUs">Slowdown</th>
              <th scope="col">Why</th>
            </tr>
          </thead>
          <tbody>
            {rows.map((job) => (
              <SlowRow key={job} report={report} run={run} job={job} pinned={pinned} onPin={onPin} />
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

function slowestJobs(jobs: Jobs, run: Run, measure: Measure): number[] {
  const amount = (job: number) => measureOf[measure](jobs, run, job) ?? 0;
  const finished = jobs.name.map((_, job) => job).filter((job) => completionTime(jobs, run, job) !== null);
  return finished.sort((a, b) => amount(b) - amount(a) || a - b).slice(0, rowsShown);
}

function SlowRow({ report: { jobs }, run, job, pinned, onPin }: Props & { job: number }) {
  const ratio = slowdown(jobs, run, job);
  return (
    <tr class={job === pinned ? "is-selected" : undefined}>
      <JobNameCell name={jobs.name[job]!} job={job} pinned={pinned} onPin={onPin} />
      <td>{jobs.user[job]}</td>
      <td class="number">{jobs.gpus[job]}</td>
      <DurationCell seconds={waitingTime(jobs, run, job)} />
      <DurationCell seconds={completionTime(jobs, run, job)} />
      <td class="number">{ratio === null ? missing : `${formatNumber(ratio)}×`}</td>
      <td class="why">{reasonsForDelay(jobs, run, job).join("; ")}</td>
    </tr>
  );
}

function DurationCell({ seconds }: { seconds: MaybeNumber }) {
  return (
    <td class="number" title={seconds === null ? undefined : formatExactSeconds(seconds)}>
      {formatDuration(seconds)}
    </td>
  );
}

function JobNameCell({ name, job, pinned, onPin }: { name: string; job: number } & Pick<Props, "pinned" | "onPin">) {
  return (
    <th scope="row">
      <button type="button" class="job-link" aria-pressed={job === pinned} onClick={() => onPin(job === pinned ? null : job)}>
        {name}
      </button>
    </th>
  );
}

export function UnfinishedJobs({ report, run, pinned, onPin }: Props) {
  const { jobs } = report;
  const all = useMemo(() => unfinishedJobs(jobs, run), [jobs, run]);
  if (all.length === 0) return <p class="empty">Every job ran to completion.</p>;
  return (
    <>
      {all.length > rowsShown && (
        <p class="quiet">The {rowsShown} largest of {formatCount(all.length)}, by GPUs requested.</p>
      )}
      <div class="scroller" tabIndex={0} role="region" aria-label="Rejected and unfinished jobs">
        <table class="jobs" id="unfinished-jobs">
          <thead>
            <tr>
              <th scope="col">Job</th>
              <th scope="col">User</th>
              <th scope="col" class="number">GPUs</th>
              <th scope="col">Why</th>
            </tr>
          </thead>
          <tbody>
            {all.slice(0, rowsShown).map((job) => (
              <tr key={job} class={job === pinned ? "is-selected" : undefined}>
                <JobNameCell name={jobs.name[job]!} job={job} pinned={pinned} onPin={onPin} />
                <td>{jobs.user[job]}</td>
                <td class="number">{jobs.gpus[job]}</td>
                <td class="why">{reasonUnfinished(run, job)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

function unfinishedJobs(jobs: Jobs, run: Run): number[] {
  const open = jobs.name.map((_, job) => job).filter((job) => run.jobs.end[job] === null);
  return open.sort((a, b) => jobs.gpus[b]! - jobs.gpus[a]! || a - b);
}

function reasonUnfinished(run: Run, job: number): string {
  const why = run.jobs.rejected.get(job);
  if (why !== undefined) return why === "" ? "rejected" : `rejected: ${why}`;
  return run.jobs.start[job] === null ? "never started" : "started, did not finish";
}
