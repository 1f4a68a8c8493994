// What there is to know about one job under one policy.
import type { MaybeNumber, Report, Run } from "./data";
import { jobFacts } from "./outcome";

interface Props {
  report: Report;
  run: Run;
  job: number;
  gpusHeld: MaybeNumber;
}

export function JobFacts({ report, run, job, gpusHeld }: Props) {
  return (
    <div class="job-facts">
      <strong class="job-name">{report.jobs.name[job]}</strong>
      <dl>
        {jobFacts(report, run, job, gpusHeld).map(([label, text]) => (
          <div key={label}>
            <dt>{label}</dt>
            <dd>{text}</dd>
          </div>
        ))}
      </dl>
    </div>
  );
}
