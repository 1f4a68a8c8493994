// The report page: compares what several policies made of the same jobs on the same cluster.
import { render } from "preact";
import { useMemo, useState } from "preact/hooks";
import { CdfChart } from "./parts/cdf_chart";
import { Toggle } from "./parts/choice";
import { readReport, type Report, type Run } from "./parts/data";
import { formatCount, formatNumber, formatPercent, plural } from "./parts/format";
import { SlowestJobs, UnfinishedJobs } from "./parts/job_tables";
import { completionTime, sortedCompletionTimes } from "./parts/outcome";
import { watchPresentation } from "./parts/presentation";
import { StepSeries } from "./parts/steps";
import { SummaryTable } from "./parts/summary_table";
import { TimeChart } from "./parts/time_chart";
import { TimelineSection } from "./parts/timeline_section";
import { Viewport } from "./parts/viewport";

const distributionHeight = 280;

/** As high as the list of runs beside it, within reason. */
function overTimeHeight(runs: number): number {
  return Math.min(320, Math.max(190, 40 + runs * 24));
}

function ReportPage({ report }: { report: Report }) {
  const [selected, setSelected] = useState(0);
  const [shown, setShown] = useState<ReadonlySet<number>>(() => new Set(report.runs.keys()));
  const [pinned, setPinned] = useState<number | null>(null);
  const viewport = useMemo(() => new Viewport({ lo: 0, hi: lastMoment(report) }, { lo: 0, hi: Math.max(1, report.cluster.gpus) }), [report]);
  const runs = useMemo(() => [...shown].sort((a, b) => a - b), [shown]);
  const show = (run: number, visible: boolean) => {
    const next = new Set(shown);
    if (visible) next.add(run);
    else next.delete(run);
    setShown(next);
  };
  const run = report.runs[selected];
  return (
    <>
      <Header report={report} />
      <main>
        {!run && <p class="card empty">This report has no runs.</p>}
        {run && (
          <>
            <section class="card" aria-labelledby="summary-title">
              <h2 id="summary-title">Summary</h2>
              <SummaryTable runs={report.runs} selected={selected} onSelect={setSelected} shown={shown} onShow={show} />
            </section>
            <Distribution report={report} runs={runs} selected={selected} pinned={pinned} />
            <OverTime report={report} runs={runs} selected={selected} viewport={viewport} />
            <section class="card" aria-labelledby="timeline-title">
              <h2 id="timeline-title">Who held which GPU</h2>
              <TimelineSection report={report} selected={selected} onSelect={setSelected} viewport={viewport} pinned={pinned} onPin={setPinned} />
            </section>
            <UnhappyJobs report={report} run={run} pinned={pinned} onPin={setPinned} />
          </>
        )}
      </main>
      <footer class="quiet">Made by {report.tool || "rubato"}. Times count from the first submission.</footer>
    </>
  );
}

function lastMoment(report: Report): number {
  let last = 0;
  for (const { series, jobs, timeline } of report.runs) {
    last = Math.max(last, series.time[series.time.length - 1] ?? 0);
    for (const end of jobs.end) last = Math.max(last, end ?? 0);
    for (const end of timeline.end) last = Math.max(last, end);
  }
  return last > 0 ? last : 1;
}

function Header({ report }: { report: Report }) {
  const { cluster, trace, settings, notes } = report;
  const command = settings.find(([name]) => name === "command");
  const facts = [
    cluster.spec && `Cluster ${cluster.spec}, ${plural(cluster.gpus, "GPU")}`,
    `${trace.name ? `${trace.name}, ` : ""}${plural(trace.jobs, "job")}`,
    `${formatCount(report.runs.length)} ${report.runs.length === 1 ? "policy" : "policies"}`,
  ].filter(Boolean);
  return (
    <header>
      <p class="overline">Rubato scheduling report</p>
      <h1>{report.title || trace.name || "Untitled"}</h1>
      <ul class="facts">{facts.map((fact) => <li key={fact}>{fact}</li>)}</ul>
      <dl class="settings">
        {settings.filter((setting) => setting !== command).map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      {command && (
        <details>
          <summary>Command</summary>
          <code>{command[1]}</code>
        </details>
      )}
      {notes.length > 0 && (
        <ul class="notes" role="note" aria-label="Notes">{notes.map((note) => <li key={note}>{note}</li>)}</ul>
      )}
    </header>
  );
}

interface ChartProps {
  report: Report;
  /** Runs to draw. */
  runs: number[];
  selected: number;
}

type Axis = "log" | "linear";

function Distribution({ report, runs, selected, pinned }: ChartProps & { pinned: number | null }) {
  const [axis, setAxis] = useState<Axis>("log");
  const times = useMemo(() => report.runs.map((run) => sortedCompletionTimes(report.jobs, run)), [report]);
  const lines = useMemo(
    () =>
      runs.map((i) => {
        const run = report.runs[i]!;
        const marked = pinned === null ? null : completionTime(report.jobs, run, pinned);
        return { run: i, label: run.policy, times: times[i]!, marked };
      }),
    [report, runs, times, pinned],
  );
  return (
    <section class="card" aria-labelledby="distribution-title">
      <div class="card-head">
        <h2 id="distribution-title">Job completion time</h2>
        <Toggle label="Time axis" options={[["log", "Logarithmic"], ["linear", "Linear"]]} value={axis} onChange={setAxis} />
      </div>
      <p class="quiet">Share of all jobs finished within a given time of their submission. Further left is faster.</p>
      <CdfChart
        key={axis}
        label="Share of jobs finished by completion time, one line per policy"
        lines={lines}
        jobs={report.jobs.count}
        selected={selected}
        logarithmic={axis === "log"}
        height={distributionHeight}
      />
    </section>
  );
}

type Use = "busy" | "efficiency";

function OverTime({ report, runs, selected, viewport }: ChartProps & { viewport: Viewport }) {
  const [use, setUse] = useState<Use>("busy");
  const gpus = Math.max(1, report.cluster.gpus);
  const quantities = useMemo(() => report.runs.map((run) => quantitiesOf(run, gpus)), [report]);
  const linesOf = (pick: (quantity: Quantities) => StepSeries) =>
    runs.map((run) => ({ run, label: report.runs[run]!.policy, steps: pick(quantities[run]!) }));
  const queue = useMemo(() => linesOf(({ queue }) => queue), [quantities, runs]);
  const height = overTimeHeight(runs.length);
  const cluster = useMemo(() => linesOf((quantity) => quantity[use]), [quantities, runs, use]);
  const priced = runs.filter((run) => report.runs[run]!.series.price.length > 0);
  const prices = useMemo(
    () => priced.map((run) => ({ run, label: report.runs[run]!.policy, steps: quantities[run]!.price })),
    [quantities, runs],
  );
  return (
    <section class="card" aria-labelledby="over-time-title">
      <h2 id="over-time-title">Over time</h2>
      <p class="quiet screen-only">Drag to zoom these charts and the timeline below together. Double-click to show everything.</p>
      <h3>Jobs waiting</h3>
      <TimeChart label="Jobs waiting over time, one line per policy" lines={queue} selected={selected} viewport={viewport} format={formatNumber} height={height} />
      <div class="card-head">
        <h3>{use === "busy" ? "GPUs in use" : "Cluster efficiency"}</h3>
        <Toggle label="Quantity" options={[["busy", "GPUs in use"], ["efficiency", "Efficiency"]]} value={use} onChange={setUse} />
      </div>
      <TimeChart label="Use of the cluster over time, one line per policy" lines={cluster} selected={selected} viewport={viewport} format={formatPercent} top={1} height={height} />
      {prices.length > 0 && (
        <>
          <h3>Price of a GPU</h3>
          <p class="quiet">Job-seconds that one more GPU would save a second: what one more is worth at that time.</p>
          <TimeChart label="Price of a GPU over time, one line per policy that has prices" lines={prices} selected={selected} viewport={viewport} format={formatNumber} height={height} />
        </>
      )}
    </section>
  );
}

type Quantities = Record<"queue" | "price" | Use, StepSeries>;

function quantitiesOf({ series }: Run, gpus: number): Quantities {
  return {
    queue: new StepSeries(series.time, series.queue),
    busy: new StepSeries(series.time, series.gpusBusy.map((busy) => busy / gpus)),
    efficiency: new StepSeries(series.time, series.efficiency),
    price: new StepSeries(series.time, series.price),
  };
}

interface UnhappyProps {
  report: Report;
  run: Run;
  pinned: number | null;
  onPin(job: number | null): void;
}

function UnhappyJobs(props: UnhappyProps) {
  return (
    <section class="card" aria-labelledby="unhappy-title">
      <h2 id="unhappy-title">Who fared badly under {props.run.policy}</h2>
      <h3>Slowest jobs</h3>
      <SlowestJobs {...props} />
      <h3>Rejected and unfinished jobs</h3>
      <UnfinishedJobs {...props} />
    </section>
  );
}

function start(): void {
  const page = document.getElementById("page")!;
  const result = readReport(document.getElementById("rubato-report")?.textContent ?? "");
  if ("problem" in result) {
    render(<p class="problem" role="alert">{result.problem}</p>, page);
    return;
  }
  document.title = `${result.report.title || "Report"} – Rubato`;
  watchPresentation();
  render(<ReportPage report={result.report} />, page);
}

start();
