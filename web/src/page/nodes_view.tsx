// Nodes by slots: who holds which GPU, what is free, and where nothing may start.
import { useMemo, useState } from "preact/hooks";
import { plural } from "../parts/format";
import { inkOn, jobPixel } from "../parts/job_colours";
import { ask, type NodeShown } from "./api";
import { Card, Clock, Confirm, JobLink, jobColour } from "./bits";
import { connection } from "./connection";
import { jobAddress } from "./route";
import { store } from "./store";
import { Table, type Column } from "./table";
import { nameOf } from "./timeline_rows";

export function NodesView() {
  const { nodes } = store;
  const [change, setChange] = useState<[NodeShown, "drain" | "resume"] | null>(null);
  const admin = connection.session?.role === "admin";
  const columns = useMemo(() => columnsOf(admin, (node, state) => setChange([node, state])), [admin]);
  return (
    <>
      <Card title="Nodes" id="nodes-title">
        <p class="quiet">{summary(nodes)}</p>
        <div class="node-grid">{nodes.map((node) => <NodeBox key={node.id} node={node} />)}</div>
        <ul class="grid-legend" aria-hidden="true">
          <li><span class="slot is-free" /> free</li>
          {!admin && <li><span class="slot is-other" /> another user's</li>}
          {nodes.some((node) => node.others.length > 0) && <li><span class="slot is-outside" /> used outside Rubato</li>}
          <li><span class="slot is-closed" /> free, but nothing starts there</li>
        </ul>
      </Card>
      <Card title="As a table" id="node-table-title">
        <Table name="nodes" label="Table of nodes" rows={nodes} columns={columns} keyOf={(node) => node.id} empty="The cluster has no nodes." />
      </Card>
      {change && (
        <Confirm
          title={change[1] === "drain" ? `Drain ${nameOf(change[0])}?` : `Use ${nameOf(change[0])} again?`}
          verb={change[1] === "drain" ? "Drain" : "Resume"}
          onClose={() => setChange(null)}
          act={async () => {
            await ask("POST", `/v1/nodes/${change[0].id}`, { body: { state: change[1] } });
            store.refreshNodes();
          }}
        >
          <p>
            {change[1] === "drain"
              ? "Nothing starts on it any more. Its jobs move to other nodes, or they write a checkpoint, stop and wait. Under a policy that never preempts a job, they stay until they end."
              : "Jobs may start on it again."}
          </p>
        </Confirm>
      )}
    </>
  );
}

function NodeBox({ node }: { node: NodeShown }) {
  const used = new Map(node.used.map((use) => [use.gpu, use]));
  const outside = new Set(node.others);
  return (
    <div class={node.state === "up" ? "node" : "node is-closed"}>
      <p class="node-name">
        <bdi>{nameOf(node)}</bdi> <span class="quiet">{node.type !== "gpu" && node.type}</span>
        {node.state !== "up" && <span class="state bad">{node.state}</span>}
      </p>
      <div class="slots">
        {Array.from({ length: node.gpus }, (_, gpu) => {
          const use = used.get(gpu);
          if (!use && outside.has(gpu)) return <span key={gpu} class="slot is-outside" title={`GPU ${gpu}: used outside Rubato`} />;
          if (!use) return <span key={gpu} class={node.state === "up" ? "slot is-free" : "slot is-closed"} title={`GPU ${gpu}: free`} />;
          if (use.job === null) return <span key={gpu} class="slot is-other" title={`GPU ${gpu}: another user's job`} />;
          const name = store.jobs.get(use.job)?.name ?? "";
          const what = use.measuring ? "its speed is measured" : `worker ${use.worker}`;
          return (
            <a
              key={gpu} class="slot" href={jobAddress(use.job)} style={{ background: jobColour(use.job), color: inkOn(jobPixel(use.job)) }}
              title={`GPU ${gpu}: job ${use.job} ${name}, ${what}`} aria-label={`GPU ${gpu}: job ${use.job}, ${what}`}
            >
              {use.job}
            </a>
          );
        })}
      </div>
      {node.others.length > 0 && <p class="quiet">{plural(node.others.length, "GPU")} used outside Rubato{node.others_reason && <>: <bdi>{node.others_reason}</bdi></>}</p>}
      {node.cells && <p class="quiet">Cells of {node.cells.map((cell, i) => <>{i > 0 && ", "}<bdi>{cell.tenant}</bdi> ({plural(cell.gpus, "GPU")})</>)}</p>}
      {node.reason && <p class="quiet">{node.reason}</p>}
    </div>
  );
}

/** Free GPUs are worth more on one node than spread over many. */
function summary(nodes: NodeShown[]): string {
  const up = nodes.filter((node) => node.state === "up");
  const free = up.map(freeOn);
  const total = free.reduce((sum, count) => sum + count, 0);
  const held = nodes.reduce((sum, node) => sum + node.used.length, 0);
  const gpus = nodes.reduce((sum, node) => sum + node.gpus, 0);
  const largest = Math.max(0, ...free);
  const closed = nodes.length - up.length;
  const outside = nodes.reduce((sum, node) => sum + node.others.length, 0);
  const parts = [`${held} of ${plural(gpus, "GPU")} are held, ${total} free on nodes that are up`];
  if (total > 0) parts.push(`the most on one node is ${largest}, spread over ${plural(free.filter((count) => count > 0).length, "node")}`);
  if (outside > 0) parts.push(`${outside} ${outside === 1 ? "is" : "are"} used outside Rubato`);
  if (closed > 0) parts.push(`${plural(closed, "node")} ${closed === 1 ? "is" : "are"} not in use`);
  return `${parts.join("; ")}.`;
}

function columnsOf(admin: boolean, onChange: (node: NodeShown, state: "drain" | "resume") => void): Column<NodeShown>[] {
  const columns: Column<NodeShown>[] = [
    { name: "node", title: "Node", number: true, cell: (node) => node.id, value: (node) => node.id },
    { name: "name", title: "Name", cell: (node) => <bdi>{node.name}</bdi>, value: (node) => node.name },
    { name: "state", title: "State", cell: (node) => node.state, value: (node) => node.state },
    { name: "since", title: "Since", cell: (node) => <Clock when={node.since} />, value: (node) => String(node.since) },
    { name: "type", title: "GPU type", cell: (node) => node.type, value: (node) => node.type },
    { name: "held", title: "Held", number: true, cell: (node) => `${node.used.length} of ${node.gpus}`, value: (node) => node.used.length },
    {
      name: "jobs", title: "Jobs",
      cell: (node) => jobsOn(node).map((id) => <span key={id}><JobLink job={store.jobs.get(id) ?? { id }} /> </span>),
      value: (node) => jobsOn(node).join(" "),
    },
    { name: "others", title: "Other users", number: true, cell: othersOn, value: othersOn },
    { name: "outside", title: "Outside Rubato", number: true, cell: (node) => node.others.length, value: (node) => node.others.length },
    { name: "labels", title: "Labels", cell: (node) => <bdi>{labelsOf(node)}</bdi>, value: labelsOf },
    { name: "reason", title: "Reason", cell: (node) => node.reason, value: (node) => node.reason },
  ];
  if (admin) {
    columns.push({
      name: "action", title: "Action",
      cell: (node) =>
        node.state === "up" ? (
          <button type="button" class="boxed" onClick={() => onChange(node, "drain")}>Drain…</button>
        ) : (
          <button type="button" class="boxed" onClick={() => onChange(node, "resume")}>Resume…</button>
        ),
    });
  }
  return columns;
}

function labelsOf(node: NodeShown): string {
  return Object.entries(node.labels).map(([name, value]) => `${name}=${value}`).join(", ");
}

/** GPUs that neither a job nor somebody outside uses. */
function freeOn(node: NodeShown): number {
  return node.gpus - new Set([...node.used.map((use) => use.gpu), ...node.others]).size;
}

function jobsOn(node: NodeShown): number[] {
  return [...new Set(node.used.flatMap((use) => (use.job === null ? [] : [use.job])))];
}

function othersOn(node: NodeShown): number {
  return node.used.filter((use) => use.job === null).length;
}
