// A quantity over time that is constant between given moments.
import { firstAbove, lengthOf, type Span } from "./span";

export class StepSeries {
  /** Integral of the quantity up to each moment. */
  private readonly area: Float64Array;

  constructor(private readonly time: number[], private readonly value: number[]) {
    this.area = new Float64Array(time.length);
    for (let i = 1; i < time.length; i++) {
      this.area[i] = this.area[i - 1]! + value[i - 1]! * (time[i]! - time[i - 1]!);
    }
  }

  get covered(): Span {
    return { lo: this.time[0] ?? 0, hi: this.time[this.time.length - 1] ?? 0 };
  }

  at(moment: number): number | null {
    const { lo, hi } = this.covered;
    if (moment < lo || moment >= hi) return null;
    return this.value[firstAbove(this.time, moment) - 1] ?? null;
  }

  /** Average over the part of the span that the series covers; null if it covers none. */
  average(span: Span): number | null {
    const { lo, hi } = this.covered;
    const part = { lo: Math.max(lo, span.lo), hi: Math.min(hi, span.hi) };
    if (!(lengthOf(part) > 0)) return null;
    return (this.areaUntil(part.hi) - this.areaUntil(part.lo)) / lengthOf(part);
  }

  private areaUntil(moment: number): number {
    const i = firstAbove(this.time, moment) - 1;
    return this.area[i]! + this.value[i]! * (moment - this.time[i]!);
  }
}

/** Equal buckets over the span, as their start times; the last one closes the last bucket. */
export function evenGrid(span: Span, buckets: number): number[] {
  return Array.from({ length: buckets + 1 }, (_, i) => span.lo + (lengthOf(span) * i) / buckets);
}

/** Bucket averages; the closing value repeats the last so that a stepped line reaches the edge. */
export function resample(series: StepSeries, grid: number[]): (number | null)[] {
  const averages = grid.slice(0, -1).map((lo, i) => series.average({ lo, hi: grid[i + 1]! }));
  return [...averages, averages[averages.length - 1] ?? null];
}
