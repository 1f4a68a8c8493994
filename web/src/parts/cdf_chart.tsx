// Share of jobs finished within a given time of their submission, for several runs.
import { useCallback, useMemo, useState } from "preact/hooks";
import uPlot from "uplot";
import { formatDuration, formatPercent } from "./format";
import { baseOptions, dragSelect, durationAxis, lineOf, onSelection, Plot, pointedX, valueAxis, type Draw } from "./plot";
import type { Ink } from "./presentation";
import { Readout } from "./readout";
import { firstAbove, type Span } from "./span";
import { durationTicks, logDurationTicks } from "./ticks";

export interface CdfLine {
  run: number;
  label: string;
  /** Sorted completion times of the jobs that finished. */
  times: Float64Array;
  /** Completion time of the job to point out, if it finished. */
  marked: number | null;
}

interface Props {
  label: string;
  lines: CdfLine[];
  /** Jobs a share is of: rejected ones count, so their policy's line stays below 100 %. */
  jobs: number;
  selected: number;
  logarithmic: boolean;
  height: number;
}

const gridPoints = 600;
const shortestShown = 0.01;

export function shareWithin(line: CdfLine, time: number, jobs: number): number {
  return jobs > 0 ? firstAbove(line.times, time) / jobs : 0;
}

/** Range of finished jobs' times; null if none finished. */
export function cdfRange(lines: CdfLine[], logarithmic: boolean): Span | null {
  const finished = lines.filter((line) => line.times.length > 0);
  if (finished.length === 0) return null;
  const lo = Math.max(shortestShown, Math.min(...finished.map((line) => line.times[0]!)));
  const hi = Math.max(lo, ...finished.map((line) => line.times[line.times.length - 1]!));
  return logarithmic ? { lo: lo / 1.2, hi: hi * 1.2 } : { lo: 0, hi: hi * 1.02 };
}

export function cdfGrid({ lo, hi }: Span, logarithmic: boolean): number[] {
  return Array.from({ length: gridPoints + 1 }, (_, i) => {
    const part = i / gridPoints;
    return logarithmic ? lo * (hi / lo) ** part : lo + (hi - lo) * part;
  });
}

export function CdfChart(props: Props) {
  const { label, lines, jobs, selected, logarithmic, height } = props;
  const [zoom, setZoom] = useState<Span | null>(null);
  const [cursor, setCursor] = useState<number | null>(null);
  const range = useMemo(() => zoom ?? cdfRange(lines, logarithmic), [zoom, lines, logarithmic]);
  const draw: Draw = useCallback(
    (host, width, ink) => {
      if (!range) return () => {};
      const grid = cdfGrid(range, logarithmic);
      const shares = lines.map((line) => grid.map((time) => shareWithin(line, time, jobs)));
      const plot = new uPlot(cdfOptions(props, range, { setZoom, setCursor }, width, ink), [grid, ...shares], host);
      return () => plot.destroy();
    },
    [lines, jobs, selected, logarithmic, range, height],
  );
  const rows = lines.map((line) => ({
    run: line.run,
    label: line.label,
    value: formatPercent(shareWithin(line, cursor ?? Infinity, jobs)),
  }));
  return (
    <div class="with-side">
      {range ? <Plot draw={draw} height={height} label={label} /> : <p class="empty">No job finished, so there is nothing to draw.</p>}
      <Readout caption={cursor === null ? "Finished at the end" : `Finished within ${formatDuration(cursor)}`} rows={rows} selected={selected} />
    </div>
  );
}

interface Pointing {
  setZoom(span: Span | null): void;
  setCursor(time: number | null): void;
}

function cdfOptions(props: Props, range: Span, pointing: Pointing, width: number, ink: Ink): uPlot.Options {
  const { lines, jobs, selected, logarithmic, height } = props;
  return {
    ...baseOptions(width, height),
    scales: {
      x: { time: false, distr: logarithmic ? 3 : 1, range: () => [range.lo, range.hi] },
      y: { range: () => [0, 1.02] },
    },
    axes: [
      durationAxis(ink, logarithmic ? logDurationTicks : durationTicks),
      { ...valueAxis(ink, formatPercent), splits: () => [0, 0.25, 0.5, 0.75, 1] },
    ],
    series: [{}, ...lines.map(({ run }) => lineOf(ink, run, run === selected))],
    cursor: dragSelect(() => pointing.setZoom(null)),
    hooks: {
      setCursor: [(plot) => pointing.setCursor(pointedX(plot))],
      setSelect: [onSelection(pointing.setZoom)],
      draw: [(plot) => lines.forEach((line) => markJob(plot, line, jobs, ink))],
    },
  };
}

function markJob(plot: uPlot, line: CdfLine, jobs: number, ink: Ink): void {
  if (line.marked === null) return;
  const x = plot.valToPos(line.marked, "x", true);
  const y = plot.valToPos(shareWithin(line, line.marked, jobs), "y", true);
  const { left, width } = plot.bbox;
  if (!(x >= left && x <= left + width)) return;
  const { ctx } = plot;
  ctx.beginPath();
  ctx.arc(x, y, 5 * devicePixelRatio, 0, 2 * Math.PI);
  ctx.fillStyle = ink.series[line.run % ink.series.length]!;
  ctx.fill();
  ctx.lineWidth = 2 * devicePixelRatio;
  ctx.strokeStyle = ink.surface;
  ctx.stroke();
}
