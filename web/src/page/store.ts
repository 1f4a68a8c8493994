// What the page knows of the cluster: read once, then kept up to date by the stream.
import { Observable } from "../parts/observable";
import { get, messageOf, type DecisionShown, type Job, type NodeShown, type PolicyShown } from "./api";
import { connection } from "./connection";
import type { ServerEvent } from "./stream";

const pageSize = 1000;
const mostDecisions = 500;
/** As many jobs that have ended as the daemon remembers. Otherwise a page that stays open for days would grow without end. */
const mostEnded = 10_000;
/** Who holds which GPU is asked at most this often. */
const nodesEvery = 1000;
/** GPUs of others change without an event for this reader. */
const nodesAnyway = 10_000;

export const waiting = new Set(["PENDING", "PROFILING", "HELD"]);
export const active = new Set(["RUNNING", "RESIZING", "STOPPING"]);
export const ended = new Set(["COMPLETED", "FAILED", "CANCELLED", "REFUSED"]);

export class Store {
  /** Told at most once a frame, however many events there are. */
  readonly changed = new Observable();
  /** Told for every change of what jobs hold. */
  readonly allocationsChanged = new Observable();
  readonly jobs = new Map<number, Job>();
  /** Those that have not ended. */
  readonly live = new Map<number, Job>();
  nodes: NodeShown[] = [];
  policy: PolicyShown | null = null;
  decisions: DecisionShown[] = [];
  loaded = false;
  problem: string | null = null;
  private generation = 0;
  private frame = 0;
  private nodesTimer = 0;
  private nodesAskedAt = 0;

  constructor() {
    setInterval(() => {
      if (this.loaded && !document.hidden && connection.session?.role !== "admin") this.refreshNodes();
    }, nodesAnyway);
  }

  get gpus(): number {
    return this.nodes.reduce((sum, node) => sum + node.gpus, 0);
  }

  /** Reads everything again. */
  async load(): Promise<void> {
    const generation = ++this.generation;
    try {
      const [nodes, policy] = await Promise.all([get<{ nodes: NodeShown[] }>("/v1/nodes"), get<PolicyShown>("/v1/policy")]);
      const jobs = await this.readJobs();
      if (generation !== this.generation) return;
      this.nodes = nodes.nodes;
      this.policy = policy;
      this.jobs.clear();
      this.live.clear();
      for (const job of jobs) this.keep(job);
      this.problem = null;
      this.loaded = true;
      this.allocationsChanged.notify();
    } catch (error) {
      if (generation !== this.generation) return;
      this.problem = messageOf(error);
    }
    this.changed.notify();
  }

  forget(): void {
    this.generation++;
    this.jobs.clear();
    this.live.clear();
    this.nodes = [];
    this.policy = null;
    this.decisions = [];
    this.loaded = false;
    this.changed.notify();
  }

  take(events: ServerEvent[]): void {
    for (const event of events) this.takeOne(event);
    this.tellSoon();
  }

  /** An answer to an action is as new as an event. */
  put(job: Job): void {
    const before = this.jobs.get(job.id);
    this.keep(job);
    if (before?.slots.join() !== job.slots.join()) {
      this.refreshNodes();
      this.allocationsChanged.notify();
    }
    this.tellSoon();
  }

  private keep(job: Job): void {
    if (!ended.has(job.state)) this.live.set(job.id, job);
    // Behind those that ended before it.
    else if (this.live.delete(job.id)) this.jobs.delete(job.id);
    this.jobs.set(job.id, job);
    if (this.jobs.size - this.live.size > mostEnded) this.dropOldest();
  }

  private dropOldest(): void {
    for (const id of this.jobs.keys()) {
      if (this.live.has(id)) continue;
      this.jobs.delete(id);
      return;
    }
  }

  refreshNodes(): void {
    if (this.nodesTimer !== 0) return;
    const wait = Math.max(0, this.nodesAskedAt + nodesEvery - Date.now());
    this.nodesTimer = window.setTimeout(async () => {
      this.nodesTimer = 0;
      this.nodesAskedAt = Date.now();
      const answer = await get<{ nodes: NodeShown[] }>("/v1/nodes").catch(() => null);
      if (!answer) return;
      this.nodes = answer.nodes;
      this.tellSoon();
    }, wait);
  }

  addDecisions(more: DecisionShown[]): void {
    const known = new Set(this.decisions.map((decision) => decision.id));
    this.decisions = [...this.decisions, ...more.filter((decision) => !known.has(decision.id))]
      .sort((a, b) => b.id - a.id)
      .slice(0, mostDecisions);
    this.tellSoon();
  }

  private takeOne({ type, data }: ServerEvent): void {
    switch (type) {
      case "job":
        this.put(data as Job);
        break;
      case "node":
        this.refreshNodes();
        break;
      case "policy":
        this.policy = { ...this.policy, ...(data as PolicyShown) };
        void get<PolicyShown>("/v1/policy").then((policy) => {
          this.policy = policy;
          this.tellSoon();
        }, () => {});
        break;
      case "decision":
        this.addDecisions([data as DecisionShown]);
        break;
      case "resync":
        void this.load();
        break;
    }
  }

  /** Positions and estimated starts change when other jobs do, without an event of the job itself. */
  async refreshQueue(): Promise<void> {
    const jobs = await this.readJobs("&state=PENDING").catch(() => []);
    for (const job of jobs) {
      const known = this.jobs.get(job.id);
      if (!known || known.position !== job.position || known.estimated_start !== job.estimated_start) this.keep(job);
    }
    this.tellSoon();
  }

  private async readJobs(which = ""): Promise<Job[]> {
    const jobs: Job[] = [];
    for (let after = 0; ; ) {
      const page = await get<{ jobs: Job[]; next: number | null }>(`/v1/jobs?limit=${pageSize}&after=${after}${which}`);
      jobs.push(...page.jobs);
      if (page.next === null) return jobs;
      after = page.next;
    }
  }

  private tellSoon(): void {
    if (this.frame !== 0) return;
    const tell = () => {
      this.frame = 0;
      this.changed.notify();
    };
    // A hidden page has no frames.
    this.frame = document.hidden ? window.setTimeout(tell, 1000) : requestAnimationFrame(tell);
  }
}

export const store = new Store();
