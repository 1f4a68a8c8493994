// Draws one timeline: the picture itself, and above it what follows the pointer.
import { formatTick } from "./format";
import { inkOn, spotlight, toPixel } from "./job_colours";
import type { NodeMap } from "./nodes";
import { canvasFont, currentInk, type Ink } from "./presentation";
import { lengthOf, type Span } from "./span";
import { durationTicks } from "./ticks";
import type { TimelineIndex } from "./timeline_index";
import { TimelineRaster } from "./timeline_raster";
import type { Viewport } from "./viewport";

/** Space around the plot; left and right match the charts so that times line up. */
export const margin = { left: 60, right: 36, bottom: 24 };

export interface Scene {
  index: TimelineIndex;
  nodes: NodeMap;
  jobNames: string[];
  pixels: Uint32Array;
  perJob: boolean;
  pinned: number | null;
  viewport: Viewport;
  /** Labels of the time axis; durations if absent. */
  ticks?(time: Span, most: number): Tick[];
  /** The present: what is right of it has not happened yet. */
  now?: number;
  /** If present, a job from this number on is the plan of the job that is so many before it. */
  plansFrom?: number;
  /** Deadlines to mark on the rows of their jobs. */
  deadlines?: { job: number; at: number }[];
}

export interface Tick {
  at: number;
  label: string;
}

/** A box being dragged, in plot coordinates. */
export interface Box {
  left: number;
  right: number;
  top: number;
  bottom: number;
}

const tickRoom = 110;
const labelRoom = { width: 44, height: 13 };
const mostLabels = 500;
const roomForNodeLine = 8;
const roomForNodeName = 15;
const smallestMark = 3;
const longestName = 9;

export class TimelineCanvas {
  private raster = new TimelineRaster(1, 1);
  private width = 0;
  private height = 0;
  private scale = 1;
  private frame = 0;
  box: Box | null = null;
  hovered: number | null = null;

  constructor(
    private readonly picture: HTMLCanvasElement,
    private readonly overlay: HTMLCanvasElement,
    public scene: Scene,
  ) {}

  /** Size of the plot in CSS pixels, without margins. */
  get plotWidth(): number {
    return Math.max(1, this.width - margin.left - margin.right);
  }

  get plotHeight(): number {
    return Math.max(1, this.height - margin.bottom);
  }

  resize(width: number, height: number): void {
    this.width = width;
    this.height = height;
    this.scale = Math.min(2, window.devicePixelRatio || 1);
    sizeCanvas(this.picture, width, height, this.scale);
    sizeCanvas(this.overlay, this.plotWidth, this.plotHeight, this.scale);
    this.raster = new TimelineRaster(
      Math.max(1, Math.round(this.plotWidth * this.scale)),
      Math.max(1, Math.round(this.plotHeight * this.scale)),
    );
    this.paint();
  }

  timeAt(x: number): number {
    const { time } = this.scene.viewport;
    return time.lo + (x / this.plotWidth) * lengthOf(time);
  }

  laneAt(y: number): number {
    const { lanes } = this.scene.viewport;
    return lanes.lo + (y / this.plotHeight) * lengthOf(lanes);
  }

  /** Row of the rectangle under a point, or -1. */
  rowAt(x: number, y: number): number {
    const lane = this.laneAt(y);
    const lanesPerPixel = this.laneAt(y + 1) - lane;
    return this.scene.index.find(
      { lo: this.timeAt(x), hi: this.timeAt(x + 1) },
      lanesPerPixel > 1 ? { lo: lane, hi: lane + lanesPerPixel } : { lo: Math.floor(lane), hi: Math.floor(lane) + 1 },
    );
  }

  requestPaint(): void {
    if (this.frame === 0) this.frame = requestAnimationFrame(() => this.paint());
  }

  dispose(): void {
    cancelAnimationFrame(this.frame);
  }

  paint(): void {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const ink = currentInk();
    const context = prepared(this.picture, this.scale);
    if (!context) return;
    this.paintRaster(context, ink);
    context.save();
    context.translate(margin.left, 0);
    this.paintNodes(context, ink);
    this.paintLabels(context);
    this.paintDeadlines(context, ink);
    this.paintNow(context, ink);
    this.paintTimeAxis(context, ink);
    context.restore();
    this.paintOverlay();
    this.publishView();
  }

  paintOverlay(): void {
    const context = prepared(this.overlay, this.scale);
    if (!context) return;
    const ink = currentInk();
    const { pinned, viewport } = this.scene;
    if (this.hovered !== null && this.hovered !== pinned) this.markJob(context, this.hovered, ink, 1);
    if (pinned !== null) this.markJob(context, pinned, ink, 2);
    if (viewport.cursor !== null) this.paintCursor(context, this.xOf(viewport.cursor), ink);
    if (this.box) this.paintBox(context, this.box, ink);
  }

  private xOf(moment: number): number {
    const { time } = this.scene.viewport;
    return ((moment - time.lo) / lengthOf(time)) * this.plotWidth;
  }

  private yOf(lane: number): number {
    const { lanes } = this.scene.viewport;
    return ((lane - lanes.lo) / lengthOf(lanes)) * this.plotHeight;
  }

  private paintRaster(context: CanvasRenderingContext2D, ink: Ink): void {
    const { index, pixels, perJob, pinned, viewport } = this.scene;
    const idle = toPixel(ink.idle);
    const busy = toPixel(ink.busy);
    const paint =
      pinned === null
        ? { pixels, idle, blur: perJob ? busy : null }
        : { pixels: spotlight(pixels, (job) => this.real(job) === pinned, idle), idle, blur: null };
    this.raster.paint(index, paint, viewport.time, viewport.lanes);
    const { width, height } = this.raster;
    const bytes = new Uint8ClampedArray(this.raster.pixels.buffer as ArrayBuffer);
    context.putImageData(new ImageData(bytes, width, height), Math.round(margin.left * this.scale), 0);
  }

  private paintNodes(context: CanvasRenderingContext2D, ink: Ink): void {
    const { nodes, viewport } = this.scene;
    if (nodes.count === 0) return;
    const first = nodes.nodeOf(viewport.lanes.lo);
    const last = nodes.nodeOf(viewport.lanes.hi - 1e-9);
    let nameFrom = -Infinity;
    for (let node = first; node <= last; node++) {
      const top = this.yOf(nodes.firstLane[node]!);
      const bottom = this.yOf(nodes.firstLane[node]! + nodes.lanesOf(node));
      if (nodes.startsGroup(node)) this.paintBoundary(context, top, ink.text);
      else if (bottom - top >= roomForNodeLine) this.paintBoundary(context, top, ink.boundary);
      const middle = (Math.max(0, top) + Math.min(this.plotHeight, bottom)) / 2;
      if (middle < nameFrom || middle > this.plotHeight - 5) continue;
      this.paintNodeName(context, node, Math.max(6, middle), ink);
      nameFrom = middle + roomForNodeName;
    }
  }

  private paintBoundary(context: CanvasRenderingContext2D, y: number, colour: string): void {
    if (y <= 0 || y >= this.plotHeight) return;
    context.fillStyle = colour;
    context.fillRect(-4, Math.round(y) - 1, this.plotWidth + 4, 1);
  }

  private paintNodeName(context: CanvasRenderingContext2D, node: number, y: number, ink: Ink): void {
    context.font = canvasFont;
    context.fillStyle = ink.muted;
    context.textAlign = "right";
    context.textBaseline = "middle";
    const name = this.scene.nodes.nameOf(node);
    // The names of hosts differ at their end.
    context.fillText(name.length > longestName ? `…${name.slice(1 - longestName)}` : name, -8, y, margin.left - 10);
  }

  private paintLabels(context: CanvasRenderingContext2D): void {
    const { index, viewport, jobNames, pixels, pinned } = this.scene;
    if ((this.plotHeight / lengthOf(viewport.lanes)) * index.widest < labelRoom.height) return;
    context.font = canvasFont;
    context.textAlign = "left";
    context.textBaseline = "middle";
    let labels = 0;
    index.forEachDuring(viewport.time, (i) => {
      const area = this.boxOf(i);
      const roomy = area.right - area.left >= labelRoom.width && area.bottom - area.top >= labelRoom.height;
      const job = index.job[i]!;
      if (!roomy || labels >= mostLabels || (pinned !== null && pinned !== this.real(job))) return;
      labels++;
      context.fillStyle = inkOn(pixels[job]!);
      paintClipped(context, jobNames[job]!, area);
    });
  }

  private paintTimeAxis(context: CanvasRenderingContext2D, ink: Ink): void {
    const { time } = this.scene.viewport;
    context.font = canvasFont;
    context.textAlign = "center";
    context.textBaseline = "top";
    const ticks = this.scene.ticks ?? durationAxisTicks;
    for (const { at, label } of ticks(time, this.plotWidth / tickRoom)) {
      const x = Math.round(this.xOf(at));
      context.fillStyle = ink.grid;
      context.fillRect(x, this.plotHeight, 1, 5);
      context.fillStyle = ink.muted;
      context.fillText(label, x, this.plotHeight + 8);
    }
  }

  /** A flag across the last rectangle of each job that has a deadline. */
  private paintDeadlines(context: CanvasRenderingContext2D, ink: Ink): void {
    for (const { job, at } of this.scene.deadlines ?? []) {
      const x = Math.round(this.xOf(at));
      if (x < 0 || x > this.plotWidth) continue;
      const rows = this.rowsOf(job);
      if (rows.length === 0) continue;
      const last = rows.reduce((best, row) => (this.scene.index.end[row]! > this.scene.index.end[best]! ? row : best));
      const { top, bottom } = this.boxOf(last);
      if (bottom <= top) continue;
      context.fillStyle = ink.late;
      context.fillRect(x - 1, top, 2, bottom - top);
      context.beginPath();
      context.moveTo(x, top);
      context.lineTo(x + 7, top + 4);
      context.lineTo(x, top + 8);
      context.fill();
    }
  }

  private paintNow(context: CanvasRenderingContext2D, ink: Ink): void {
    const { now } = this.scene;
    if (now === undefined) return;
    const x = Math.round(this.xOf(now));
    if (x < 0 || x > this.plotWidth) return;
    context.fillStyle = ink.accent;
    context.fillRect(x, 0, 2, this.plotHeight + 4);
  }

  /** The job itself, for a job or its plan. */
  private real(job: number): number {
    const { plansFrom } = this.scene;
    return plansFrom !== undefined && job >= plansFrom ? job - plansFrom : job;
  }

  /** The rectangles of a job and of its plan. */
  private rowsOf(job: number): readonly number[] {
    const { index, plansFrom } = this.scene;
    return plansFrom === undefined ? index.rowsOf(job) : [...index.rowsOf(job), ...index.rowsOf(job + plansFrom)];
  }

  /** The job under a point, or null. */
  jobAt(x: number, y: number): number | null {
    const row = this.rowAt(x, y);
    return row < 0 ? null : this.real(this.scene.index.job[row]!);
  }

  /** The visible part of a rectangle, in plot coordinates. */
  private boxOf(row: number): Box {
    const { index } = this.scene;
    const lane = index.lane[row]!;
    return {
      left: Math.max(0, this.xOf(index.start[row]!)),
      right: Math.min(this.plotWidth, this.xOf(index.end[row]!)),
      top: Math.max(0, this.yOf(lane)),
      bottom: Math.min(this.plotHeight, this.yOf(lane + index.width[row]!)),
    };
  }

  private markJob(context: CanvasRenderingContext2D, job: number, ink: Ink, thickness: number): void {
    for (const row of this.rowsOf(job)) {
      const area = this.boxOf(row);
      if (area.left > area.right || area.top > area.bottom) continue;
      // A sliver still has to be found by eye.
      const width = Math.max(smallestMark, area.right - area.left);
      const height = Math.max(smallestMark, area.bottom - area.top);
      context.lineWidth = thickness + 2;
      context.strokeStyle = ink.surface;
      context.strokeRect(area.left, area.top, width, height);
      context.lineWidth = thickness;
      context.strokeStyle = ink.text;
      context.strokeRect(area.left, area.top, width, height);
    }
  }

  private paintCursor(context: CanvasRenderingContext2D, x: number, ink: Ink): void {
    if (x < 0 || x > this.plotWidth) return;
    context.fillStyle = ink.text;
    context.globalAlpha = 0.55;
    context.fillRect(Math.round(x), 0, 1, this.plotHeight);
    context.globalAlpha = 1;
  }

  private paintBox(context: CanvasRenderingContext2D, box: Box, ink: Ink): void {
    context.fillStyle = ink.text;
    context.globalAlpha = 0.15;
    context.fillRect(box.left, box.top, box.right - box.left, box.bottom - box.top);
    context.globalAlpha = 1;
  }

  /** The range on view, for whoever needs to find a rectangle on the screen. */
  private publishView(): void {
    const { time, lanes } = this.scene.viewport;
    this.overlay.dataset.time = spanText(time);
    this.overlay.dataset.lanes = spanText(lanes);
  }
}

function durationAxisTicks(time: Span, most: number): Tick[] {
  return durationTicks(time.lo, time.hi, most).map((at) => ({ at, label: formatTick(at) }));
}

function spanText(span: Span): string {
  return `${span.lo} ${span.hi}`;
}

function sizeCanvas(canvas: HTMLCanvasElement, width: number, height: number, scale: number): void {
  canvas.width = Math.max(1, Math.round(width * scale));
  canvas.height = Math.max(1, Math.round(height * scale));
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
}

function prepared(canvas: HTMLCanvasElement, scale: number): CanvasRenderingContext2D | null {
  const context = canvas.getContext("2d");
  context?.setTransform(scale, 0, 0, scale, 0, 0);
  context?.clearRect(0, 0, canvas.width, canvas.height);
  return context;
}

function paintClipped(context: CanvasRenderingContext2D, text: string, area: Box): void {
  context.save();
  context.beginPath();
  context.rect(area.left, area.top, area.right - area.left - 4, area.bottom - area.top);
  context.clip();
  context.fillText(text, area.left + 4, (area.top + area.bottom) / 2);
  context.restore();
}
