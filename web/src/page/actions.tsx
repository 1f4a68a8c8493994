// What a reader may do to a job, each with its confirmation.
import { useState } from "preact/hooks";
import { ask, type Job } from "./api";
import { Confirm } from "./bits";
import { ended, store } from "./store";

type Verb = "cancel" | "hold" | "release" | "resize";

export function JobActions({ job }: { job: Job }) {
  const [verb, setVerb] = useState<Verb | null>(null);
  if (ended.has(job.state)) return null;
  const held = job.state === "HELD";
  const close = () => setVerb(null);
  return (
    <div class="actions">
      <button type="button" class="boxed" onClick={() => setVerb("resize")}>Resize…</button>
      <button type="button" class="boxed" onClick={() => setVerb(held ? "release" : "hold")}>{held ? "Release…" : "Hold…"}</button>
      <button type="button" class="boxed danger" onClick={() => setVerb("cancel")}>Cancel…</button>
      {verb === "resize" && <ResizeDialog job={job} onClose={close} />}
      {verb === "cancel" && (
        <Confirm title={`Cancel job ${job.id}?`} verb="Cancel the job" danger onClose={close} act={() => act("DELETE", job, "")}>
          <p><bdi>{job.name}</bdi> stops and does not start again. It holds {job.gpus} GPUs now.</p>
        </Confirm>
      )}
      {verb === "hold" && (
        <Confirm title={`Hold job ${job.id}?`} verb="Hold" onClose={close} act={() => act("POST", job, "/hold")}>
          <p>{job.gpus > 0 ? "It stops, gives up its GPUs, and keeps its progress." : "It does not start."} It goes on when you release it.</p>
          {job.promised && <p class="trouble">It was promised to be done by its deadline. A held job may miss it.</p>}
        </Confirm>
      )}
      {verb === "release" && (
        <Confirm title={`Release job ${job.id}?`} verb="Release" onClose={close} act={() => act("POST", job, "/release")}>
          <p>It may start again when the policy gives it GPUs.</p>
        </Confirm>
      )}
    </div>
  );
}

async function act(method: string, job: Job, rest: string, body?: unknown): Promise<void> {
  store.put(await ask<Job>(method, `/v1/jobs/${job.id}${rest}`, { body }));
}

function ResizeDialog({ job, onClose }: { job: Job; onClose(): void }) {
  const [min, setMin] = useState(String(job.limits.min));
  const [max, setMax] = useState(String(job.limits.max));
  return (
    <Confirm
      title={`Resize job ${job.id}?`} verb="Resize" onClose={onClose}
      act={() => act("POST", job, "/resize", { min: Number(min), max: Number(max) })}
    >
      <p>The policy chooses within these limits. The job holds {job.gpus} GPUs now.</p>
      <p class="fields">
        <label>Fewest GPUs <input type="number" min={1} required value={min} onInput={(event) => setMin(event.currentTarget.value)} /></label>
        <label>Most GPUs <input type="number" min={1} required value={max} onInput={(event) => setMax(event.currentTarget.value)} /></label>
      </p>
      <p class="quiet">The same on the command line: <code>rubato resize {job.id} {min === max ? max : `${min}:${max}`}</code></p>
    </Confirm>
  );
}
