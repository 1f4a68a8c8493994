// The policy in force, its promises, and the switch to another one.
import { useState } from "preact/hooks";
import { ask, type PolicyShown } from "./api";
import { Card, Clock, Confirm, JobLink } from "./bits";
import { connection } from "./connection";
import { store } from "./store";

export function PolicyView() {
  const admin = connection.session?.role === "admin";
  const [wanted, setWanted] = useState("");
  const [asking, setAsking] = useState(false);
  const [lost, setLost] = useState<PolicyShown["not_honoured"] | null>(null);
  const promises = store.policy?.promises ?? [];
  return (
    <Card title="Policy" id="policy-title">
      <p>The policy in force is <code>{store.policy?.policy ?? "not known"}</code>.</p>
      {promises.length > 0 && <p>It has given {promises.length === 1 ? "one promise" : `${promises.length} promises`} that you can see. <a href="#/promises">Look at them.</a></p>}
      {admin ? (
        <form class="fields" onSubmit={(event) => { event.preventDefault(); setAsking(true); }}>
          <label>
            Switch to
            <input required spellcheck={false} placeholder="elasticflow" value={wanted} onInput={(event) => setWanted(event.currentTarget.value)} />
          </label>
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
            <>
              <p class="trouble">These promises are not honoured by the new policy:</p>
              <ul class="plain-list">{lost.map((one) => <li key={one.job}><JobLink job={{ id: one.job, name: one.name }} />, by <Clock when={one.promised} /></li>)}</ul>
            </>
          )}
        </div>
      )}
      {asking && (
        <Confirm
          title={`Switch to ${wanted}?`} verb="Switch" onClose={() => setAsking(false)}
          act={async () => {
            const answer = await ask<PolicyShown>("PUT", "/v1/policy", { body: { policy: wanted.trim() } });
            setLost(answer.not_honoured ?? []);
            store.policy = answer;
          }}
        >
          <p>Running jobs do not stop. The new policy decides from now on.</p>
          {promises.length > 0 && (
            <>
              <p class="trouble">These promises may not be honoured by another policy. After the switch, this page lists those that are not.</p>
              <ul class="plain-list">
                {promises.slice(0, 20).map((promise) => (
                  <li key={promise.job}><JobLink job={store.jobs.get(promise.job) ?? { id: promise.job }} />, by <Clock when={promise.promised} /></li>
                ))}
                {promises.length > 20 && <li>and {promises.length - 20} more</li>}
              </ul>
            </>
          )}
        </Confirm>
      )}
    </Card>
  );
}
