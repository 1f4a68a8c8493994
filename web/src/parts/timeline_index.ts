// Finds the rectangles of a timeline by time, by place and by job.
import type { Segments } from "./data";
import { firstAbove, type Span } from "./span";

const blockSize = 256;

export class TimelineIndex {
  readonly count: number;
  readonly job: Int32Array;
  /** Halves: one of two jobs on a GPU. */
  readonly lane: Float32Array;
  readonly width: Float32Array;
  readonly start: Float64Array;
  readonly end: Float64Array;
  /** Most lanes any one rectangle spans. */
  readonly widest: number;
  /** Latest end within each block of rectangles, to skip blocks that are over. */
  private readonly blockEnd: Float64Array;
  private readonly rowsByJob: Map<number, number[]> = new Map();

  constructor(segments: Segments) {
    const order = orderByStart(segments.start);
    this.count = order.length;
    this.job = Int32Array.from(order, (row) => segments.job[row]!);
    this.lane = Float32Array.from(order, (row) => segments.lane[row]!);
    this.width = Float32Array.from(order, (row) => segments.width[row]!);
    this.start = Float64Array.from(order, (row) => segments.start[row]!);
    this.end = Float64Array.from(order, (row) => segments.end[row]!);
    this.widest = this.width.reduce((most, width) => Math.max(most, width), 0);
    this.blockEnd = new Float64Array(Math.ceil(this.count / blockSize)).fill(-Infinity);
    for (let i = 0; i < this.count; i++) this.register(i);
  }

  private register(i: number): void {
    const block = Math.floor(i / blockSize);
    this.blockEnd[block] = Math.max(this.blockEnd[block]!, this.end[i]!);
    const rows = this.rowsByJob.get(this.job[i]!);
    if (rows) rows.push(i);
    else this.rowsByJob.set(this.job[i]!, [i]);
  }

  /** Visits every rectangle that overlaps the span of time, earliest start first. */
  forEachDuring(time: Span, visit: (i: number) => void): void {
    const past = firstAbove(this.start, time.hi);
    for (let block = 0; block * blockSize < past; block++) {
      if (this.blockEnd[block]! <= time.lo) continue;
      const stop = Math.min(past, (block + 1) * blockSize);
      for (let i = block * blockSize; i < stop; i++) {
        if (this.end[i]! > time.lo) visit(i);
      }
    }
  }

  /** The rectangle that covers most of the given area, or -1; of two that cover as much, the one that is painted later. */
  find(time: Span, lanes: Span): number {
    let best = -1;
    let bestArea = 0;
    this.forEachDuring(time, (i) => {
      const wide = Math.min(time.hi, this.end[i]!) - Math.max(time.lo, this.start[i]!);
      const high = Math.min(lanes.hi, this.lane[i]! + this.width[i]!) - Math.max(lanes.lo, this.lane[i]!);
      if (wide > 0 && high > 0 && wide * high >= bestArea) {
        best = i;
        bestArea = wide * high;
      }
    });
    return best;
  }

  /** Moves the end of a rectangle that is still growing. */
  extend(i: number, end: number): void {
    this.end[i] = end;
    const block = Math.floor(i / blockSize);
    this.blockEnd[block] = Math.max(this.blockEnd[block]!, end);
  }

  /** Moves the start of a rectangle that lies ahead. All that begin before `start` must be moved, or they would no
      longer be in order. */
  postpone(i: number, start: number): void {
    this.start[i] = start;
    if (this.end[i]! < start) this.extend(i, start);
  }

  rowsOf(job: number): readonly number[] {
    return this.rowsByJob.get(job) ?? [];
  }

  gpusHeld(job: number, moment: number): number {
    let held = 0;
    for (const i of this.rowsOf(job)) {
      if (this.start[i]! <= moment && moment < this.end[i]!) held += Math.ceil(this.width[i]!);
    }
    return held;
  }

  /** GPUs a job ever sat on; null if it never ran. */
  lanesOf(job: number): Span | null {
    const rows = this.rowsOf(job);
    if (rows.length === 0) return null;
    return {
      lo: rows.reduce((lowest, i) => Math.min(lowest, Math.floor(this.lane[i]!)), Infinity),
      hi: rows.reduce((highest, i) => Math.max(highest, Math.ceil(this.lane[i]! + this.width[i]!)), 0),
    };
  }
}

function orderByStart(start: number[]): number[] {
  const order = start.map((_, row) => row);
  const sorted = start.every((value, row) => row === 0 || start[row - 1]! <= value);
  return sorted ? order : order.sort((a, b) => start[a]! - start[b]!);
}
