// A place for a uPlot chart: drawn again when its inputs, its width or the presentation change.
import { useLayoutEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { formatTick } from "./format";
import { canvasFont, currentInk, presentationChanged, seriesDash, type Ink } from "./presentation";
import type { Span } from "./span";
import { margin } from "./timeline_canvas";

/** Creates a chart in the host; returns how to remove it. */
export type Draw = (host: HTMLElement, width: number, ink: Ink) => () => void;

export function Plot({ draw, height, label }: { draw: Draw; height: number; label: string }) {
  const host = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const place = host.current!;
    let width = 0;
    let remove = () => {};
    const redraw = () => {
      remove();
      width = place.clientWidth;
      remove = draw(place, width, currentInk());
    };
    redraw();
    const sizes = new ResizeObserver(() => place.clientWidth !== width && redraw());
    sizes.observe(place);
    const unsubscribe = presentationChanged.subscribe(redraw);
    return () => {
      unsubscribe();
      sizes.disconnect();
      remove();
    };
  }, [draw]);
  return <div class="plot" ref={host} style={{ height: `${height}px` }} role="img" aria-label={label} />;
}

const tickRoom = 110;

type Ticks = (lo: number, hi: number, most: number) => number[];

function axisOf(ink: Ink): uPlot.Axis {
  return {
    stroke: ink.muted,
    font: canvasFont,
    grid: { stroke: ink.grid, width: 1 },
    ticks: { stroke: ink.grid, width: 1, size: 5 },
    gap: 6,
  };
}

export function durationAxis(ink: Ink, ticks: Ticks): uPlot.Axis {
  return {
    ...axisOf(ink),
    size: 30,
    splits: (plot, _, lo, hi) => ticks(lo, hi, plot.width / tickRoom),
    // On a logarithmic scale uPlot would label powers of ten only.
    filter: (_, splits) => splits,
    values: (_, splits) => splits.map(formatTick),
  };
}

export function valueAxis(ink: Ink, format: (value: number) => string): uPlot.Axis {
  return { ...axisOf(ink), size: margin.left, values: (_, splits) => splits.map(format) };
}

/** The selected run stands out by its weight. */
export function lineOf(ink: Ink, run: number, selected: boolean): uPlot.Series {
  return {
    stroke: ink.series[run % ink.series.length]!,
    width: selected ? 2.5 : 1.4,
    dash: seriesDash(run),
    points: { show: false },
  };
}

export function baseOptions(width: number, height: number): Pick<uPlot.Options, "width" | "height" | "padding" | "legend"> {
  return { width, height, padding: [10, margin.right, 0, 0], legend: { show: false } };
}

/** Dragging over a chart selects a range of its x axis; a double click asks for everything. */
export function dragSelect(onReset: () => void): uPlot.Cursor {
  const dblclick: uPlot.Cursor.MouseListenerFactory = () => () => {
    onReset();
    return null;
  };
  return { y: false, drag: { x: true, y: false, setScale: false }, points: { size: 7 }, bind: { dblclick } };
}

/** Where the pointer is on the x axis; null if elsewhere. */
export function pointedX(plot: uPlot): number | null {
  const left = plot.cursor.left ?? -1;
  return left < 0 ? null : plot.posToVal(left, "x");
}

const shortestDrag = 3;

/** Hands over what a finished drag selected, in axis units, and clears the selection. */
export function onSelection(use: (span: Span) => void): (plot: uPlot) => void {
  return (plot) => {
    const { left, width } = plot.select;
    const span = { lo: plot.posToVal(left, "x"), hi: plot.posToVal(left + width, "x") };
    plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    if (width >= shortestDrag) use(span);
  };
}
