// What the policy decided: who grew, shrank, started or stopped, and why.
import { useEffect, useState } from "preact/hooks";
import { formatNumber } from "../parts/format";
import { get, messageOf, type Change, type DecisionShown } from "./api";
import { Card, Clock, JobLink, Problem } from "./bits";
import { route } from "./route";
import { store } from "./store";
import { seconds } from "./time";

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
  const quiet = route.get("quiet") === "1";
  const shown = store.decisions.filter((decision) => quiet || decision.changes.length > 0);
  const oldest = store.decisions[store.decisions.length - 1];
  return (
    <Card
      title="Decisions" id="decisions-title"
      head={
        <label class="check">
          <input type="checkbox" checked={quiet} onChange={(event) => route.set({ quiet: event.currentTarget.checked ? "1" : null })} />
          with those that changed nothing
        </label>
      }
    >
      {problem && <Problem>The decisions cannot be read: {problem}</Problem>}
      {shown.length === 0 && !problem && <p class="empty">No decision has changed anything yet.</p>}
      <ol class="decisions">
        {shown.map((decision) => (
          <li key={decision.id} class="decision">
            <p class="decision-head">
              <Clock when={decision.time} /> <code>{decision.policy}</code>
              <span class="quiet">{decision.took_ms !== null && `took ${formatNumber(decision.took_ms)} ms`}</span>
              <a class="quiet" href={`#/whatif?since=${Math.floor((seconds(decision.time) ?? 0) - 3600)}`}>replay the hour before in the simulator</a>
            </p>
            <ul class="changes">{decision.changes.map((change, i) => <li key={i}><ChangeText change={change} /></li>)}</ul>
          </li>
        ))}
      </ol>
      {more && oldest && <button type="button" class="plain more" onClick={() => read(oldest.id)}>Show older decisions</button>}
    </Card>
  );
}

function ChangeText({ change }: { change: Change }) {
  const kind = change.to > change.from ? "grows" : change.to < change.from ? "shrinks" : "stays";
  return (
    <>
      <span class={`change ${kind}`} aria-hidden="true">{kind === "grows" ? "▲" : kind === "shrinks" ? "▼" : "•"}</span>
      {change.job === null ? <span class="quiet">another user's job</span> : <JobLink job={store.jobs.get(change.job) ?? { id: change.job }} />}{" "}
      <span>{change.kind}</span> <span class="number">{change.from} → {change.to}</span>{" "}
      {change.reason && <span class="quiet"><bdi>{change.reason}</bdi></span>}
    </>
  );
}

