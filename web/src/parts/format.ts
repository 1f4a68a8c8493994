// Numbers and durations as people read them.
import type { MaybeNumber } from "./data";

export const missing = "–";

const units: [string, number][] = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];

/** The largest units that matter, two of them unless told otherwise: 8012 becomes "2 h 13 m". */
export function formatDuration(seconds: MaybeNumber, mostUnits = 2): string {
  if (seconds === null || !Number.isFinite(seconds)) return missing;
  if (seconds < 0) return `−${formatDuration(-seconds, mostUnits)}`;
  if (seconds < 9.95) return `${trimmed(seconds, seconds < 0.1 ? 3 : 1)} s`;
  const largest = units.findIndex(([, size]) => seconds >= size);
  const [, smallestSize] = units[Math.min(largest + mostUnits, units.length) - 1]!;
  let left = Math.round(seconds / smallestSize) * smallestSize;
  const parts: string[] = [];
  for (const [name, size] of units) {
    const whole = Math.floor(left / size);
    left -= whole * size;
    if (whole > 0) parts.push(`${formatCount(whole)} ${name}`);
  }
  return parts.join(" ");
}

/** A point in time, precise enough to tell neighbouring ones apart. */
export function formatMoment(seconds: MaybeNumber): string {
  return formatDuration(seconds, 3);
}

/** Axis ticks are round already and must not look alike. */
export function formatTick(seconds: number): string {
  return formatDuration(seconds, units.length);
}

export function formatExactSeconds(seconds: number): string {
  return `${trimmed(seconds, 3)} s`;
}

export function formatCount(value: MaybeNumber): string {
  return value === null ? missing : trimmed(value, 0);
}

/** Enough digits to compare, no more: 3e-5, 0.042, 3.14, 31.4, 314. */
export function formatNumber(value: MaybeNumber): string {
  if (value === null) return missing;
  const size = Math.abs(value);
  if (size !== 0 && size < 0.001) return Number(value.toPrecision(3)).toExponential();
  return trimmed(value, size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.1 || size === 0 ? 2 : 4);
}

export function formatPercent(share: MaybeNumber): string {
  if (share === null) return missing;
  return `${trimmed(share * 100, 1)}%`;
}

export function plural(count: number, noun: string): string {
  return `${formatCount(count)} ${noun}${count === 1 ? "" : "s"}`;
}

// A fixed locale keeps reports identical on every machine.
function trimmed(value: number, decimals: number): string {
  return value.toLocaleString("en-US", { maximumFractionDigits: decimals });
}
