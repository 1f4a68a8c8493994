// GPUs, loss, speed and batch size of one job over time, on the same time axis.
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { formatNumber } from "../parts/format";
import { baseOptions, lineOf, Plot, valueAxis, type Draw } from "../parts/plot";
import { canvasFont, type Ink } from "../parts/presentation";
import { get, messageOf, type Job, type TimelineAnswer, type TimelineMark } from "./api";
import { Clock, Problem, useTick } from "./bits";
import { store } from "./store";
import { stepsOf, type Held } from "./timeline_rows";
import { Table, type Column } from "./table";
import { clock, clockTicks, exact, iso, now, seconds } from "./time";

interface Past {
  /** GPUs held from a moment on. */
  time: number[];
  gpus: number[];
  marks: TimelineMark[];
}

function spansOf(answer: TimelineAnswer, id: number): Held[] {
  return answer.spans
    .filter((span) => span.job === id)
    .map((span) => ({ ...span, from: seconds(span.from)!, until: seconds(span.until) }));
}

function usePast(job: Job): { past: Past | null; problem: string | null } {
  const [past, setPast] = useState<Past | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const version = `${job.id} ${job.slots.join()} ${job.resizes} ${job.restarts} ${job.ended}`;
  useEffect(() => {
    const abort = new AbortController();
    const since = Math.floor((seconds(job.submitted) ?? now()) - 1);
    const end = seconds(job.ended);
    get<TimelineAnswer>(`/v1/timeline?since=${iso(since)}${end === null ? "" : `&until=${iso(Math.ceil(end + 1))}`}`, abort.signal).then(
      (answer) => {
        setPast({ ...stepsOf(spansOf(answer, job.id), end ?? seconds(answer.now) ?? now()), marks: answer.marks.filter((mark) => mark.job === job.id) });
        setProblem(null);
      },
      (error: unknown) => abort.signal.aborted || setProblem(messageOf(error)),
    );
    return () => abort.abort();
  }, [version]);
  return { past, problem };
}

const markShapes: Record<string, string> = { start: "▶", stop: "■", grow: "▲", shrink: "▼", restart: "↻", recovery: "✚", move: "⇄" };

function timeAxis(ink: Ink): uPlot.Axis {
  return {
    stroke: ink.muted, font: canvasFont, size: 30, gap: 6,
    grid: { stroke: ink.grid, width: 1 }, ticks: { stroke: ink.grid, width: 1, size: 5 },
    splits: (plot, _, lo, hi) => clockTicks({ lo, hi }, plot.width / 90).map((tick) => tick.at),
    values: (plot, splits) => {
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

export function GpuHistory({ job }: { job: Job }) {
  const { past, problem } = usePast(job);
  const deadline = seconds(job.deadline);
  const tick = useTick(5);
  const draw: Draw = useCallback(
    (host, width, ink) => {
      if (!past || past.time.length === 0) return () => {};
      const lo = past.time[0]!;
      // What it holds now, it still holds.
      if (!job.ended) past.time[past.time.length - 1] = Math.max(past.time[past.time.length - 1]!, now());
      const end = past.time[past.time.length - 1]!;
      const plan = job.ended ? [] : job.plan.map((step) => ({ at: seconds(step.from)!, gpus: step.gpus })).filter(({ at }) => at > end);
      const times = [...past.time, ...plan.map(({ at }) => at)];
      const held = [...past.gpus, ...plan.map(() => null)];
      const planned = [...past.time.map((_, i) => (i === past.time.length - 1 ? past.gpus[i]! : null)), ...plan.map(({ gpus }) => gpus)];
      const hi = Math.max(end, plan[plan.length - 1]?.at ?? 0, lo + 10);
      const paths = uPlot.paths.stepped!({ align: 1 });
      const plot = new uPlot(
        {
          ...baseOptions(width, 220),
          scales: {
            x: { time: false, range: () => [lo, hi + (hi - lo) * 0.02] },
            y: { range: (_plot, _min, max) => [0, Math.max(1, Math.max(max ?? 0, job.gpus)) + 1] },
          },
          axes: [timeAxis(ink), { ...valueAxis(ink, (value) => (Number.isInteger(value) ? String(value) : "")), incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500] }],
          series: [
            {},
            { ...lineOf(ink, 0, true), paths, fill: `${ink.series[0]}33` },
            { ...lineOf(ink, 0, false), paths, dash: [5, 4] },
          ],
          cursor: { y: false, points: { show: false } },
          hooks: {
            draw: [
              (plot) => {
                paintMarks(plot, past.marks, ink);
                if (deadline !== null) paintDeadline(plot, deadline, ink);
              },
            ],
          },
        },
        [times, held, planned],
        host,
      );
      return () => plot.destroy();
    },
    [past, job.plan, deadline, job.ended, tick],
  );
  if (problem) return <Problem>Its past cannot be read: {problem}</Problem>;
  if (!past) return <div class="plot-place" />;
  if (past.time.length === 0) return <p class="empty">It has held no GPU yet.</p>;
  return (
    <>
      <Plot draw={draw} height={220} label={`GPUs of job ${job.id} over time`} />
      <p class="quiet">▶ start ▲ grow ▼ shrink ⇄ move ↻ restart ✚ recovery ■ stop. A dashed line is planned.</p>
      <details>
        <summary>As a table</summary>
        <Table name="marks" label="Changes of this job" rows={past.marks} columns={markColumns} keyOf={(mark) => `${mark.time} ${mark.kind} ${mark.gpus}`} empty="Nothing has changed yet." sort="time" />
      </details>
    </>
  );
}

function paintDeadline(plot: uPlot, at: number, ink: Ink): void {
  const x = plot.valToPos(at, "x", true);
  const { ctx, bbox } = plot;
  if (x < bbox.left || x > bbox.left + bbox.width) return;
  ctx.fillStyle = ink.late;
  ctx.fillRect(x, bbox.top, 2 * devicePixelRatio, bbox.height);
}

const markColumns: Column<TimelineMark>[] = [
  { name: "time", title: "Time", cell: (mark) => <Clock when={mark.time} />, value: (mark) => exact(mark.time) },
  { name: "kind", title: "What", cell: (mark) => `${markShapes[mark.kind] ?? "•"} ${mark.kind}`, value: (mark) => mark.kind },
  { name: "gpus", title: "GPUs", number: true, cell: (mark) => mark.gpus, value: (mark) => mark.gpus },
  { name: "pause", title: "Pause", number: true, cell: (mark) => (mark.pause_ms == null ? "–" : `${formatNumber(mark.pause_ms)} ms`), value: (mark) => mark.pause_ms ?? null },
  { name: "reason", title: "Why", cell: (mark) => <bdi>{mark.reason ?? ""}</bdi>, value: (mark) => mark.reason ?? null },
];

interface Sample {
  at: number;
  loss: number | null;
  rate: number;
  batch: number | null;
}

const mostSamples = 2000;

/** What the job has reported since this page was opened; the daemon keeps only the newest report. */
function useSamples(job: Job): Sample[] {
  const samples = useRef<{ id: number; list: Sample[] }>({ id: job.id, list: [] });
  if (samples.current.id !== job.id) samples.current = { id: job.id, list: [] };
  const { list } = samples.current;
  const last = useRef("");
  const version = `${job.id} ${job.progress.step} ${job.progress.loss} ${job.progress.rate} ${job.batch}`;
  if (last.current !== version) {
    last.current = version;
    list.push({ at: now(), loss: job.progress.loss, rate: job.progress.rate, batch: job.batch });
    if (list.length > mostSamples) list.splice(0, list.length - mostSamples);
  }
  return list;
}

export function TrainingCharts({ job }: { job: Job }) {
  const samples = useSamples(store.jobs.get(job.id) ?? job);
  const count = samples.length;
  const series = useMemo(
    () =>
      [
        ["Loss", samples.map((sample) => sample.loss)],
        ["Samples a second", samples.map((sample) => sample.rate || null)],
        ["Batch size", samples.map((sample) => sample.batch)],
      ] as [string, (number | null)[]][],
    [count, samples],
  );
  const times = samples.map((sample) => sample.at);
  const shown = series.filter(([, values]) => values.some((value) => value !== null));
  if (shown.length === 0) return <p class="empty">The program has reported neither loss nor speed.</p>;
  return (
    <>
      <div class="small-charts">
        {shown.map(([title, values], i) => (
          <figure key={title}>
            <figcaption><strong>{title}</strong> <span class="number">{formatNumber(lastOf(values))}</span></figcaption>
            <Sparkline title={title} times={times} values={values} run={i} version={count} />
          </figure>
        ))}
      </div>
      <p class="quiet">Since {clock(times[0])}, when this page was opened. The daemon keeps only the newest report of a job.</p>
    </>
  );
}

function lastOf(values: (number | null)[]): number | null {
  for (let i = values.length - 1; i >= 0; i--) if (values[i] !== null) return values[i]!;
  return null;
}

function Sparkline({ title, times, values, run, version }: { title: string; times: number[]; values: (number | null)[]; run: number; version: number }) {
  const draw: Draw = useCallback(
    (host, width, ink) => {
      const lo = times[0]!;
      const hi = Math.max(lo + 5, times[times.length - 1]!);
      const plot = new uPlot(
        {
          ...baseOptions(width, 130),
          scales: { x: { time: false, range: () => [lo, hi] } },
          axes: [timeAxis(ink), valueAxis(ink, formatNumber)],
          series: [{}, { ...lineOf(ink, run, true), points: { show: times.length < 3, size: 5 } }],
          cursor: { show: false },
        },
        [times, values],
        host,
      );
      return () => plot.destroy();
    },
    [version],
  );
  return <Plot draw={draw} height={130} label={`${title} over time`} />;
}
