// What the policy decided: who grew, shrank, started or stopped, and why.
import { useEffect, useState } from "preact/hooks";
import { formatNumber } from "../parts/format";
import { get, messageOf, type Change, type DecisionShown } from "./api";
import { Card, Clock, JobLink, Problem } from "./bits";
import { store } from "./store";
import { exportCsv } from "./table";
import { exact, seconds } from "./time";
import type { CsvColumn } from "./csv";

const pageSize = 100;

export function DecisionsView() {
  const [problem, setProblem] = useState<string | null>(null);
  const [more, setMore] = useState(true);
  const read = async (before: number | null) => {
    try {
      const { decisions } = await get<{ decisions: DecisionShown[] }>(`/v1/decisions?limit=${pageSize}${before === null ? "" : `&before=${before}`}`);
      store.addDecisions(decisions);
      setMore(decisions.length === pageSize);
      setProblem(null);
    } catch (error) {
      setProblem(messageOf(error));
    }
  };
  useEffect(() => void read(null), []);
  const shown = store.decisions;
  const oldest = store.decisions[store.decisions.length - 1];
  return (
    <Card title="Decisions" id="decisions-title">
      <div class="table-head">
        <p class="quiet">Decisions that changed nothing are left out.</p>
        <button type="button" class="plain" disabled={shown.length === 0} onClick={() => exportCsv("decisions", shown.flatMap(rowsOf), exported)}>Export CSV</button>
      </div>
      {problem && <Problem>The decisions cannot be read: {problem}</Problem>}
      {shown.length === 0 && !problem && <p class="empty">No decision has changed anything yet.</p>}
      <ol class="decisions">
        {shown.map((decision) => (
          <li key={decision.id} class="decision">
            <p class="decision-head">
              <Clock when={decision.time} /> <code>{decision.policy}</code>
              <span class="quiet">{decision.took_ms !== null && `took ${formatNumber(decision.took_ms)} ms`}</span>
              <a class="small" href={`#/whatif?since=${Math.floor((seconds(decision.time) ?? 0) - 1)}`} aria-label={`replay from here in the simulator, from decision ${decision.id} on`}>replay from here in the simulator</a>
            </p>
            <ul class="changes">{decision.changes.map((change, i) => <li key={i}><ChangeText change={change} /></li>)}</ul>
          </li>
        ))}
      </ol>
      {more && oldest && <button type="button" class="plain more" onClick={() => read(oldest.id)}>Show older decisions</button>}
    </Card>
  );
}

interface ChangeRow extends Change {
  decision: DecisionShown;
}

const rowsOf = (decision: DecisionShown): ChangeRow[] => decision.changes.map((change) => ({ ...change, decision }));

const exported: CsvColumn<ChangeRow>[] = [
  { title: "Decision", value: (row) => row.decision.id },
  { title: "Time", value: (row) => exact(row.decision.time) },
  { title: "Policy", value: (row) => row.decision.policy },
  { title: "Took, ms", value: (row) => row.decision.took_ms },
  { title: "Job", value: (row) => row.job },
  { title: "What", value: (row) => row.kind },
  { title: "From GPUs", value: (row) => row.from },
  { title: "To GPUs", value: (row) => row.to },
  { title: "Why", value: (row) => row.reason ?? null },
];

const verbs: Record<string, string> = {
  start: "starts", stop: "stops", restart: "starts again", recovery: "recovers", grow: "grows", shrink: "shrinks", move: "moves", refuse: "is refused",
};

function ChangeText({ change }: { change: Change }) {
  const kind = change.to > change.from ? "grows" : change.to < change.from ? "shrinks" : "stays";
  return (
    <>
      <span class={`change ${kind}`} aria-hidden="true">{kind === "grows" ? "▲" : kind === "shrinks" ? "▼" : "•"}</span>
      {change.job === null ? <span class="quiet">another user's job</span> : <JobLink job={store.jobs.get(change.job) ?? { id: change.job }} />}{" "}
      <span>{verbs[change.kind] ?? change.kind}</span> <span class="number">{change.from} → {change.to}</span>{" "}
      {change.reason && <span class="quiet"><bdi>{change.reason}</bdi></span>}
    </>
  );
}

