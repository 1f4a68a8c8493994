// How the page is being shown (light, dark or on paper), for everything drawn on a canvas.
import { Observable } from "./observable";

export interface Ink {
  text: string;
  muted: string;
  grid: string;
  boundary: string;
  surface: string;
  idle: string;
  busy: string;
  accent: string;
  late: string;
  series: string[];
}

const seriesColours = 8;

/** Notifies synchronously: a browser prints as soon as its beforeprint event returns. */
export const presentationChanged = new Observable();

export function seriesColour(run: number): string {
  return `var(--series-${run % seriesColours})`;
}

/** Colours repeat after eight runs; from there on lines are dashed. */
export function seriesDash(run: number): number[] {
  return run < seriesColours ? [] : [6, 4];
}

export function currentInk(): Ink {
  const style = getComputedStyle(document.documentElement);
  const read = (name: string) => style.getPropertyValue(`--${name}`).trim();
  return {
    text: read("text"),
    muted: read("muted"),
    grid: read("grid"),
    boundary: read("boundary"),
    surface: read("surface"),
    idle: read("idle"),
    busy: read("busy"),
    accent: read("accent"),
    late: read("late"),
    series: Array.from({ length: seriesColours }, (_, i) => read(`series-${i}`)),
  };
}

export const canvasFont = '11.5px system-ui, -apple-system, "Segoe UI", sans-serif';

export function watchPresentation(): void {
  const onPaper = (printing: boolean) => {
    document.documentElement.classList.toggle("printing", printing);
    presentationChanged.notify();
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => presentationChanged.notify());
  matchMedia("print").addEventListener("change", (event) => onPaper(event.matches));
  addEventListener("beforeprint", () => onPaper(true));
  addEventListener("afterprint", () => onPaper(false));
}
