// Requests to the daemon, and the shapes of its answers (docs/openapi.yaml).
import { connection } from "./connection";
import type { Session } from "./hub";

/** ISO 8601, or seconds since the epoch. */
export type When = string | number;

export interface Progress {
  done: number | null;
  step: number;
  samples: number;
  epoch: number;
  loss: number | null;
  rate: number;
  learning_rate: number | null;
}

export interface PlanStep {
  from: When;
  gpus: number;
}

export interface Job {
  id: number;
  name: string;
  user: string;
  state: string;
  reason: string;
  note: string | null;
  gpus: number;
  slots: string[];
  limits: { min: number; max: number };
  submitted: When;
  started: When | null;
  ended: When | null;
  deadline: When | null;
  slack_seconds: number | null;
  promised: When | null;
  honoured: boolean | null;
  plan: PlanStep[];
  progress: Progress;
  eta: When | null;
  /** The end if the rest went as fast, or as slowly, as a tenth of the job's reports. */
  eta_range: { earliest: When; latest: When } | null;
  gpu_seconds: number;
  failures: number;
  resizes: number;
  restarts: number;
  last_pause_seconds: number | null;
  batch: number | null;
  /** Of a guest on the GPUs of another job: the share of the time that it computes now. */
  guest_share?: number | null;
  /** The search that it is a trial of, and how far the trial is. */
  search?: { name: string; trials: number; metric: string } | null;
  trial?: { number: number; stages: (number | null)[]; waits: boolean } | null;
  exit_code: number | null;
  command: string[];
  command_cut: boolean;
  position: number | null;
  estimated_start?: When | null;
  verdict?: Verdict;
  /** As it was submitted; only in the answer about one job. */
  file?: { directory?: string; env?: Record<string, string>; secrets?: Record<string, string>; [field: string]: unknown };
}

export interface Verdict {
  admitted: boolean | null;
  text: string;
  finish: When | null;
  earliest: When | null;
  position: number | null;
  estimated_start: When | null;
}

export interface NodeShown {
  id: number;
  /** As its cluster manager calls it; on one machine node0, node1 and so on. */
  name: string;
  labels: Record<string, string>;
  state: string;
  gpus: number;
  type: string;
  used: { gpu: number; job: number | null; worker: number | null; measuring?: boolean }[];
  /** GPUs that are used by others than Rubato, and why. */
  others: number[];
  others_reason: string;
  /** Tenants with cells there: admins see all, others their own. */
  cells?: { tenant: string; gpus: number }[];
  since: When;
  reason: string;
}

export interface TenantCells {
  tenant: string;
  cells: string;
  gpus: number;
  members: string[];
  places: { node: string; gpus: number[] }[];
  used: number;
  borrowed: number;
  lent: number;
}

export interface PolicyShown {
  policy: string;
  promises?: { job: number; promised: When; finish: When; honoured: boolean }[];
  not_honoured?: { job: number; name: string; promised: When | null }[];
  policies?: { name: string; summary: string }[];
}

export interface Explanation {
  job: number;
  sentences: string[];
  waits_for: number[];
  would_change: string[];
  market: { price: number; bid: number; outbid: number; outbid_by: number[] } | null;
}

export interface HistoryEvent {
  number: number;
  at: When;
  type: string;
  job: number | null;
  text: string;
}

export interface TimelineSpan {
  job: number | null;
  node: number;
  gpus: number[];
  from: When;
  until: When | null;
}

export interface TimelineMark {
  job: number;
  time: When;
  kind: string;
  gpus: number;
  reason?: string | null;
  pause_ms?: number | null;
}

export interface PastReport {
  time: When;
  step: number;
  loss: number | null;
  rate: number;
  batch: number | null;
  learning_rate: number | null;
  gpus: number;
}

export interface PromiseNote {
  time: When;
  kind: string;
  by: When;
  planned: When | null;
  policy: string | null;
}

export interface PastAnswer {
  job: number;
  complete_since: When;
  spans: TimelineSpan[];
  marks: TimelineMark[];
  reports: PastReport[];
  promises: PromiseNote[];
}

export interface TimelineAnswer {
  now: When;
  since: When;
  until: When;
  /** Of the time before this, spans and marks may be forgotten. */
  complete_since?: When;
  truncated: boolean;
  jobs: { job: number; name?: string; user?: string; deadline?: When | null; finish_by?: When | null }[];
  spans: TimelineSpan[];
  plans: { job: number; gpus: number; from: When; until: When }[];
  marks: TimelineMark[];
}

export interface Change {
  job: number | null;
  kind: string;
  from: number;
  to: number;
  reason?: string | null;
}

export interface DecisionShown {
  id: number;
  time: When;
  policy: string;
  took_ms: number | null;
  changes: Change[];
}

export interface Use {
  gpus: number;
  held: number;
  training: number;
  idle: number;
  why_idle: { reason: string; gpus: number }[];
  users: { user: string; gpu_hours: number; weight: number | null; share: number }[];
  deadlines: { kept: number; missed: number; open: number };
  pauses: { p50_ms: number | null; p99_ms: number | null; count: number };
}

export class ApiError extends Error {
  constructor(readonly status: number, message: string, readonly body: unknown) {
    super(message);
  }
}

interface Options {
  body?: unknown;
  /** A body that is sent as it is, with its media type. */
  text?: [type: string, text: string];
  key?: string;
  token?: string;
  signal?: AbortSignal;
}

export async function send(method: string, path: string, options: Options = {}): Promise<Response> {
  const headers: Record<string, string> = {};
  const token = options.token ?? connection.session?.token;
  if (token) headers.Authorization = `Bearer ${token}`;
  if (options.body !== undefined) headers["Content-Type"] = "application/json";
  if (options.text) headers["Content-Type"] = options.text[0];
  if (options.key) headers["Idempotency-Key"] = options.key;
  const body = options.text ? options.text[1] : options.body === undefined ? undefined : JSON.stringify(options.body);
  let response: Response;
  try {
    response = await fetch(path, { method, headers, body, signal: options.signal, cache: "no-store" });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(0, "The daemon does not answer.", null);
  }
  if (response.ok) return response;
  const answer: unknown = await response.json().catch(() => null);
  const said = (answer as { error?: unknown } | null)?.error;
  if (response.status === 401 && !options.token && path !== "/v1/page/session") connection.logout();
  throw new ApiError(response.status, typeof said === "string" ? said : `The daemon answered ${response.status}.`, answer);
}

export async function ask<T>(method: string, path: string, options: Options = {}): Promise<T> {
  return (await (await send(method, path, options)).json()) as T;
}

export function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return ask<T>("GET", path, { signal });
}

/** Exchanges a one-time code for the token of this browser. */
export function openWithCode(code: string): Promise<Session> {
  return ask<Session>("POST", "/v1/page/session", { body: { code } });
}

/** A pasted token is used once, to get such a code. It is not kept. */
export async function openWithToken(token: string): Promise<Session> {
  const { code } = await ask<{ code: string }>("POST", "/v1/page/codes", { token });
  return openWithCode(code);
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
