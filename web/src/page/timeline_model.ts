// The timeline of the live cluster: what was, the live edge, and what is planned. Made of the daemon's answers.
import { Observable } from "../parts/observable";
import { hues, jobPixel, late, mixPixels, onTime, others, toPixel, type LegendEntry, type Pixel } from "../parts/job_colours";
import type { NodeMap } from "../parts/nodes";
import { TimelineIndex } from "../parts/timeline_index";
import { get, messageOf, type NodeShown, type TimelineAnswer } from "./api";
import { store } from "./store";
import { layPlans, nodeMap, openRows, rectanglesOf, type Held, type Planned } from "./timeline_rows";
import { iso, seconds } from "./time";

export type Colouring = "job" | "user" | "deadline";

interface Known {
  name: string;
  user: string;
  deadline: number | null;
}

/** What is drawn: rectangles, and for each number of a job there what it is. */
export interface Picture {
  index: TimelineIndex;
  nodes: NodeMap;
  /** Null: all jobs of others. */
  ids: (number | null)[];
  names: string[];
  pixels: Uint32Array;
  plansFrom: number;
  deadlines: { job: number; at: number }[];
  /** Rows that grow with the time. */
  open: number[];
  /** Rows that are planned. */
  planned: number[];
  legend: LegendEntry[];
}

const planStrength = 0.45;
/** An answer has at most 10,000 spans: the longest. When there are so many more, all are read again. */
const mostSpans = 12_000;

export class TimelineModel {
  readonly changed = new Observable();
  readonly held = new Map<string, Held>();
  plans: Planned[] = [];
  truncated = false;
  loaded = false;
  problem: string | null = null;
  /** Grows with every answer of the daemon. */
  version = 0;
  /** The daemon's clock minus the browser's, in seconds. */
  private offset = 0;
  /** How many seconds of the past are shown, and their beginning. */
  private past = 0;
  private since = 0;
  private readTo = 0;
  private readonly known = new Map<number, Known>();
  private busy = false;
  private again = false;

  get now(): number {
    return Date.now() / 1000 + this.offset;
  }

  /** Reads so many seconds of the past. */
  async load(past: number): Promise<void> {
    this.past = past;
    this.since = this.now - past;
    this.held.clear();
    this.truncated = false;
    this.readTo = this.since;
    await this.refresh();
  }

  /** Reads what has changed since the last answer. */
  async refresh(): Promise<void> {
    if (this.busy) {
      this.again = true;
      return;
    }
    this.busy = true;
    try {
      do {
        this.again = false;
        const from = this.readTo;
        const answer = await get<TimelineAnswer>(`/v1/timeline?since=${iso(Math.floor(from))}`);
        if (from === this.readTo) this.take(answer);
        else this.again = true;
      } while (this.again);
      this.problem = null;
    } catch (error) {
      this.problem = messageOf(error);
    }
    this.busy = false;
    this.changed.notify();
  }

  private take(answer: TimelineAnswer): void {
    const now = seconds(answer.now) ?? this.now;
    this.offset = now - Date.now() / 1000;
    const whole = this.readTo <= this.since;
    if (whole) this.known.clear();
    // What is from before the daemon's own records is not there; that is no reason to choose a shorter time.
    this.truncated ||= answer.truncated && (seconds(answer.complete_since) ?? 0) <= (seconds(answer.since) ?? 0);
    for (const job of answer.jobs) {
      this.known.set(job.job, { name: job.name ?? "", user: job.user ?? "", deadline: seconds(job.deadline) });
    }
    // A span that was open is answered again, with its end.
    for (const [key, span] of this.held) {
      if (whole || span.until === null) this.held.delete(key);
    }
    for (const span of answer.spans) {
      const from = seconds(span.from)!;
      this.held.set(`${span.job} ${span.node} ${from} ${span.gpus.join()}`, {
        job: span.job, node: span.node, gpus: span.gpus, from, until: seconds(span.until),
      });
    }
    this.since = Math.max(this.since, now - this.past);
    for (const [key, span] of this.held) {
      if (span.until !== null && span.until < this.since) this.held.delete(key);
    }
    this.plans = answer.plans.map((plan) => ({ job: plan.job, gpus: plan.gpus, from: seconds(plan.from)!, until: seconds(plan.until)! }));
    const again = !whole && this.held.size > mostSpans;
    this.readTo = again ? this.since : Math.max(this.since, now - 2);
    if (again) this.again = true;
    this.loaded = true;
    this.version++;
  }

  describe(id: number): Known {
    return this.known.get(id) ?? { name: store.jobs.get(id)?.name ?? "", user: store.jobs.get(id)?.user ?? "", deadline: null };
  }

  /** The moment up to which something is planned or due. */
  get horizon(): number {
    return this.plans.reduce((last, plan) => Math.max(last, plan.until, this.describe(plan.job).deadline ?? 0), this.now);
  }

  /** The first moment at which something was held. */
  get first(): number {
    let first = this.now;
    for (const span of this.held.values()) first = Math.min(first, span.from);
    return first;
  }

  draw(nodes: NodeShown[], colouring: Colouring, idle: Pixel): Picture {
    const map = nodeMap(nodes);
    const spans = [...this.held.values()];
    const now = this.now;
    const { ids, rows, numberOf } = rectanglesOf(spans, map, now);
    const lanes = layPlans(this.plans, spans, map, nodes.reduce((sum, node) => sum + node.gpus, 0));
    const planRows = lanes.map(({ plan, run }) => ({ job: numberOf(plan.job), plan, run }));
    const plansFrom = ids.length;
    for (const { job, plan, run } of planRows) rows.add(plansFrom + job, run[0], run[1], Math.max(plan.from, now), plan.until);
    const index = new TimelineIndex({ ...rows, total: rows.job.length, shown: rows.job.length });
    const { pixels, legend } = this.colours(ids, colouring);
    return {
      index, nodes: map, ids, plansFrom, legend,
      names: [...ids, ...ids].map((id) => (id === null ? "" : this.describe(id).name)),
      pixels: Uint32Array.from([...pixels, ...pixels.map((pixel) => mixPixels(idle, pixel, planStrength))]),
      deadlines: ids.flatMap((id, job) => {
        const at = id === null ? null : this.describe(id).deadline;
        return at === null ? [] : [{ job, at }];
      }),
      open: openRows(index, now),
      planned: [...index.job.keys()].filter((row) => index.job[row]! >= plansFrom),
    };
  }

  private colours(ids: (number | null)[], colouring: Colouring): { pixels: number[]; legend: LegendEntry[] } {
    const other: LegendEntry = { label: "jobs of other users", colour: others };
    const withOthers = (legend: LegendEntry[]) => (ids.includes(null) ? [...legend, other] : legend);
    if (colouring === "job") {
      return { pixels: ids.map((id) => (id === null ? toPixel(others) : jobPixel(id))), legend: withOthers([]) };
    }
    if (colouring === "user") {
      const users = [...new Set(ids.flatMap((id) => (id === null ? [] : [this.describe(id).user])))].sort();
      const colourOf = new Map(users.map((user, i) => [user, hues[i % hues.length]!]));
      return {
        pixels: ids.map((id) => toPixel(id === null ? others : colourOf.get(this.describe(id).user)!)),
        legend: withOthers([...colourOf].map(([label, colour]) => ({ label, colour }))),
      };
    }
    const colourOf = (id: number | null) => {
      const job = id === null ? undefined : store.jobs.get(id);
      if (!job || job.deadline === null || job.slack_seconds === null) return others;
      return job.slack_seconds >= 0 ? onTime : late;
    };
    return {
      pixels: ids.map((id) => toPixel(colourOf(id))),
      legend: [{ label: "on time", colour: onTime }, { label: "late", colour: late }, { label: "no deadline, or not known", colour: others }],
    };
  }
}
