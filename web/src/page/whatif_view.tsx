// How the past would have gone under other policies: the daemon runs the simulator on what really happened.
import { useEffect, useMemo, useState } from "preact/hooks";
import { Select } from "../parts/choice";
import { formatDuration, formatNumber } from "../parts/format";
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
  const [span, setSpan] = useState("1d");
  const since = Number(route.get("since") ?? NaN);
  const [policies, setPolicies] = useState(route.get("policies") ?? "as-run, afs-l");
  const [problem, setProblem] = useState<string | null>(null);
  const begin = async (event: Event) => {
    event.preventDefault();
    setProblem(null);
    try {
      const from = Number.isFinite(since) ? since : Math.floor(now() - spans.find(([choice]) => choice === span)![2]);
      const run = await ask<{ id: string | number }>("POST", "/v1/whatif", { body: { since: iso(from), policies: policies.split(",").map((name) => name.trim()).filter(Boolean) } });
      route.go(`#/whatif/${run.id}`);
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
            <Select label="What" value={span} options={spans.map(([choice, text]) => [choice, text])} onChange={setSpan} />
          )}
          <label>Policies <input required spellcheck={false} value={policies} onInput={(event) => setPolicies(event.currentTarget.value)} /></label>
          <button type="submit" class="primary" disabled={connection.session?.role !== "admin"}>Run</button>
        </form>
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

/** Every figure that the daemon sends, by its own name; seconds as durations. */
function Summary({ result }: { result: Result }) {
  const rows = [{ policy: "what really happened", summary: result.truth.summary }, ...result.policies];
  const keys = [...new Set(rows.flatMap(({ summary }) => Object.keys(summary)))];
  const columns: Column<(typeof rows)[number]>[] = [
    { name: "policy", title: "Policy", cell: (row) => row.policy, value: (row) => row.policy },
    ...keys.map((key) => ({
      name: key, title: key.replace(/_s$/, "").replace(/_/g, " "), number: true,
      cell: (row: (typeof rows)[number]) => figure(key, row.summary[key]), value: (row: (typeof rows)[number]) => row.summary[key] ?? null,
    })),
  ];
  return (
    <>
      <Table name="whatif" label="Summary" rows={rows} columns={columns} keyOf={(row) => row.policy} empty="There is nothing to compare." />
      <h3>What is taken as truth</h3>
      <ul>{result.taken_as_truth.map((sentence) => <li key={sentence}>{sentence}</li>)}</ul>
      <h3>What cannot be known</h3>
      <ul>{result.unknown.map((sentence) => <li key={sentence}>{sentence}</li>)}</ul>
    </>
  );
}

function figure(key: string, value: number | string | null | undefined): string {
  if (typeof value !== "number") return value ?? "–";
  return /_s$|seconds/.test(key) ? formatDuration(value) : formatNumber(value);
}

function Comparison({ result }: { result: Result }) {
  const times = [result.truth, ...result.policies].flatMap((outcome) => outcome.jobs.flatMap((job) => [seconds(job.start), seconds(job.end)])).filter((time) => time !== null);
  const lo = Math.min(...times);
  const hi = Math.max(lo + 60, ...times);
  const gpus = Math.max(1, store.gpus);
  const viewport = useMemo(() => new Viewport({ lo, hi }, { lo: 0, hi: gpus }), [lo, hi, gpus]);
  const [truth, setTruth] = useState<TimelineSpan[]>(result.truth.spans ?? []);
  const [pinned, setPinned] = useState<number | null>(null);
  useEffect(() => {
    if (result.truth.spans || times.length === 0) return;
    get<TimelineAnswer>(`/v1/timeline?since=${iso(Math.floor(lo))}&until=${iso(Math.ceil(hi))}`).then((answer) => setTruth(answer.spans), () => {});
  }, [lo, hi]);
  if (times.length === 0) return null;
  const rows: Outcome[] = [{ policy: "what really happened", summary: {}, jobs: result.truth.jobs, spans: truth }, ...result.policies];
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
