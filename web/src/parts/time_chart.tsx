// A quantity over time for several runs, on the shared stretch of time.
import { useCallback, useMemo } from "preact/hooks";
import uPlot from "uplot";
import { formatMoment } from "./format";
import { useChanges } from "./observable";
import { baseOptions, dragSelect, durationAxis, lineOf, onSelection, Plot, pointedX, valueAxis, type Draw } from "./plot";
import type { Ink } from "./presentation";
import { margin } from "./timeline_canvas";
import { Readout } from "./readout";
import { evenGrid, resample, type StepSeries } from "./steps";
import { durationTicks } from "./ticks";
import type { Viewport } from "./viewport";

export interface TimeLine {
  run: number;
  label: string;
  steps: StepSeries;
}

interface Props {
  label: string;
  lines: TimeLine[];
  selected: number;
  viewport: Viewport;
  format(value: number | null): string;
  /** Top of the value axis; fitted to the data if absent. */
  top?: number;
  height: number;
}

const pixelsPerBucket = 2;

export function TimeChart(props: Props) {
  const { label, lines, selected, viewport, format, top, height } = props;
  const draw: Draw = useCallback(
    (host, width, ink) => drawTimeChart(props, host, width, ink),
    [lines, selected, viewport, format, top, height],
  );
  return (
    <div class="with-side">
      <Plot draw={draw} height={height} label={label} />
      <TimeReadout lines={lines} selected={selected} viewport={viewport} format={format} />
    </div>
  );
}

function drawTimeChart(props: Props, host: HTMLElement, width: number, ink: Ink): () => void {
  const { lines, viewport } = props;
  const buckets = Math.max(1, Math.round((width - margin.left - margin.right) / pixelsPerBucket));
  const data = (): uPlot.AlignedData => {
    const grid = evenGrid(viewport.time, buckets);
    return [grid, ...lines.map((line) => resample(line.steps, grid))];
  };
  const plot = new uPlot(timeOptions(props, width, ink), data(), host);
  const stops = [
    viewport.changed.subscribe(() => plot.setData(data())),
    viewport.cursorMoved.subscribe(() => followCursor(plot, viewport.cursor)),
    () => plot.destroy(),
  ];
  return () => stops.forEach((stop) => stop());
}

function timeOptions({ lines, selected, viewport, format, top, height }: Props, width: number, ink: Ink): uPlot.Options {
  const paths = uPlot.paths.stepped!({ align: 1 });
  return {
    ...baseOptions(width, height),
    scales: {
      x: { time: false, range: () => [viewport.time.lo, viewport.time.hi] },
      y: { range: (_plot, _min, max) => [0, top ?? Math.max(1, (max ?? 0) * 1.05)] },
    },
    axes: [durationAxis(ink, durationTicks), valueAxis(ink, format)],
    series: [{}, ...lines.map(({ run }) => ({ ...lineOf(ink, run, run === selected), paths }))],
    cursor: dragSelect(() => viewport.reset()),
    hooks: {
      setCursor: [(plot) => viewport.moveCursor(pointedX(plot))],
      setSelect: [onSelection((span) => viewport.show(span))],
    },
  };
}

function followCursor(plot: uPlot, moment: number | null): void {
  const left = moment === null ? -10 : plot.valToPos(moment, "x");
  if (Math.abs(left - (plot.cursor.left ?? -10)) < 0.5) return;
  plot.setCursor({ left, top: left < 0 ? -10 : 0 }, false);
}

type ReadoutProps = Pick<Props, "lines" | "selected" | "viewport" | "format">;

function TimeReadout({ lines, selected, viewport, format }: ReadoutProps) {
  useChanges(viewport.changed);
  useChanges(viewport.cursorMoved);
  const { cursor, time, isZoomed } = viewport;
  const averages = useMemo(() => lines.map((line) => line.steps.average(time)), [lines, time]);
  const rows = lines.map(({ run, label, steps }, i) => ({
    run,
    label,
    value: format(cursor === null ? averages[i]! : steps.at(cursor)),
  }));
  const whole = isZoomed ? "Average in view" : "Average";
  return <Readout caption={cursor === null ? whole : `At ${formatMoment(cursor)}`} rows={rows} selected={selected} />;
}
