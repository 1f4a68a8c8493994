// How the past would have gone under other policies: the daemon runs the simulator on what really happened.
import { useEffect, useMemo, useState } from "preact/hooks";
import { Select } from "../parts/choice";
import { formatDuration, formatNumber, formatPercent, plural } from "../parts/format";
import { TimelineIndex } from "../parts/timeline_index";
import type { Scene } from "../parts/timeline_canvas";
import { TimelineView } from "../parts/timeline_view";
import { Viewport } from "../parts/viewport";
import { jobPixel, others, toPixel } from "../parts/job_colours";
import { ask, get, messageOf, type TimelineAnswer, type TimelineSpan, type When } from "./api";
import { Card, Clock, JobLink, Problem } from "./bits";
import { connection } from "./connection";
import { route } from "./route";
import { store } from "./store";
import { Table, type Column } from "./table";
import { clock, clockTicks, exact, iso, now, seconds } from "./time";
import { nodeMap, rectanglesOf } from "./timeline_rows";

interface JobOutcome {
  job: number | null;
  start: When | null;
  end: When | null;
}

interface Outcome {
  policy: string;
  summary: Record<string, number | string | null>;
  jobs: JobOutcome[];
  spans: TimelineSpan[];
  /** Of the policies that really ran: how far completion times are from the real ones, as shares of these. */
  differences: { jobs: number; p50: number | null; worst: number | null } | null;
}

interface Result {
  truth: { jobs: JobOutcome[]; summary: Record<string, number | string | null>; spans?: TimelineSpan[] };
  policies: Outcome[];
  taken_as_truth: string[];
  unknown: string[];
}

interface Run {
  id: string | number;
  state: "running" | "done" | "failed" | "cancelled";
  progress: number;
  error?: string;
  result?: Result;
}

const spans: [string, string, number][] = [["1h", "the last hour", 3600], ["6h", "the last 6 hours", 21600], ["1d", "the last day", 86400], ["7d", "the last 7 days", 604800]];

export function WhatIfView({ id }: { id: string | null }) {
  const span = spans.find(([choice]) => choice === route.get("span"))?.[0] ?? "1d";
  const since = Number(route.get("since") ?? NaN);
  const policies = route.get("policies") ?? "as-run, afs-l";
  const [problem, setProblem] = useState<string | null>(null);
  const begin = async (event: Event) => {
    event.preventDefault();
    setProblem(null);
    try {
      const from = Number.isFinite(since) ? since : Math.floor(now() - spans.find(([choice]) => choice === span)![2]);
      const run = await ask<{ id: string | number }>("POST", "/v1/whatif", { body: { since: iso(from), policies: policies.split(",").map((name) => name.trim()).filter(Boolean) } });
      const kept = route.query.toString();
      route.go(`#/whatif/${run.id}${kept ? `?${kept}` : ""}`);
    } catch (error) {
      setProblem(messageOf(error));
    }
  };
  return (
    <>
      <Card title="What if" id="whatif-title">
        <p class="quiet">
          How would the past have gone under another policy? The daemon runs the simulator at low priority on what really happened:
          the real arrivals, and the speeds that were measured.
        </p>
        {connection.session?.role !== "admin" && <p class="quiet">Only an admin can run it, because it needs the jobs of all users.</p>}
        <form class="fields" onSubmit={begin}>
          {Number.isFinite(since) ? (
            <p>Since <Clock when={since} /> <button type="button" class="plain" onClick={() => route.set({ since: null })}>another time</button></p>
          ) : (
            <Select label="What" value={span} options={spans.map(([choice, text]) => [choice, text])} onChange={(choice) => route.set({ span: choice })} />
          )}
          <label>Policies <input required spellcheck={false} value={policies} onInput={(event) => route.set({ policies: event.currentTarget.value })} /></label>
          <button type="submit" class="primary" disabled={connection.session?.role !== "admin"}>Run</button>
        </form>
        <p class="quiet">Names of policies with commas between them. <code>as-run</code> stands for the policies that really ran: with it, the simulated past should be the real one.</p>
        {problem && <Problem>{problem}</Problem>}
      </Card>
      {id && <RunView key={id} id={id} />}
    </>
  );
}

function RunView({ id }: { id: string }) {
  const [run, setRun] = useState<Run | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    let timer = 0;
    const abort = new AbortController();
    const read = async () => {
      try {
        const answer = await get<Run>(`/v1/whatif/${encodeURIComponent(id)}`, abort.signal);
        setRun(answer);
        if (answer.state === "running") timer = window.setTimeout(read, 500);
      } catch (error) {
        if (!abort.signal.aborted) setProblem(messageOf(error));
      }
    };
    void read();
    return () => { abort.abort(); clearTimeout(timer); };
  }, [id]);
  if (problem) return <Problem>{problem}</Problem>;
  if (!run) return <p class="empty">Asking…</p>;
  const cancel = () => ask("DELETE", `/v1/whatif/${encodeURIComponent(id)}`).catch((error: unknown) => setProblem(messageOf(error)));
  return (
    <>
      <Card title={`Run ${run.id}`} id="run-title">
        {run.state === "running" && (
          <p class="run-line">
            <progress max={1} value={run.progress} aria-label="Progress of the run" /> <span class="number">{Math.round(run.progress * 100)}%</span>
            <button type="button" class="boxed" onClick={cancel}>Cancel</button>
          </p>
        )}
        {run.state === "cancelled" && <p>It was cancelled.</p>}
        {run.state === "failed" && <Problem>It failed: {run.error ?? "no reason was given"}</Problem>}
        {run.state === "done" && run.result && <Summary result={run.result} />}
      </Card>
      {run.state === "done" && run.result && <Comparison result={run.result} />}
    </>
  );
}

type Row = Pick<Outcome, "policy" | "summary">;

const share = (value: number | null) => (value === null ? "–" : formatPercent(value));

/** How near the simulated past is to the real one. */
function Exactness({ policies }: { policies: Outcome[] }) {
  const differences = policies.find((outcome) => outcome.differences)?.differences;
  if (!differences || differences.jobs === 0) return null;
  return (
    <p>
      Under the policies that really ran, the simulated completion times of {plural(differences.jobs, "job")} differ from the real ones by{" "}
      {share(differences.p50)} (median) and {share(differences.worst)} (worst).
    </p>
  );
}

function Summary({ result }: { result: Result }) {
  const rows: Row[] = [{ policy: realPast, summary: result.truth.summary }, ...result.policies];
  return (
    <>
      <Table name="whatif" label="Summary" rows={rows} columns={summaryColumns} all={allColumns(rows)} keyOf={(row) => row.policy} empty="There is nothing to compare.">
        The average completion time is that of the {plural(Number(result.truth.summary.common_jobs ?? 0), "job")} that completed in every row.
      </Table>
      <Exactness policies={result.policies} />
      <h3>What is taken as truth</h3>
      <ul>{result.taken_as_truth.map((sentence) => <li key={sentence}>{sentence}</li>)}</ul>
      <h3>What cannot be known</h3>
      <ul>{result.unknown.map((sentence) => <li key={sentence}>{sentence}</li>)}</ul>
    </>
  );
}

const realPast = "what really happened";

const policyColumn: Column<Row> = { name: "policy", title: "Policy", cell: (row) => row.policy, value: (row) => row.policy };
const columnOf = (key: string, title: string): Column<Row> => ({
  name: key, title, number: true, cell: (row) => figure(key, row.summary[key]), value: (row) => row.summary[key] ?? null,
});

const summaryColumns: Column<Row>[] = [
  policyColumn,
  columnOf("completed", "Completed"),
  columnOf("unfinished", "Not ended"),
  columnOf("refused", "Refused"),
  columnOf("common_avg_jct_s", "Average completion time"),
  columnOf("p90_jct_s", "90th percentile"),
  columnOf("avg_wait_s", "Average wait"),
  columnOf("makespan_s", "Last end after"),
  columnOf("deadlines_kept", "Deadlines kept"),
  columnOf("deadlines_missed", "Missed"),
  columnOf("gpu_hours", "GPU-hours"),
  columnOf("resizes", "Resizes"),
];

/** An export has every figure that the daemon sends, by its own name. */
function allColumns(rows: Row[]): Column<Row>[] {
  return [policyColumn, ...[...new Set(rows.flatMap(({ summary }) => Object.keys(summary)))].map((key) => columnOf(key, key))];
}

function figure(key: string, value: number | string | null | undefined): string {
  if (typeof value !== "number") return value ?? "–";
  return key.endsWith("_s") ? formatDuration(value) : formatNumber(value);
}

function Comparison({ result }: { result: Result }) {
  const times = [result.truth, ...result.policies].flatMap((outcome) => outcome.jobs.flatMap((job) => [seconds(job.start), seconds(job.end)])).filter((time) => time !== null);
  const lo = Math.min(...times);
  const hi = Math.max(lo + 60, ...times);
  const gpus = Math.max(1, store.gpus);
  const viewport = useMemo(() => new Viewport({ lo, hi }, { lo: 0, hi: gpus }), [lo, hi, gpus]);
  const [truth, setTruth] = useState<TimelineSpan[]>(result.truth.spans ?? []);
  const pinned = route.get("pin") === null ? null : Number(route.get("pin"));
  const setPinned = (job: number | null) => route.set({ pin: job === null || job === pinned ? null : String(job) });
  useEffect(() => {
    if (result.truth.spans || times.length === 0) return;
    get<TimelineAnswer>(`/v1/timeline?since=${iso(Math.floor(lo))}&until=${iso(Math.ceil(hi))}`).then((answer) => setTruth(answer.spans), () => {});
  }, [lo, hi]);
  if (times.length === 0) return null;
  const rows: Outcome[] = [{ policy: realPast, summary: {}, jobs: result.truth.jobs, spans: truth, differences: null }, ...result.policies];
  return (
    <Card title="Side by side" id="side-title">
      {rows.map((outcome) => (
        <figure key={outcome.policy}>
          <figcaption><strong>{outcome.policy}</strong></figcaption>
          <OutcomeTimeline outcome={outcome} viewport={viewport} pinned={pinned} onPin={setPinned} end={hi} />
        </figure>
      ))}
      <details>
        <summary>As a table</summary>
        <JobTable result={result} />
      </details>
    </Card>
  );
}

function OutcomeTimeline({ outcome, viewport, pinned, onPin, end }: { outcome: Outcome; viewport: Viewport; pinned: number | null; onPin(job: number | null): void; end: number }) {
  const drawn = useMemo(() => {
    const nodes = nodeMap(store.nodes);
    const { ids, rows } = rectanglesOf(outcome.spans.map((span) => ({ ...span, from: seconds(span.from)!, until: seconds(span.until) })), nodes, end);
    return { nodes, ids, index: new TimelineIndex({ ...rows, total: rows.job.length, shown: rows.job.length }) };
  }, [outcome.spans]);
  const at = pinned === null ? -1 : drawn.ids.indexOf(pinned);
  const scene: Scene = useMemo(
    () => ({
      index: drawn.index, nodes: drawn.nodes, jobNames: drawn.ids.map((id) => (id === null ? "" : (store.jobs.get(id)?.name ?? String(id)))),
      pixels: Uint32Array.from(drawn.ids, (id) => (id === null ? toPixel(others) : jobPixel(id))), perJob: true,
      pinned: at < 0 ? null : at, viewport, ticks: clockTicks,
    }),
    [drawn, at, viewport],
  );
  return (
    <TimelineView
      scene={scene} height={Math.min(300, Math.max(110, store.gpus * 16 + 36))} label={`GPUs over time under ${outcome.policy}.`}
      onPin={(job) => onPin(job === null ? null : (drawn.ids[job] ?? null))}
      tooltip={({ job, moment, lane }) => {
        const id = drawn.ids[job] ?? null;
        return <><strong>{id === null ? "another user's job" : <>job {id} <bdi>{store.jobs.get(id)?.name}</bdi></>}</strong><p class="quiet">{drawn.nodes.describe(lane)}, {clock(moment)}</p></>;
      }}
    />
  );
}

function JobTable({ result }: { result: Result }) {
  const ends = result.policies.map((outcome) => new Map(outcome.jobs.map((job) => [job.job, job])));
  const columns: Column<JobOutcome>[] = [
    { name: "job", title: "Job", cell: (row) => (row.job === null ? "another user's" : <JobLink job={store.jobs.get(row.job) ?? { id: row.job }} />), value: (row) => row.job },
    { name: "end", title: "Really ended", cell: (row) => <Clock when={row.end} />, value: (row) => exact(row.end) || null },
    ...result.policies.map((outcome, i) => ({
      name: `end-${i}`, title: outcome.policy,
      cell: (row: JobOutcome) => <Clock when={ends[i]!.get(row.job)?.end} />,
      value: (row: JobOutcome) => exact(ends[i]!.get(row.job)?.end) || null,
    })),
  ];
  return <Table name="whatif-jobs" label="Ends of jobs" rows={result.truth.jobs} columns={columns} keyOf={(row) => String(row.job)} empty="No job was there." />;
}
