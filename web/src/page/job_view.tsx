// One job: what it does, why, its past, its log.
import { useEffect, useState } from "preact/hooks";
import { formatDuration, formatNumber, plural } from "../parts/format";
import { JobActions } from "./actions";
import { get, messageOf, type HistoryEvent, type Job } from "./api";
import { Card, Clock, CopyButton, ExpectedEnd, jobColour, JobLink, Problem, Progress, Slack, State } from "./bits";
import { JobCharts } from "./job_charts";
import { quoted } from "./job_text";
import { LogView } from "./log_view";
import { useQueue } from "./jobs_view";
import { promiseText } from "./promises_view";
import { jobAddress, route } from "./route";
import { active, store, waiting } from "./store";
import { Table, type Column } from "./table";
import { exact } from "./time";
import { Why } from "./why";

const tabs = [["", "Overview"], ["why", "Why"], ["log", "Log"], ["history", "History"]] as const;

export function JobView({ reference }: { reference: string }) {
  const id = Number(reference);
  const job = store.jobs.get(id);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    setProblem(null);
    if (job || !store.loaded) return;
    get<Job>(`/v1/jobs/${encodeURIComponent(reference)}`).then((found) => store.put(found), (error: unknown) => setProblem(messageOf(error)));
  }, [reference, job === undefined, store.loaded]);
  useQueue(job?.state === "PENDING");
  if (problem) return <Problem>{problem}</Problem>;
  if (!job) return <p class="empty">Reading job {reference}…</p>;
  const tab = tabs.find(([name]) => name === (route.get("tab") ?? ""))?.[0] ?? "";
  return (
    <>
      <div class="job-head">
        <div>
          <p class="overline">Job {job.id}</p>
          <h1><span class="job-colour" aria-hidden="true" style={{ background: jobColour(job.id) }} /> <bdi>{job.name}</bdi></h1>
        </div>
        <JobActions job={job} />
      </div>
      <p class="job-line">
        <State state={job.state} /> <span>{plural(job.gpus, "GPU")}{job.slots.length > 0 && <span class="quiet"> in {job.slots.join(", ")}</span>}</span>
        {(job.progress.done !== null || job.progress.step > 0) && <Progress job={job} />}
        {job.slack_seconds !== null && <Slack job={job} />}
      </p>
      {job.position !== null && (
        <p class="job-reason">
          Position {job.position} in the queue, {job.estimated_start ? <>estimated start <Clock when={job.estimated_start} /></> : "its start is not known yet"}.
        </p>
      )}
      {job.reason && <p class="job-reason"><bdi>{job.reason}</bdi> {tab !== "why" && !(tab === "" && isAnswered(job)) && <a href={jobAddress(job.id, "why")}>why?</a>}</p>}
      {job.note && (isGuest(job) ? <p class="job-reason"><bdi>It is {job.note}.</bdi></p> : <Problem><bdi>{job.note}</bdi></Problem>)}
      <nav class="tabs" aria-label="Parts of the job">
        {tabs.map(([name, text]) => (
          <a key={name} href={jobAddress(job.id, name)} aria-current={name === tab ? "page" : undefined}>{text}</a>
        ))}
      </nav>
      {tab === "" && <Overview job={job} />}
      {tab === "why" && <Card title="Why it has the GPUs it has" id="why-title"><Why job={job} /></Card>}
      {tab === "log" && <Card title="Log" id="log-title"><LogView key={job.id} job={job.id} name={job.name} /></Card>}
      {tab === "history" && <Card title="What has happened" id="history-title"><JobHistory job={job} /></Card>}
    </>
  );
}

function isGuest(job: Job): boolean {
  return job.guest_share !== null && job.guest_share !== undefined;
}

/** Jobs on the same GPUs; null: another user's. */
function sharers(job: Job): (number | null)[] {
  const found = new Set<number | null>();
  for (const { used } of store.nodes) {
    const own = new Set(used.filter((use) => use.job === job.id).map((use) => use.gpu));
    for (const use of used) if (own.has(use.gpu) && use.job !== job.id) found.add(use.job);
  }
  return [...found];
}

function trialText({ search, trial }: Job): string {
  const metrics = trial!.stages.map((metric) => (metric === null ? "none" : formatNumber(metric))).join(", ");
  const stages = metrics === "" ? "no stage is finished" : `${search!.metric} after each finished stage: ${metrics}`;
  return `trial ${trial!.number} of ${search!.trials}; ${stages}${trial!.waits ? "; it waits for other trials" : ""}`;
}

/** A job that waits, has fewer GPUs than it could use, or does not train as others do: a guest, a trial. */
function isAnswered(job: Job): boolean {
  return waiting.has(job.state) || (active.has(job.state) && (job.gpus < job.limits.max || isGuest(job) || !!job.trial));
}

function Overview({ job }: { job: Job }) {
  const shares = sharers(job);
  return (
    <>
      {isAnswered(job) && <Card title="Why it has the GPUs it has" id="why-title"><Why job={job} /></Card>}
      <JobCharts job={job} />
      <Card title="Facts" id="facts-title">
        <dl class="facts-list is-wide">
          <Fact name="User"><bdi>{job.user}</bdi></Fact>
          <Fact name="Submitted"><Clock when={job.submitted} /></Fact>
          <Fact name="First GPUs"><Clock when={job.started} /></Fact>
          {job.ended ? <Fact name="Ended"><Clock when={job.ended} /></Fact> : <Fact name="Expected end"><ExpectedEnd job={job} /></Fact>}
          {job.position !== null && <Fact name="Position in the queue">{job.position}</Fact>}
          {job.estimated_start && <Fact name="Estimated start"><Clock when={job.estimated_start} /></Fact>}
          {job.deadline && <Fact name="Deadline"><Clock when={job.deadline} /></Fact>}
          {job.deadline && <Fact name="Promise">{promiseText(job)}</Fact>}
          {job.search && job.trial && (
            <Fact name="Search"><a href={`#/jobs?show=all&q=${encodeURIComponent(job.search.name)}`}><bdi>{job.search.name}</bdi></a>, <bdi>{trialText(job)}</bdi></Fact>
          )}
          {shares.length > 0 && (
            <Fact name="Shares its GPUs with">{shares.map((id) => (id === null ? "another user's job " : <span key={id}><JobLink job={store.jobs.get(id) ?? { id }} /> </span>))}</Fact>
          )}
          <Fact name="GPUs allowed">{job.limits.min === job.limits.max ? job.limits.max : `${job.limits.min} to ${job.limits.max}`}</Fact>
          <Fact name="GPU time">{formatDuration(job.gpu_seconds)}</Fact>
          <Fact name="Resizes">{job.resizes}{job.last_pause_seconds !== null && `, the last paused it for ${formatNumber(job.last_pause_seconds * 1000)} ms`}</Fact>
          <Fact name="Restarts">{job.restarts}</Fact>
          <Fact name="Failures">{job.failures}</Fact>
          {job.exit_code !== null && <Fact name="Exit code">{job.exit_code}</Fact>}
          <Fact name="Step">{job.progress.step || "–"}</Fact>
        </dl>
      </Card>
      <HowItRuns job={job} />
    </>
  );
}

/** The command and its environment, as they were submitted. */
function HowItRuns({ job }: { job: Job }) {
  const [file, setFile] = useState<Job["file"] | null>(null);
  const [command, setCommand] = useState(job.command);
  useEffect(() => {
    const abort = new AbortController();
    get<Job>(`/v1/jobs/${job.id}`, abort.signal).then((whole) => {
      setFile(whole.file ?? {});
      setCommand(whole.command);
    }, () => {});
    return () => abort.abort();
  }, [job.id]);
  const line = command.map(quoted).join(" ");
  const env = Object.entries(file?.env ?? {});
  const secrets = Object.entries(file?.secrets ?? {});
  return (
    <Card title="How it runs" id="how-title">
      <p><code class="command"><bdi>{line}</bdi></code>{job.command_cut && command === job.command ? " … (cut)" : <> <CopyButton text={line} /></>}</p>
      {file?.directory && <p class="quiet">In <code><bdi>{file.directory}</bdi></code></p>}
      <h3>Environment</h3>
      {env.length + secrets.length === 0 ? (
        <p class="quiet">{file ? "The job sets no variables." : "Reading…"}</p>
      ) : (
        <dl class="facts-list">
          {env.map(([name, value]) => <div key={name}><dt><code><bdi>{name}</bdi></code></dt><dd><code><bdi>{value}</bdi></code></dd></div>)}
          {secrets.map(([name, path]) => <div key={name}><dt><code><bdi>{name}</bdi></code></dt><dd class="quiet">a secret from the file <code><bdi>{path}</bdi></code></dd></div>)}
        </dl>
      )}
      {file && Object.keys(file).length > 0 && (
        <details>
          <summary>Job file</summary>
          <pre class="job-file">{JSON.stringify(file, null, 2)}</pre>
        </details>
      )}
    </Card>
  );
}

function Fact({ name, children }: { name: string; children: preact.ComponentChildren }) {
  return <div><dt>{name}</dt><dd>{children}</dd></div>;
}

const historyColumns: Column<HistoryEvent>[] = [
  { name: "at", title: "Time", cell: (event) => <Clock when={event.at} />, value: (event) => exact(event.at) },
  { name: "type", title: "Event", cell: (event) => event.type, value: (event) => event.type },
  { name: "text", title: "What", cell: (event) => <bdi>{event.text}</bdi>, value: (event) => event.text },
];

function JobHistory({ job }: { job: Job }) {
  const [events, setEvents] = useState<HistoryEvent[]>([]);
  const [problem, setProblem] = useState<string | null>(null);
  const version = `${job.id} ${job.state} ${job.gpus} ${job.resizes} ${job.restarts} ${job.failures}`;
  useEffect(() => {
    const abort = new AbortController();
    get<{ events: HistoryEvent[] }>(`/v1/history?job=${job.id}&limit=1000`, abort.signal).then(
      (answer) => setEvents(answer.events),
      (error: unknown) => abort.signal.aborted || setProblem(messageOf(error)),
    );
    return () => abort.abort();
  }, [version]);
  if (problem) return <Problem>{problem}</Problem>;
  return <Table name="history" label="Events of this job" rows={events} columns={historyColumns} keyOf={(event) => `${event.number} ${event.type} ${event.text}`} empty="Nothing is recorded in the newest part of the journal." />;
}
