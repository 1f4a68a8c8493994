// Why a job has the GPUs it has: the daemon's explanation from the recorded decision.
import { useEffect, useState } from "preact/hooks";
import { formatNumber } from "../parts/format";
import { get, messageOf, type Explanation, type Job } from "./api";
import { JobLink, Problem } from "./bits";
import { store } from "./store";

export function Why({ job }: { job: Job }) {
  const [said, setSaid] = useState<Explanation | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  // What it has and why it waits decide when the answer may be another one.
  const version = `${job.id} ${job.state} ${job.gpus} ${job.reason} ${job.position}`;
  useEffect(() => {
    const abort = new AbortController();
    get<Explanation>(`/v1/jobs/${job.id}/explain`, abort.signal).then(
      (answer) => {
        setSaid(answer);
        setProblem(null);
      },
      (error: unknown) => abort.signal.aborted || setProblem(messageOf(error)),
    );
    return () => abort.abort();
  }, [version]);
  if (problem) return <Problem>{problem}</Problem>;
  if (!said) return <p class="empty">Asking…</p>;
  return (
    <div class="why-text">
      {said.sentences.map((sentence) => <p key={sentence}><bdi>{sentence}</bdi></p>)}
      {(said.waits_for ?? []).length > 0 && (
        <>
          <h3>It waits for</h3>
          <ul class="plain-list">{said.waits_for.slice(0, 50).map((id) => <li key={id}><JobLink job={store.jobs.get(id) ?? { id }} /></li>)}</ul>
        </>
      )}
      {(said.would_change ?? []).length > 0 && (
        <>
          <h3>What would change it</h3>
          <ul>{said.would_change.map((sentence) => <li key={sentence}><bdi>{sentence}</bdi></li>)}</ul>
        </>
      )}
      {said.market && (
        <>
          <h3>The market</h3>
          <dl class="facts-list">
            <div><dt>Price of a GPU</dt><dd>{formatNumber(said.market.price)}</dd></div>
            <div><dt>Bid of this job</dt><dd>{formatNumber(said.market.bid)}</dd></div>
            <div><dt>Jobs that bid more</dt><dd>{said.market.outbid}</dd></div>
          </dl>
          <p class="quiet">For one GPU, in job-seconds saved a second.</p>
        </>
      )}
    </div>
  );
}
