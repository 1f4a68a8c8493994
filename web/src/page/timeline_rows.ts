// What was held and what is planned, as rectangles of a timeline. Pure.
import { NodeMap } from "../parts/nodes";
import type { TimelineIndex } from "../parts/timeline_index";
import type { NodeShown } from "./api";

export interface Held {
  /** Null: another user's. */
  job: number | null;
  node: number;
  gpus: number[];
  from: number;
  /** Null: still held. */
  until: number | null;
}

export interface Planned {
  job: number;
  gpus: number;
  from: number;
  until: number;
}

class Rows {
  job: number[] = [];
  lane: number[] = [];
  width: number[] = [];
  start: number[] = [];
  end: number[] = [];

  add(job: number, lane: number, width: number, start: number, end: number): void {
    if (!(end > start)) end = start + 0.001;
    this.job.push(job);
    this.lane.push(lane);
    this.width.push(width);
    this.start.push(start);
    this.end.push(end);
  }
}

/** The rectangles that end now, because they have not ended. */
export function openRows(index: TimelineIndex, now: number): number[] {
  const rows: number[] = [];
  for (let i = 0; i < index.count; i++) {
    if (index.end[i] === now) rows.push(i);
  }
  return rows;
}

/** Clocks of a second span that is only a handover may differ by so many seconds. */
const handover = 0.01;

/** The GPUs of a span that another job held when it began. Remembers how long each is held. */
function splitShared(gpus: number[], from: number, until: number, lane: (gpu: number) => number, heldUntil: number[]): { own: number[]; shared: number[] } {
  const own: number[] = [];
  const shared: number[] = [];
  for (const gpu of gpus) {
    const at = lane(gpu);
    const last = heldUntil[at] ?? -Infinity;
    (last > from + handover ? shared : own).push(gpu);
    heldUntil[at] = Math.max(last, until);
  }
  return { own, shared };
}

/** The rectangles of spans, and the jobs by their numbers there. What is still held ends at `now`. A job that joins
    another one on a GPU is drawn over the lower half of it, so both can be seen. */
export function rectanglesOf(spans: Held[], map: NodeMap, now: number) {
  const numbers = new Map<number | null, number>();
  const ids: (number | null)[] = [];
  const rows = new Rows();
  const numberOf = (id: number | null): number => {
    let number = numbers.get(id);
    if (number === undefined) {
      number = ids.length;
      numbers.set(id, number);
      ids.push(id);
    }
    return number;
  };
  const heldUntil: number[] = [];
  for (const span of [...spans].sort((a, b) => a.from - b.from)) {
    const first = map.firstLane[span.node];
    if (first === undefined) continue;
    const job = numberOf(span.job);
    const until = span.until ?? now;
    const { own, shared } = splitShared(span.gpus, span.from, span.until ?? Infinity, (gpu) => first + gpu, heldUntil);
    for (const [gpu, width] of runs(own)) rows.add(job, first + gpu, width, span.from, until);
    for (const gpu of shared) rows.add(job, first + gpu + 0.5, 0.5, span.from, until);
  }
  return { ids, rows, numberOf };
}

/** Neighbouring GPUs as [first, count]. */
export function runs(gpus: number[]): [number, number][] {
  const sorted = [...gpus].sort((a, b) => a - b);
  const found: [number, number][] = [];
  for (const gpu of sorted) {
    const last = found[found.length - 1];
    if (last && last[0] + last[1] === gpu) last[1]++;
    else found.push([gpu, 1]);
  }
  return found;
}

/** GPUs that are held, however many jobs share them. */
export function heldOn(node: NodeShown): number {
  return new Set(node.used.map((use) => use.gpu)).size;
}

/** "node 3", or the name that its cluster manager gave it. */
export function nameOf(node: NodeShown): string {
  return node.name === `node${node.id}` ? `node ${node.id}` : node.name;
}

export function nodeMap(nodes: NodeShown[]): NodeMap {
  const groups: { nodes: number; gpusPerNode: number; type: string }[] = [];
  for (const node of nodes) {
    const last = groups[groups.length - 1];
    const type = node.type === "gpu" ? "" : node.type;
    if (last && last.gpusPerNode === node.gpus && last.type === type) last.nodes++;
    else groups.push({ nodes: 1, gpusPerNode: node.gpus, type });
  }
  return new NodeMap(groups, nodes.map(nameOf));
}

/** A plan says how many GPUs, not which. Its bars are drawn where the job is now, if they fit there. */
export function layPlans(plans: Planned[], spans: Held[], map: NodeMap, gpus: number): { plan: Planned; run: [number, number] }[] {
  const holder = new Array<number | null | undefined>(gpus).fill(undefined);
  for (const span of spans) {
    if (span.until !== null) continue;
    for (const gpu of span.gpus) holder[(map.firstLane[span.node] ?? 0) + gpu] = span.job;
  }
  const busyUntil = new Array<number>(gpus).fill(-Infinity);
  const laid: { plan: Planned; run: [number, number] }[] = [];
  for (const plan of [...plans].sort((a, b) => a.from - b.from || a.job - b.job)) {
    const cost = (lane: number) =>
      (busyUntil[lane]! > plan.from ? 4 : 0) + (holder[lane] === plan.job ? 0 : holder[lane] === undefined ? 1 : 2);
    const chosen = Array.from({ length: gpus }, (_, lane) => lane)
      .sort((a, b) => cost(a) - cost(b) || a - b)
      .slice(0, plan.gpus);
    for (const lane of chosen) busyUntil[lane] = Math.max(busyUntil[lane]!, plan.until);
    for (const run of runs(chosen)) laid.push({ plan, run });
  }
  return laid;
}

/** Steps of the number of GPUs, from the spans in which single ones were held. */
export function stepsOf(spans: Held[], until: number): { time: number[]; gpus: number[] } {
  const changes = new Map<number, number>();
  const add = (at: number, by: number) => changes.set(at, (changes.get(at) ?? 0) + by);
  for (const span of spans) {
    add(span.from, span.gpus.length);
    if (span.until !== null) add(span.until, -span.gpus.length);
  }
  const time: number[] = [];
  const gpus: number[] = [];
  let held = 0;
  for (const [at, by] of [...changes].sort((a, b) => a[0] - b[0])) {
    held += by;
    time.push(at);
    gpus.push(held);
  }
  if (time.length > 0 && until > time[time.length - 1]!) {
    time.push(until);
    gpus.push(held);
  }
  return { time, gpus };
}
