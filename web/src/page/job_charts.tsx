// GPUs, loss, speed, batch size and learning rate of one job over time, on one time axis.
import { useCallback, useEffect, useMemo, useState } from "preact/hooks";
import uPlot from "uplot";
import { formatNumber } from "../parts/format";
import { baseOptions, dragSelect, lineOf, onSelection, Plot, valueAxis, type Draw } from "../parts/plot";
import { canvasFont, type Ink } from "../parts/presentation";
import type { Span } from "../parts/span";
import { get, messageOf, type Job, type PastAnswer, type PastReport, type PromiseNote, type TimelineMark } from "./api";
import { Card, Clock, Problem, useTick } from "./bits";
import { route, spanInAddress } from "./route";
import { ended } from "./store";
import { stepsOf } from "./timeline_rows";
import { Table, type Column } from "./table";
import { clock, clockTicks, exact, now, seconds } from "./time";

/** Reports come every few seconds; what is newer is in the job itself. */
const readEvery = 10;

interface Past {
  /** GPUs held from a moment on. */
  time: number[];
  gpus: number[];
  marks: TimelineMark[];
  reports: PastReport[];
  promises: PromiseNote[];
  completeSince: number;
}

export function usePast(job: Job): { past: Past | null; problem: string | null } {
  const [past, setPast] = useState<Past | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const over = ended.has(job.state);
  const tick = useTick(readEvery);
  const version = `${job.id} ${job.slots.join()} ${job.resizes} ${job.restarts} ${job.promised} ${job.honoured} ${job.state} ${over ? 0 : tick}`;
  useEffect(() => {
    const abort = new AbortController();
    get<PastAnswer>(`/v1/jobs/${job.id}/past`, abort.signal).then(
      (answer) => {
        const held = answer.spans.map((span) => ({ ...span, from: seconds(span.from)!, until: seconds(span.until) }));
        setPast({ ...answer, ...stepsOf(held, seconds(job.ended) ?? now()), completeSince: seconds(answer.complete_since) ?? 0 });
        setProblem(null);
      },
      (error: unknown) => abort.signal.aborted || setProblem(messageOf(error)),
    );
    return () => abort.abort();
  }, [version]);
  return { past, problem };
}

const markShapes: Record<string, string> = { start: "▶", stop: "■", grow: "▲", shrink: "▼", restart: "↻", recovery: "✚", move: "⇄" };

function timeAxis(ink: Ink, labels: boolean): uPlot.Axis {
  return {
    stroke: ink.muted, font: canvasFont, size: labels ? 30 : 8, gap: 6,
    grid: { stroke: ink.grid, width: 1 }, ticks: { stroke: ink.grid, width: 1, size: 5 },
    splits: (plot, _, lo, hi) => clockTicks({ lo, hi }, plot.width / 90).map((tick) => tick.at),
    values: (plot, splits) => {
      if (!labels) return splits.map(() => "");
      const { min, max } = plot.scales.x!;
      const ticks = clockTicks({ lo: min ?? 0, hi: max ?? 1 }, plot.width / 90);
      return splits.map((at) => ticks.find((tick) => tick.at === at)?.label ?? "");
    },
  };
}

function paintMarks(plot: uPlot, marks: TimelineMark[], ink: Ink): void {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.font = `${13 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textAlign = "center";
  ctx.textBaseline = "bottom";
  for (const mark of marks) {
    const x = plot.valToPos(seconds(mark.time)!, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    const y = plot.valToPos(mark.gpus, "y", true);
    ctx.fillStyle = mark.kind === "restart" || mark.kind === "recovery" ? ink.late : ink.text;
    ctx.fillText(markShapes[mark.kind] ?? "•", x, Math.max(bbox.top + 14 * devicePixelRatio, y - 2 * devicePixelRatio));
  }
  ctx.restore();
}

function paintLine(plot: uPlot, at: number | null, colour: string): void {
  if (at === null) return;
  const x = plot.valToPos(at, "x", true);
  const { ctx, bbox } = plot;
  if (x < bbox.left || x > bbox.left + bbox.width) return;
  ctx.fillStyle = colour;
  ctx.fillRect(x, bbox.top, 2 * devicePixelRatio, bbox.height);
}

/** The charts move together: one cursor, one range. */
function cursorOf(job: number, onReset: () => void): uPlot.Cursor {
  return { ...dragSelect(onReset), points: { show: false }, sync: { key: `job-${job}`, scales: ["x", null] } };
}

/** GPUs that are planned from a moment on; the last one is the expected end. */
function planOf(job: Job): { at: number; gpus: number }[] {
  if (job.ended || job.plan.length === 0) return [];
  const steps = job.plan.map((step) => ({ at: seconds(step.from)!, gpus: step.gpus }));
  const last = steps[steps.length - 1]!;
  return [...steps, { at: Math.max(seconds(job.eta) ?? 0, last.at), gpus: last.gpus }];
}

/** What is chosen in the address, or everything from its first GPU on, and of its plan as much as of its past. */
function rangeOf(job: Job, past: Past): Span {
  const chosen = spanInAddress();
  if (chosen) return chosen;
  const end = seconds(job.ended) ?? now();
  const lo = past.time[0] ?? seconds(job.submitted) ?? end - 60;
  const plan = Math.max(end, ...planOf(job).map(({ at }) => at));
  const hi = Math.max(Math.min(plan, 2 * end - lo), lo + 10);
  return { lo, hi: hi + (hi - lo) * 0.02 };
}

const setRange = (span: Span | null) => route.set({ from: span && String(Math.floor(span.lo)), to: span && String(Math.ceil(span.hi)) });

export function JobCharts({ job }: { job: Job }) {
  const { past, problem } = usePast(job);
  const tick = useTick(5);
  const zoomed = route.get("from") !== null;
  const range = useMemo(() => past && rangeOf(job, past), [past, tick, job.ended, job.plan, job.eta, route.get("from"), route.get("to")]);
  const reports = useMemo(() => (past ? withNewest(past.reports, job) : []), [past, tick, job.ended]);
  if (problem) return <Problem>Its past cannot be read: {problem}</Problem>;
  return (
    <>
      <Card
        title="Over time" id="gpus-title"
        head={zoomed ? <button type="button" class="plain" onClick={() => setRange(null)}>Show everything</button> : <span class="quiet">Drag over a chart to zoom</span>}
      >
        {!past || !range ? <div class="plot-place" /> : <Charts job={job} past={past} range={range} reports={reports} />}
      </Card>
      {past && past.promises.length > 0 && <PromiseHistory notes={past.promises} />}
    </>
  );
}

function Charts({ job, past, range, reports }: { job: Job; past: Past; range: Span; reports: PastReport[] }) {
  const measured = job.state === "PROFILING";
  const shown = measures.filter(({ value }) => reports.some((report) => value(report) !== null));
  return (
    <>
      <figure>
        <figcaption><strong>GPUs</strong> <span class="number">{measured ? past.gpus[past.gpus.length - 1] ?? 0 : job.gpus}</span>{measured && <span class="quiet"> held by the run that measures its speed</span>}</figcaption>
        {past.time.length === 0 ? <p class="empty">It has held no GPU yet.</p> : <GpuChart job={job} past={past} range={range} />}
      </figure>
      {past.time.length > 0 && <p class="quiet">▶ start ▲ grow ▼ shrink ⇄ move ↻ restart ✚ recovery ■ stop. A dashed line is planned, a red one is the deadline.</p>}
      {shown.map(({ title, value }, i) => (
        <figure key={title}>
          <figcaption><strong>{title}</strong> <span class="number">{formatNumber(lastOf(reports.map(value)))}</span></figcaption>
          <ReportChart job={job.id} title={title} reports={reports} value={value} range={range} run={i + 1} last={i === shown.length - 1} />
        </figure>
      ))}
      {shown.length === 0 && past.time.length > 0 && <p class="empty">The program has reported neither loss nor speed.</p>}
      {past.completeSince > (seconds(job.submitted) ?? 0) + 1 && <p class="quiet">What is from before {clock(past.completeSince)} is not known any more.</p>}
      <details>
        <summary>Changes as a table</summary>
        <Table name="marks" label="Changes of this job" rows={past.marks} columns={markColumns} keyOf={(mark) => `${mark.time} ${mark.kind} ${mark.gpus}`} empty="Nothing has changed yet." sort="time" />
      </details>
      <details>
        <summary>Reports as a table</summary>
        <Table name="reports" label="Reports of this job" rows={reports} columns={reportColumns} keyOf={(report) => String(report.time)} empty="The program has reported nothing." sort="-time" />
      </details>
    </>
  );
}

function GpuChart({ job, past, range }: { job: Job; past: Past; range: Span }) {
  const deadline = seconds(job.deadline);
  const draw: Draw = useCallback(
    (host, width, ink) => {
      const time = [...past.time];
      // What it holds now, it still holds.
      if (!job.ended) time[time.length - 1] = Math.max(time[time.length - 1]!, now());
      const end = time[time.length - 1]!;
      const plan = planOf(job).filter(({ at }) => at > end);
      const times = [...time, ...plan.map(({ at }) => at)];
      const held = [...past.gpus, ...plan.map(() => null)];
      const planned = [...time.map((_, i) => (i === time.length - 1 ? past.gpus[i]! : null)), ...plan.map(({ gpus }) => gpus)];
      const paths = uPlot.paths.stepped!({ align: 1 });
      const plot = new uPlot(
        {
          ...baseOptions(width, 200),
          scales: {
            x: { time: false, range: () => [range.lo, range.hi] },
            y: { range: (_plot, _min, max) => [0, Math.max(1, Math.max(max ?? 0, job.gpus)) + 1] },
          },
          axes: [timeAxis(ink, true), { ...valueAxis(ink, (value) => (Number.isInteger(value) ? String(value) : "")), incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500] }],
          series: [
            {},
            { ...lineOf(ink, 0, true), paths, fill: `${ink.series[0]}33` },
            { ...lineOf(ink, 0, false), paths, dash: [5, 4] },
          ],
          cursor: cursorOf(job.id, () => setRange(null)),
          hooks: {
            setSelect: [onSelection(setRange)],
            draw: [
              (plot) => {
                paintMarks(plot, past.marks, ink);
                paintLine(plot, deadline, ink.late);
              },
            ],
          },
        },
        [times, held, planned],
        host,
      );
      return () => plot.destroy();
    },
    [past, job.plan, job.eta, deadline, job.ended, range],
  );
  return <Plot draw={draw} height={200} label={`GPUs of job ${job.id} over time`} />;
}

const markColumns: Column<TimelineMark>[] = [
  { name: "time", title: "Time", cell: (mark) => <Clock when={mark.time} />, value: (mark) => exact(mark.time) },
  { name: "kind", title: "What", cell: (mark) => `${markShapes[mark.kind] ?? "•"} ${mark.kind}`, value: (mark) => mark.kind },
  { name: "gpus", title: "GPUs", number: true, cell: (mark) => mark.gpus, value: (mark) => mark.gpus },
  { name: "pause", title: "Pause", number: true, cell: (mark) => (mark.pause_ms == null ? "–" : `${formatNumber(mark.pause_ms)} ms`), value: (mark) => mark.pause_ms ?? null },
  { name: "reason", title: "Why", cell: (mark) => <bdi>{mark.reason ?? ""}</bdi>, value: (mark) => mark.reason ?? null },
];

interface Measure {
  title: string;
  value(report: PastReport): number | null;
}

const measures: Measure[] = [
  { title: "Loss", value: (report) => report.loss },
  { title: "Samples a second", value: (report) => report.rate || null },
  { title: "Batch size", value: (report) => report.batch },
  { title: "Learning rate", value: (report) => report.learning_rate },
];

const reportColumns: Column<PastReport>[] = [
  { name: "time", title: "Time", cell: (report) => <Clock when={report.time} />, value: (report) => exact(report.time) },
  { name: "step", title: "Step", number: true, cell: (report) => report.step, value: (report) => report.step },
  { name: "gpus", title: "GPUs", number: true, cell: (report) => report.gpus || "–", value: (report) => report.gpus || null },
  ...measures.map(({ title, value }) => ({
    name: title.toLowerCase().replace(/ /g, "-"), title, number: true, cell: (report: PastReport) => formatNumber(value(report)), value,
  })),
];

/** The newest report is in the job itself. */
function withNewest(reports: PastReport[], job: Job): PastReport[] {
  const { progress } = job;
  const last = reports[reports.length - 1];
  if (progress.step === 0 || (last && last.step >= progress.step)) return reports;
  const time = Math.max(seconds(job.ended) ?? now(), last ? seconds(last.time)! : 0);
  return [...reports, { time, step: progress.step, loss: progress.loss, rate: job.ended ? 0 : progress.rate, batch: job.batch, learning_rate: progress.learning_rate, gpus: job.gpus }];
}

function lastOf(values: (number | null)[]): number | null {
  for (let i = values.length - 1; i >= 0; i--) if (values[i] !== null) return values[i]!;
  return null;
}

interface ReportChartProps extends Measure {
  job: number;
  reports: PastReport[];
  range: Span;
  run: number;
  /** Only the last chart names the times. */
  last: boolean;
}

function ReportChart({ job, title, reports, value, range, run, last }: ReportChartProps) {
  const height = last ? 122 : 100;
  const draw: Draw = useCallback(
    (host, width, ink) => {
      const times = reports.map((report) => seconds(report.time)!);
      const plot = new uPlot(
        {
          ...baseOptions(width, height),
          scales: { x: { time: false, range: () => [range.lo, range.hi] } },
          axes: [timeAxis(ink, last), { ...valueAxis(ink, formatNumber), space: 24 }],
          series: [{}, { ...lineOf(ink, run, true), width: 1.8, spanGaps: true, points: { show: times.length < 3, size: 5 } }],
          cursor: cursorOf(job, () => setRange(null)),
          hooks: { setSelect: [onSelection(setRange)] },
        },
        [times, reports.map(value)],
        host,
      );
      return () => plot.destroy();
    },
    [reports, range, last],
  );
  return <Plot draw={draw} height={height} label={`${title} of job ${job} over time`} />;
}

const promiseWords: Record<string, string> = {
  made: "promised", changed: "planned anew", dropped: "no longer honoured", taken_up: "honoured again",
  kept: "kept", broken: "broken", ended: "ended: the job was cancelled",
};

const promiseColumns: Column<PromiseNote>[] = [
  { name: "time", title: "Time", cell: (note) => <Clock when={note.time} />, value: (note) => exact(note.time) },
  { name: "kind", title: "What", cell: (note) => promiseWords[note.kind] ?? note.kind, value: (note) => note.kind },
  { name: "by", title: "To be done by", cell: (note) => <Clock when={note.by} />, value: (note) => exact(note.by) },
  { name: "planned", title: "Planned or real end", cell: (note) => <Clock when={note.planned} />, value: (note) => exact(note.planned) || null },
  { name: "policy", title: "Policy", cell: (note) => note.policy ?? "–", value: (note) => note.policy },
];

function PromiseHistory({ notes }: { notes: PromiseNote[] }) {
  return (
    <Card title="Promises" id="promise-history-title">
      <Table
        name="promise" label="Promises to this job" rows={notes} columns={promiseColumns} keyOf={(note) => `${note.time} ${note.kind} ${note.planned}`} sort="time"
        classOf={(note) => (note.kind === "broken" || note.kind === "dropped" ? "is-late" : undefined)} empty="Nothing was promised."
      >
        A new plan is listed if its end has moved by more than a second and a fiftieth of the time until then.
      </Table>
    </Card>
  );
}
