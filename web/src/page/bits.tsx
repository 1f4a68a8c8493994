// Small pieces that several views use.
import type { ComponentChildren } from "preact";
import { useEffect, useReducer, useRef, useState } from "preact/hooks";
import { formatDuration } from "../parts/format";
import { jobPixel } from "../parts/job_colours";
import { messageOf, type Job, type When } from "./api";
import { jobAddress } from "./route";
import { clock, exact, seconds } from "./time";

/** Renders again every so many seconds, for what goes on with the time. Returns how often it has. */
export function useTick(every = 1): number {
  const [ticks, render] = useReducer((count: number) => count + 1, 0);
  useEffect(() => {
    const timer = setInterval(() => !document.hidden && render(undefined), every * 1000);
    return () => clearInterval(timer);
  }, [every]);
  return ticks;
}

export function Clock({ when }: { when: When | null | undefined }) {
  return <time title={exact(when)}>{clock(when)}</time>;
}

/** Colour of a job on the timeline, in the grid of nodes and beside its name. */
export function jobColour(id: number): string {
  const pixel = jobPixel(id);
  return `rgb(${pixel & 255} ${(pixel >>> 8) & 255} ${(pixel >>> 16) & 255})`;
}

// Names come from users: <bdi> keeps a right-to-left name from turning around what stands beside it.
export function JobLink({ job, tab }: { job: { id: number; name?: string }; tab?: string }) {
  return (
    <a class="job-link" href={jobAddress(job.id, tab)}>
      <span class="job-colour" aria-hidden="true" style={{ background: jobColour(job.id) }} />
      <span class="job-number">{job.id}</span> <bdi class="job-name">{job.name ?? ""}</bdi>
    </a>
  );
}

const kindOfState: Record<string, string> = {
  PENDING: "waits", PROFILING: "waits", HELD: "waits",
  RUNNING: "runs", RESIZING: "runs", STOPPING: "runs",
  COMPLETED: "good", FAILED: "bad", REFUSED: "bad", CANCELLED: "over",
};

/** A state that this page does not know is shown as the daemon sent it. */
export function State({ state }: { state: string }) {
  return <span class={`state ${kindOfState[state] ?? "over"}`}>{state.toLowerCase()}</span>;
}

export function Progress({ job }: { job: Job }) {
  const { done } = job.progress;
  if (done === null) return <span class="quiet">{job.progress.step > 0 ? `step ${job.progress.step}` : "–"}</span>;
  const percent = Math.round(done * 100);
  return (
    <span class="progress">
      <progress max={1} value={done} aria-label={`Progress of job ${job.id}`} />
      <span class="number">{percent}%</span>
    </span>
  );
}

/** When the job is expected to end, and how sure that is. */
export function ExpectedEnd({ job }: { job: Job }) {
  if (job.ended) return <Clock when={job.ended} />;
  if (!job.eta) return <span class="quiet">not known yet</span>;
  return (
    <span class="expected">
      <Clock when={job.eta} />
      {job.eta_range && <span class="quiet" title="If the rest went as fast or as slowly as a tenth of its reports"> {clock(job.eta_range.earliest)} to {clock(job.eta_range.latest)}</span>}
    </span>
  );
}

/** Time left before the deadline, as a bar and as text. Later than the deadline in the bad case is in doubt. */
export function Slack({ job }: { job: Job }) {
  const slack = job.slack_seconds;
  if (slack === null) return <span class="quiet">–</span>;
  const submitted = seconds(job.submitted) ?? 0;
  const allowed = Math.max(1, (seconds(job.deadline) ?? 0) - submitted);
  const part = Math.min(1, Math.abs(slack) / allowed);
  const latest = seconds(job.eta_range?.latest);
  const doubtful = slack >= 0 && latest !== null && latest > (seconds(job.deadline) ?? Infinity);
  return (
    <span class={slack < 0 ? "slack is-late" : doubtful ? "slack is-doubtful" : "slack"}>
      <span class="slack-bar" aria-hidden="true"><span style={{ width: `${part * 100}%` }} /></span>
      <span>{slack < 0 ? `${formatDuration(-slack)} late` : `${formatDuration(slack)} to spare`}{doubtful && ", in doubt"}</span>
    </span>
  );
}

export function Card({ title, id, head, children }: { title: string; id: string; head?: ComponentChildren; children: ComponentChildren }) {
  return (
    <section class="card" aria-labelledby={id}>
      <div class="card-head">
        <h2 id={id}>{title}</h2>
        {head}
      </div>
      {children}
    </section>
  );
}

export function Problem({ children }: { children: ComponentChildren }) {
  return <p class="trouble" role="alert">{children}</p>;
}

/** Browsers have no clipboard for pages that come without encryption from another machine. */
export function CopyButton({ text }: { text: string }) {
  const [said, setSaid] = useState("Copy");
  if (!navigator.clipboard) return null;
  const copy = async () => {
    setSaid(await navigator.clipboard.writeText(text).then(() => "Copied", () => "The browser forbids it"));
    setTimeout(() => setSaid("Copy"), 1500);
  };
  return <button type="button" class="plain" onClick={copy}>{said}</button>;
}

interface ConfirmProps {
  title: string;
  /** The button that does it. */
  verb: string;
  danger?: boolean;
  onClose(): void;
  /** Closes the dialog when it succeeds; its error is shown otherwise. */
  act(): Promise<unknown>;
  children?: ComponentChildren;
}

/** Nothing is done before the reader has confirmed it. */
export function Confirm({ title, verb, danger, onClose, act, children }: ConfirmProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => dialog.current?.showModal(), []);
  const go = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await act();
      onClose();
    } catch (error) {
      setProblem(messageOf(error));
      setBusy(false);
    }
  };
  return (
    <dialog ref={dialog} onClose={onClose} aria-label={title}>
      <form method="dialog" onSubmit={go}>
        <h2>{title}</h2>
        {children}
        {problem && <Problem>{problem}</Problem>}
        <p class="dialog-buttons">
          <button type="button" onClick={onClose}>Leave it</button>
          <button type="submit" class={danger ? "danger" : "primary"} disabled={busy}>{verb}</button>
        </p>
      </form>
    </dialog>
  );
}
