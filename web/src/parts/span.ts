// Intervals, and searching in sorted columns.

export interface Span {
  lo: number;
  hi: number;
}

export function lengthOf(span: Span): number {
  return span.hi - span.lo;
}

/** The span moved, and if need be shortened, to lie within the limits. */
export function fitSpan(span: Span, limits: Span, shortest: number): Span {
  const whole = lengthOf(limits);
  const length = Math.min(whole, Math.max(lengthOf(span), Math.min(shortest, whole)));
  const centre = (span.lo + span.hi) / 2;
  const lo = Math.min(limits.hi - length, Math.max(limits.lo, centre - length / 2));
  return { lo, hi: lo + length };
}

export function zoomSpan(span: Span, factor: number, around: number): Span {
  return { lo: around + (span.lo - around) * factor, hi: around + (span.hi - around) * factor };
}

/** Index of the first element above the value; the length if there is none. */
export function firstAbove(sorted: ArrayLike<number>, value: number): number {
  let lo = 0;
  let hi = sorted.length;
  while (lo < hi) {
    const mid = (lo + hi) >>> 1;
    if (sorted[mid]! > value) hi = mid;
    else lo = mid + 1;
  }
  return lo;
}
