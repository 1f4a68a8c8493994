// Colours of jobs on the timeline: the same under every policy, and apart for colour-blind eyes.
import type { Jobs, Run } from "./data";
import { slack } from "./outcome";

export type ColourMode = "job" | "user" | "model" | "gpus" | "deadline";

export const colourModes: [ColourMode, string][] = [
  ["job", "Job"],
  ["user", "User"],
  ["model", "Model"],
  ["gpus", "GPUs requested"],
  ["deadline", "On time or late"],
];

/** Red, green and blue as canvas pixels hold them: 0xAABBGGRR, opaque. */
export type Pixel = number;

export interface LegendEntry {
  label: string;
  colour: string;
}

export interface JobColouring {
  pixels: Uint32Array;
  /** Tells single jobs apart, which is noise where they are too small to see. */
  perJob: boolean;
  legend: LegendEntry[];
}

export const hues = ["#5b6fb5", "#88c5e6", "#44a596", "#2f8050", "#9a9a3c", "#dcc572", "#cc6f7c", "#93376a", "#b06fb0"];
const tints = [0, 0.3, -0.14];
export const others = "#9aa3ad";
export const onTime = "#3f8fc4";
export const late = "#d9622b";
const sizeRamp = ["#f0d273", "#b5cf70", "#70c083", "#38a690", "#2a889d", "#37689e", "#524d99", "#6b3f8f"];

export function toPixel(hex: string): Pixel {
  const rgb = parseInt(hex.slice(1), 16);
  return pack(rgb >> 16, (rgb >> 8) & 255, rgb & 255);
}

function pack(red: number, green: number, blue: number): Pixel {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

export function mixPixels(a: Pixel, b: Pixel, shareOfB: number): Pixel {
  return pack(
    mixChannel(a & 255, b & 255, shareOfB),
    mixChannel((a >>> 8) & 255, (b >>> 8) & 255, shareOfB),
    mixChannel((a >>> 16) & 255, (b >>> 16) & 255, shareOfB),
  );
}

function mixChannel(a: number, b: number, shareOfB: number): number {
  return Math.round(a + (b - a) * shareOfB);
}

export function luminance(pixel: Pixel): number {
  const linear = (shift: number) => {
    const value = ((pixel >>> shift) & 255) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  };
  return 0.2126 * linear(0) + 0.7152 * linear(8) + 0.0722 * linear(16);
}

/** The colour of text on this one. */
export function inkOn(pixel: Pixel): string {
  return luminance(pixel) > 0.2 ? "#10161d" : "#ffffff";
}

const white = toPixel("#ffffff");
const black = toPixel("#000000");

const jobPalette = tints.flatMap((tint) =>
  hues.map((hue) => mixPixels(toPixel(hue), tint > 0 ? white : black, Math.abs(tint))),
);

/** Depends on the job's place in the trace alone; neighbours get different hues. */
export function jobPixel(job: number): Pixel {
  return jobPalette[(job * 4) % jobPalette.length]!;
}

export function colourJobs(mode: ColourMode, jobs: Jobs, run: Run): JobColouring {
  switch (mode) {
    case "user":
      return byCategory(jobs, jobs.user);
    case "model":
      return byCategory(jobs, jobs.model);
    case "gpus":
      return bySize(jobs);
    case "deadline":
      return byDeadline(jobs, run);
    case "job":
      return { pixels: Uint32Array.from({ length: jobs.count }, (_, job) => jobPixel(job)), perJob: true, legend: [] };
  }
}

/** The categories with the most work get a colour of their own. */
function byCategory(jobs: Jobs, category: string[]): JobColouring {
  const work = new Map<string, number>();
  category.forEach((name, job) => {
    if (name !== "") work.set(name, (work.get(name) ?? 0) + jobs.workGpuSeconds[job]!);
  });
  const ranked = [...work].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0]));
  const colourOf = new Map(ranked.slice(0, hues.length).map(([name], i) => [name, hues[i]!]));
  const legend = [...colourOf].map(([label, colour]) => ({ label, colour }));
  if (category.some((name) => !colourOf.has(name))) legend.push({ label: "all others", colour: others });
  return paint(category.map((name) => colourOf.get(name) ?? others), legend);
}

function bySize(jobs: Jobs): JobColouring {
  const bandOf = (gpus: number) => Math.min(sizeRamp.length - 1, Math.ceil(Math.log2(Math.max(1, gpus))));
  const used = new Set(jobs.gpus.map(bandOf));
  const legend = sizeRamp
    .map((colour, band) => ({ label: bandLabel(band), colour, band }))
    .filter(({ band }) => used.has(band));
  return paint(jobs.gpus.map((gpus) => sizeRamp[bandOf(gpus)]!), legend);
}

function bandLabel(band: number): string {
  const top = 2 ** band;
  const bottom = top / 2 + 1;
  if (band === sizeRamp.length - 1) return `${bottom} or more GPUs`;
  if (band === 0) return "1 GPU";
  return bottom === top ? `${top} GPUs` : `${bottom}–${top} GPUs`;
}

function byDeadline(jobs: Jobs, run: Run): JobColouring {
  const colours = jobs.deadline.map((deadline, job) => {
    if (deadline === null) return others;
    return (slack(jobs, run, job) ?? -1) >= 0 ? onTime : late;
  });
  const legend = [
    { label: "on time", colour: onTime },
    { label: "late or unfinished", colour: late },
    { label: "no deadline", colour: others },
  ];
  return paint(colours, legend);
}

function paint(colours: string[], legend: LegendEntry[]): JobColouring {
  return { pixels: Uint32Array.from(colours, toPixel), perJob: false, legend };
}

/** All other jobs faded into the background. */
export function spotlight(pixels: Uint32Array, isLit: (job: number) => boolean, background: Pixel): Uint32Array {
  return pixels.map((pixel, i) => (isLit(i) ? pixel : mixPixels(pixel, background, 0.72)));
}
