// Points in time, as the daemon sends them and as people read them.
import { missing } from "../parts/format";
import type { Span } from "../parts/span";
import type { When } from "./api";
import { settings } from "./settings";

/** Seconds since the epoch; null if there is none. */
export function seconds(when: When | null | undefined): number | null {
  if (when === null || when === undefined) return null;
  const value = typeof when === "number" ? when : Date.parse(when) / 1000;
  return Number.isFinite(value) ? value : null;
}

/** As the daemon reads it. */
export function iso(time: number): string {
  return new Date(time * 1000).toISOString();
}

export function now(): number {
  return Date.now() / 1000;
}

interface Parts {
  year: number;
  month: number;
  day: number;
  hour: number;
  minute: number;
  second: number;
}

/** In the zone that the reader has chosen. */
function partsOf(time: number): Parts {
  const date = new Date(time * 1000);
  return settings.zone === "utc"
    ? {
        year: date.getUTCFullYear(), month: date.getUTCMonth() + 1, day: date.getUTCDate(),
        hour: date.getUTCHours(), minute: date.getUTCMinutes(), second: date.getUTCSeconds(),
      }
    : {
        year: date.getFullYear(), month: date.getMonth() + 1, day: date.getDate(),
        hour: date.getHours(), minute: date.getMinutes(), second: date.getSeconds(),
      };
}

const two = (value: number) => String(value).padStart(2, "0");

function dayText({ year, month, day }: Parts): string {
  return `${year}-${two(month)}-${two(day)}`;
}

/** "14:03:22"; with the date if it is not today. */
export function clock(when: When | null | undefined): string {
  const time = seconds(when);
  if (time === null) return missing;
  const parts = partsOf(time);
  const day = dayText(parts);
  const text = `${two(parts.hour)}:${two(parts.minute)}:${two(parts.second)}`;
  return day === dayText(partsOf(now())) ? text : `${day} ${text}`;
}

/** For titles and exports: always with the date and the zone. */
export function exact(when: When | null | undefined): string {
  const time = seconds(when);
  if (time === null) return "";
  const parts = partsOf(time);
  return `${dayText(parts)} ${two(parts.hour)}:${two(parts.minute)}:${two(parts.second)} ${settings.zone === "utc" ? "UTC" : "local"}`;
}

const minute = 60;
const hour = 3600;
const day = 86400;
const steps = [
  1, 2, 5, 10, 15, 30, minute, 2 * minute, 5 * minute, 10 * minute, 15 * minute, 30 * minute,
  hour, 2 * hour, 3 * hour, 6 * hour, 12 * hour, day, 2 * day, 7 * day, 14 * day, 28 * day,
];

export interface Tick {
  at: number;
  label: string;
}

/** Round times of day. */
export function clockTicks(span: Span, most: number): Tick[] {
  const ideal = (span.hi - span.lo) / Math.max(1, most);
  const step = steps.find((size) => size >= ideal) ?? steps[steps.length - 1]!;
  const shift = settings.zone === "utc" ? 0 : new Date(span.lo * 1000).getTimezoneOffset() * minute;
  const ticks: Tick[] = [];
  for (let at = Math.ceil((span.lo - shift) / step) * step + shift; at <= span.hi; at += step) {
    ticks.push({ at, label: tickLabel(at, step) });
  }
  return ticks;
}

function tickLabel(at: number, step: number): string {
  const parts = partsOf(at);
  if (step >= day || (parts.hour === 0 && parts.minute === 0 && parts.second === 0)) {
    return `${["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"][parts.month - 1]} ${parts.day}`;
  }
  return step < minute ? `${two(parts.hour)}:${two(parts.minute)}:${two(parts.second)}` : `${two(parts.hour)}:${two(parts.minute)}`;
}
