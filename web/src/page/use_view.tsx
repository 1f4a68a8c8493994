// How the cluster is used: held, training, idle and why, and who had how much.
import { useEffect, useState } from "preact/hooks";
import { Toggle } from "../parts/choice";
import { formatCount, formatNumber, formatPercent, plural } from "../parts/format";
import { get, messageOf, type Use } from "./api";
import { Card, Problem } from "./bits";
import { connection } from "./connection";
import { route } from "./route";
import { store } from "./store";
import { Table, type Column } from "./table";
import { iso, now } from "./time";

const spans: [string, string, number][] = [["1h", "1 h", 3600], ["1d", "1 day", 86400], ["7d", "7 days", 604800]];

export function UseView() {
  const name = spans.find(([choice]) => choice === route.get("span"))?.[0] ?? "1d";
  const span = spans.find(([choice]) => choice === name)![2];
  const [use, setUse] = useState<Use | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    const abort = new AbortController();
    const read = () =>
      get<Use>(`/v1/use?since=${iso(Math.floor(now() - span))}`, abort.signal).then(
        (answer) => { setUse(answer); setProblem(null); },
        (error: unknown) => abort.signal.aborted || setProblem(messageOf(error)),
      );
    void read();
    const timer = setInterval(() => document.hidden || void read(), 5000);
    return () => { abort.abort(); clearInterval(timer); };
  }, [span]);
  return (
    <>
      {problem && <Problem>The use of the cluster cannot be read: {problem}</Problem>}
      {use && <Now use={use} />}
      {use && (
        <Card title="Over time" id="use-title" head={<Toggle label="Time" options={spans.map(([choice, text]) => [choice, text])} value={name} onChange={(choice) => route.set({ span: choice })} />}>
          <div class="figures">
            <div class="figure"><span class="figure-value">{formatCount(use.deadlines.kept)}</span><span class="figure-label">deadlines kept</span></div>
            <div class={use.deadlines.missed > 0 ? "figure is-late" : "figure"}><span class="figure-value">{formatCount(use.deadlines.missed)}</span><span class="figure-label">missed</span></div>
            <div class="figure"><span class="figure-value">{formatCount(use.deadlines.open)}</span><span class="figure-label">still open</span></div>
            <div class="figure"><span class="figure-value">{pause(use.pauses.p50_ms)}</span><span class="figure-label">median pause of {plural(use.pauses.count, "resize")}</span></div>
            <div class="figure"><span class="figure-value">{pause(use.pauses.p99_ms)}</span><span class="figure-label">99th percentile</span></div>
          </div>
          <h3>Users</h3>
          <Table name="users" label="Use by user" rows={use.users} columns={userColumns} keyOf={(user) => user.user} sort="-gpu-hours" empty="Nobody has used a GPU in this time." >
            {connection.session?.role !== "admin" && "You see your own share."}
          </Table>
        </Card>
      )}
    </>
  );
}

function pause(value: number | null): string {
  return value === null ? "–" : `${formatNumber(value)} ms`;
}

function Now({ use }: { use: Use }) {
  const loading = Math.max(0, use.held - use.training);
  const parts: [string, number, string][] = [["training", use.training, "is-training"], ["held, not training", loading, "is-loading"], ["idle", use.idle, "is-idle"]];
  const total = Math.max(1, use.gpus);
  return (
    <Card title="Now" id="use-now-title">
      <div class="use-bar" role="img" aria-label={parts.map(([text, count]) => `${count} ${text}`).join(", ")}>
        {parts.map(([text, count, kind]) => count > 0 && <span key={text} class={kind} style={{ width: `${(100 * count) / total}%` }} />)}
      </div>
      <ul class="grid-legend">
        {parts.map(([text, count, kind]) => <li key={text}><span class={`slot ${kind}`} aria-hidden="true" /> {formatCount(count)} {text}</li>)}
        <li>of {plural(use.gpus || store.gpus, "GPU")}</li>
      </ul>
      {use.why_idle.length > 0 && (
        <>
          <h3>Why idle</h3>
          <ul>{use.why_idle.map(({ reason, gpus }) => <li key={reason}>{plural(gpus, "GPU")}: <bdi>{reason}</bdi></li>)}</ul>
        </>
      )}
    </Card>
  );
}

const userColumns: Column<Use["users"][number]>[] = [
  { name: "user", title: "User", cell: (user) => <bdi>{user.user}</bdi>, value: (user) => user.user },
  { name: "gpu-hours", title: "GPU-hours", number: true, cell: (user) => formatNumber(user.gpu_hours), value: (user) => user.gpu_hours },
  { name: "share", title: "Share", number: true, cell: (user) => formatPercent(user.share), value: (user) => user.share },
  { name: "weight", title: "Weight", number: true, cell: (user) => formatNumber(user.weight), value: (user) => user.weight },
];
