// Round durations and numbers for axes.

const minute = 60;
const hour = 3600;
const day = 86400;

const roundSteps = [
  0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30,
  minute, 2 * minute, 5 * minute, 10 * minute, 15 * minute, 30 * minute,
  hour, 2 * hour, 3 * hour, 6 * hour, 12 * hour,
  day, 2 * day, 5 * day, 10 * day, 20 * day, 50 * day, 100 * day, 200 * day, 500 * day, 1000 * day,
];

const landmarks = [0.01, 0.1, 1, 10, minute, 10 * minute, hour, 6 * hour, day, 10 * day, 100 * day, 1000 * day];

export function durationTicks(lo: number, hi: number, most: number): number[] {
  const ideal = (hi - lo) / Math.max(1, most);
  return multiples(roundSteps.find((size) => size >= ideal) ?? ideal, lo, hi);
}

/** 1, 2 or 5 times a power of ten apart. */
export function numberTicks(lo: number, hi: number, most: number): number[] {
  const ideal = (hi - lo) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(ideal));
  return multiples([1, 2, 5, 10].map((size) => size * power).find((size) => size >= ideal) ?? ideal, lo, hi);
}

function multiples(step: number, lo: number, hi: number): number[] {
  if (!(step > 0)) return [lo];
  const first = Math.ceil(lo / step);
  const count = Math.max(0, Math.floor(hi / step) - first + 1);
  // Rounded, because 166 x 0.005 is a little more than 0.83.
  return Array.from({ length: count }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

/** Landmarks first, then whatever else is round and fits between them. */
export function logDurationTicks(lo: number, hi: number, most: number): number[] {
  const apart = Math.log(hi / lo) / Math.max(1, most);
  const kept: number[] = [];
  for (const value of [...landmarks, ...roundSteps]) {
    if (value < lo || value > hi) continue;
    if (kept.every((other) => Math.abs(Math.log(value / other)) >= apart)) kept.push(value);
  }
  // A zoomed-in logarithmic axis is nearly linear.
  return kept.length < 2 ? durationTicks(lo, hi, most) : kept.sort((a, b) => a - b);
}
