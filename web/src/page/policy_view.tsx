// The policy in force, its promises, and the switch to another one.
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ask, messageOf, type PolicyShown } from "./api";
import { Card, Clock, Confirm, JobLink, Problem } from "./bits";
import { connection } from "./connection";
import { store } from "./store";

export function PolicyView() {
  const admin = connection.session?.role === "admin";
  const [wanted, setWanted] = useState("");
  const [asking, setAsking] = useState(false);
  const [lost, setLost] = useState<Lost | null>(null);
  const promises = store.policy?.promises ?? [];
  return (
    <Card title="Policy" id="policy-title">
      <p>The policy in force is <code>{store.policy?.policy ?? "not known"}</code>.</p>
      {promises.length > 0 && <p>It has given {promises.length === 1 ? "one promise" : `${promises.length} promises`} that you can see. <a href="#/promises">Look at them.</a></p>}
      {admin ? (
        <form class="fields" onSubmit={(event) => { event.preventDefault(); setAsking(true); }}>
          <label>
            Switch to
            <input required spellcheck={false} list="policies" placeholder="elasticflow" value={wanted} onInput={(event) => setWanted(event.currentTarget.value)} />
          </label>
          <PolicyNames id="policies" />
          <button type="submit" class="primary" disabled={wanted.trim() === ""}>Switch…</button>
        </form>
      ) : (
        <p class="quiet">Only an admin can switch it.</p>
      )}
      <p class="quiet"><code>rubato policies</code> lists all policies and their options.</p>
      {lost && (
        <div role="status">
          <h3>After the switch</h3>
          {lost.length === 0 ? (
            <p>No promise was lost.</p>
          ) : (
            <LostPromises lost={lost}>These promises are not honoured by the new policy:</LostPromises>
          )}
        </div>
      )}
      {asking && (
        <Confirm
          title={`Switch to ${wanted}?`} verb="Switch" onClose={() => setAsking(false)}
          act={async () => {
            const answer = await ask<PolicyShown>("PUT", "/v1/policy", { body: { policy: wanted.trim() } });
            setLost(answer.not_honoured ?? []);
            store.policy = { ...store.policy, ...answer };
          }}
        >
          <p>Running jobs do not stop. The new policy decides from now on.</p>
          <BeforeSwitch policy={wanted.trim()} />
        </Confirm>
      )}
    </Card>
  );
}

type Lost = NonNullable<PolicyShown["not_honoured"]>;

/** What the switch would cost: the daemon lets the policy decide on a copy of the cluster. */
function BeforeSwitch({ policy }: { policy: string }) {
  const [lost, setLost] = useState<Lost | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    const abort = new AbortController();
    ask<PolicyShown>("PUT", "/v1/policy?dry_run=1", { body: { policy }, signal: abort.signal }).then(
      (answer) => setLost(answer.not_honoured ?? []),
      (error: unknown) => abort.signal.aborted || setProblem(messageOf(error)),
    );
    return () => abort.abort();
  }, [policy]);
  if (problem) return <Problem>{problem}</Problem>;
  if (!lost) return <p class="quiet">Asking which promises it would not honour…</p>;
  if (lost.length === 0) return <p>It would honour all promises.</p>;
  return <LostPromises lost={lost}>It would not honour {lost.length === 1 ? "this promise" : `these ${lost.length} promises`}:</LostPromises>;
}

function LostPromises({ lost, children }: { lost: Lost; children: ComponentChildren }) {
  return (
    <>
      <p class="trouble">{children}</p>
      <ul class="plain-list">
        {lost.slice(0, 20).map((one) => <li key={one.job}><JobLink job={{ id: one.job, name: one.name }} />, by <Clock when={one.promised} /></li>)}
        {lost.length > 20 && <li>and {lost.length - 20} more</li>}
      </ul>
    </>
  );
}

/** Suggestions for a field that takes the name of a policy, with or without options. */
export function PolicyNames({ id }: { id: string }) {
  return <datalist id={id}>{(store.policy?.policies ?? []).map(({ name, summary }) => <option key={name} value={name}>{summary}</option>)}</datalist>;
}
