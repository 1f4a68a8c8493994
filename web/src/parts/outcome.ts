// The result of a job under a policy, in numbers and in words.
import type { Jobs, MaybeNumber, Report, Run } from "./data";
import { formatDuration, formatMoment, formatNumber, formatPercent, plural } from "./format";

export type Fact = [label: string, text: string];

export function completionTime(jobs: Jobs, run: Run, job: number): MaybeNumber {
  return difference(run.jobs.end[job], jobs.submit[job]);
}

export function waitingTime(jobs: Jobs, run: Run, job: number): MaybeNumber {
  return difference(run.jobs.start[job], jobs.submit[job]);
}

/** Time left at the deadline; negative when late. */
export function slack(jobs: Jobs, run: Run, job: number): MaybeNumber {
  return difference(jobs.deadline[job], run.jobs.end[job]);
}

/** Completion time divided by the time alone on the requested GPUs, from the submission on. */
export function slowdown(jobs: Jobs, run: Run, job: number): MaybeNumber {
  const took = completionTime(jobs, run, job);
  const alone = jobs.workGpuSeconds[job]! / jobs.gpus[job]!;
  return took !== null && alone > 0 && Number.isFinite(alone) ? took / alone : null;
}

function difference(end: MaybeNumber | undefined, start: MaybeNumber | undefined): MaybeNumber {
  return typeof end === "number" && typeof start === "number" ? end - start : null;
}

export function formatSlack(seconds: number): string {
  return seconds >= 0 ? `met, ${formatDuration(seconds)} to spare` : `late by ${formatDuration(-seconds)}`;
}

/** Sorted completion times of the jobs that finished. */
export function sortedCompletionTimes(jobs: Jobs, run: Run): Float64Array {
  const times: number[] = [];
  for (let job = 0; job < jobs.count; job++) {
    const time = completionTime(jobs, run, job);
    if (time !== null) times.push(time);
  }
  return Float64Array.from(times).sort();
}

export function jobFacts(report: Report, run: Run, job: number, gpusHeld: MaybeNumber): Fact[] {
  const { jobs } = report;
  const asked = plural(jobs.gpus[job]!, "GPU");
  const facts: Fact[] = [
    ["User", jobs.user[job]!],
    ["Model", jobs.model[job]!],
    ["GPUs", gpusHeld === null ? `${asked} requested` : `${formatNumber(gpusHeld)} held, ${asked} requested`],
    ["Submitted", momentText(jobs.submit[job]!)],
    ["Started", momentText(run.jobs.start[job] ?? null)],
    ["Ended", momentText(run.jobs.end[job] ?? null)],
    ["Completion time", durationText(completionTime(jobs, run, job))],
    ["Preempted", run.jobs.preemptions[job]! > 0 ? plural(run.jobs.preemptions[job]!, "time") : ""],
    ["Deadline", deadlineText(jobs, run, job)],
    ["Rejected", run.jobs.rejected.get(job) ?? ""],
  ];
  return facts.filter(([, text]) => text !== "");
}

function momentText(moment: MaybeNumber): string {
  return moment === null ? "never" : `at ${formatMoment(moment)}`;
}

function durationText(seconds: MaybeNumber): string {
  return seconds === null ? "" : formatDuration(seconds);
}

function deadlineText(jobs: Jobs, run: Run, job: number): string {
  const deadline = jobs.deadline[job] ?? null;
  if (deadline === null) return "";
  const left = slack(jobs, run, job);
  return left === null ? `at ${formatMoment(deadline)}, missed` : formatSlack(left);
}

const noteworthyShare = 0.1;

/** Why a finished job took as long as it did. */
export function reasonsForDelay(jobs: Jobs, run: Run, job: number): string[] {
  const reasons = [waitReason(jobs, run, job), shareReason(jobs, run, job)];
  const preemptions = run.jobs.preemptions[job]!;
  if (preemptions > 0) reasons.push(`preempted ${plural(preemptions, "time")}`);
  const left = slack(jobs, run, job);
  if (left !== null && left < 0) reasons.push(formatSlack(left));
  const found = reasons.filter((reason) => reason !== "");
  return found.length > 0 ? found : ["long job: ran undisturbed"];
}

function waitReason(jobs: Jobs, run: Run, job: number): string {
  const waited = waitingTime(jobs, run, job) ?? 0;
  const took = completionTime(jobs, run, job) ?? 0;
  if (!(waited > took * noteworthyShare)) return "";
  return `waited ${formatDuration(waited)} to start (${formatPercent(waited / took)})`;
}

function shareReason(jobs: Jobs, run: Run, job: number): string {
  const ran = difference(run.jobs.end[job], run.jobs.start[job]) ?? 0;
  const asked = jobs.gpus[job]!;
  const held = run.jobs.attainedGpuSeconds[job]! / ran;
  if (!(ran > 0) || !(held < asked * (1 - noteworthyShare))) return "";
  return `held ${formatNumber(held)} of ${asked} GPUs on average`;
}
