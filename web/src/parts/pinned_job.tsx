// The pinned job: its facts, and how it fared under every policy.
import type { Report } from "./data";
import { formatDuration } from "./format";
import { JobFacts } from "./job_facts";
import { completionTime, waitingTime } from "./outcome";

interface Props {
  report: Report;
  selected: number;
  job: number;
  onUnpin(): void;
}

export function PinnedJob({ report, selected, job, onUnpin }: Props) {
  return (
    <section class="pinned" aria-label="Pinned job">
      <button type="button" class="close" aria-label="Unpin this job" title="Unpin" onClick={onUnpin}>×</button>
      <JobFacts report={report} run={report.runs[selected]!} job={job} gpusHeld={null} />
      {report.runs.length > 1 && (
        <table class="per-policy">
          <thead>
            <tr>
              <th scope="col">Policy</th>
              <th scope="col" class="number">Wait</th>
              <th scope="col" class="number">Took</th>
            </tr>
          </thead>
          <tbody>
            {report.runs.map((run, i) => (
              <tr key={run.policy} class={i === selected ? "is-selected" : undefined}>
                <th scope="row" title={run.policy}>{run.policy}</th>
                <td class="number">{formatDuration(waitingTime(report.jobs, run, job))}</td>
                <td class="number">
                  {run.jobs.rejected.has(job) ? "rejected" : formatDuration(completionTime(report.jobs, run, job))}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}
