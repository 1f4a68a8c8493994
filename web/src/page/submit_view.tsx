// Submits a job: with fields or with a job file, and never before the reader has seen the verdict.
import { useState } from "preact/hooks";
import { Toggle } from "../parts/choice";
import { ApiError, ask, messageOf, type Job, type Verdict } from "./api";
import { Card, CopyButton, Problem } from "./bits";
import { commandLine, emptyFields, jobOf, splitWords, type Fields } from "./job_text";
import { jobAddress, route } from "./route";
import { store } from "./store";

const example = `command: [python3, train.py]
name: train
gpus: {min: 1, max: 4}
goal: {deadline: +2h}
work: {steps: 10000}
`;

interface Answer {
  /** What was asked, so that a later change of the form makes it void. */
  asked: string;
  verdict?: Verdict;
  problem?: string;
}

export function SubmitView() {
  const mode = route.get("mode") === "file" ? "file" : "form";
  const [fields, setFields] = useState<Fields>(emptyFields);
  const [file, setFile] = useState(example);
  const [answer, setAnswer] = useState<Answer | null>(null);
  const [busy, setBusy] = useState(false);
  const body = mode === "form" ? JSON.stringify(jobOf(fields), null, 2) : file;
  const line = mode === "form" ? commandLine(fields) : "rubato submit job.yaml";
  const unclosed = mode === "form" && splitWords(fields.command) === null;
  const empty = mode === "form" ? fields.command.trim() === "" : file.trim() === "";
  const current = answer?.asked === body ? answer : null;

  const post = (dry: boolean) =>
    ask<Job>("POST", `/v1/jobs${dry ? "?dry_run=1" : ""}`, {
      text: [body.trim().startsWith("{") ? "application/json" : "application/yaml", body],
      key: dry ? undefined : crypto.randomUUID(),
    });
  const run = async (dry: boolean) => {
    setBusy(true);
    try {
      const job = await post(dry);
      if (dry) setAnswer({ asked: body, verdict: job.verdict });
      else {
        store.put(job);
        route.go(jobAddress(job.id));
      }
    } catch (error) {
      // A refused job is answered with its verdict.
      const verdict = error instanceof ApiError && error.status === 409 ? (error.body as Job | null)?.verdict : undefined;
      setAnswer({ asked: body, verdict, problem: verdict ? undefined : messageOf(error) });
    }
    setBusy(false);
  };
  const set = (name: keyof Fields) => (event: { currentTarget: { value: string } }) => setFields({ ...fields, [name]: event.currentTarget.value });

  return (
    <Card
      title="Submit a job" id="submit-title"
      head={<Toggle label="Describe it" options={[["form", "With fields"], ["file", "With a job file"]]} value={mode} onChange={(value) => { if (value === "file" && fields.command) setFile(`${body}\n`); route.set({ mode: value === "file" ? "file" : null }); }} />}
    >
      <form onSubmit={(event) => { event.preventDefault(); void run(true); }}>
        {mode === "form" ? (
          <div class="form-grid">
            <label class="wide">Command <input required spellcheck={false} class="mono" placeholder="python3 train.py --lr 1e-3" value={fields.command} onInput={set("command")} /></label>
            <label>Name <input value={fields.name} onInput={set("name")} /></label>
            <label>Profile <input value={fields.profile} onInput={set("profile")} /></label>
            <label class="wide">Directory <input spellcheck={false} class="mono" placeholder="your home" value={fields.directory} onInput={set("directory")} /></label>
            <label>Fewest GPUs <input type="number" min={1} value={fields.min} onInput={set("min")} /></label>
            <label>Most GPUs <input type="number" min={1} placeholder="all" value={fields.max} onInput={set("max")} /></label>
            <label>Deadline <input placeholder="none; +2h, or 2026-11-20T17:00:00Z" value={fields.deadline} onInput={set("deadline")} /></label>
            <label>
              Work
              <span class="pair">
                <input type="number" min={1} placeholder="not known" value={fields.work} onInput={set("work")} />
                <select aria-label="Unit of the work" value={fields.unit} onChange={set("unit")}>
                  <option>steps</option><option>epochs</option><option>samples</option>
                </select>
              </span>
            </label>
          </div>
        ) : (
          <label class="wide">
            Job file, JSON or YAML
            <textarea class="mono" spellcheck={false} rows={14} value={file} onInput={(event) => setFile(event.currentTarget.value)} />
          </label>
        )}
        {unclosed && <Problem>The command has a quote that is not closed.</Problem>}
        <p class="quiet">The same on the command line: <code class="command">{line}</code> <CopyButton text={line} /></p>
        <p class="dialog-buttons">
          <button type="submit" disabled={busy || empty || unclosed}>What would happen?</button>
          <button type="button" class="primary" disabled={busy || !current || current.problem !== undefined || current.verdict?.admitted === false} onClick={() => run(false)}>Submit</button>
        </p>
      </form>
      <div class="verdict-place" role="status">
        {current?.problem && <Problem>{current.problem}</Problem>}
        {current?.verdict && <p class={current.verdict.admitted === false ? "verdict is-late" : "verdict"}>{sentence(current.verdict.text)}</p>}
        {!current && <p class="quiet">Ask what would happen first. Nothing is stored until you submit.</p>}
      </div>
    </Card>
  );
}

function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1) + (text.endsWith(".") ? "" : ".");
}
