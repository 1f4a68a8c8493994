// Nodes by slots: who holds which GPU, what is free, and where nothing may start.
import { useEffect, useMemo, useState } from "preact/hooks";
import { plural } from "../parts/format";
import { inkOn, jobPixel } from "../parts/job_colours";
import { ask, get, type NodeShown, type TenantCells } from "./api";
import { Card, Clock, Confirm, JobLink, jobColour } from "./bits";
import { connection } from "./connection";
import { jobAddress } from "./route";
import { store } from "./store";
import { Table, type Column } from "./table";
import { heldOn, nameOf } from "./timeline_rows";

export function NodesView() {
  const { nodes } = store;
  const [change, setChange] = useState<[NodeShown, "drain" | "resume"] | null>(null);
  const admin = connection.session?.role === "admin";
  const withCells = nodes.some((node) => node.cells);
  const columns = useMemo(() => columnsOf(admin, withCells, (node, state) => setChange([node, state])), [admin, withCells]);
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
      {admin && <Cells nodes={nodes} />}
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

/** Cells change without an event. */
const cellsEvery = 10_000;

function Cells({ nodes }: { nodes: NodeShown[] }) {
  const [tenants, setTenants] = useState<TenantCells[]>([]);
  useEffect(() => {
    const abort = new AbortController();
    const read = () => void get<{ tenants: TenantCells[] }>("/v1/cells", abort.signal).then((answer) => setTenants(answer.tenants), () => {});
    read();
    const timer = setInterval(() => document.hidden || read(), cellsEvery);
    return () => { abort.abort(); clearInterval(timer); };
  }, [nodes]);
  if (tenants.length === 0) return null;
  return (
    <Card title="Tenants' cells" id="cells-title">
      <Table name="cells" label="Table of tenants' cells" rows={tenants} columns={cellColumns} keyOf={(tenant) => tenant.tenant} empty="No tenant has cells.">
        Cells are a tenant's whenever it needs them, and are lent while it does not.
      </Table>
    </Card>
  );
}

const cellColumns: Column<TenantCells>[] = [
  { name: "tenant", title: "Tenant", cell: (row) => <bdi>{row.tenant}</bdi>, value: (row) => row.tenant },
  { name: "cells", title: "Cells", cell: (row) => row.cells, value: (row) => row.cells },
  { name: "gpus", title: "GPUs", number: true, cell: (row) => row.gpus, value: (row) => row.gpus },
  { name: "used", title: "Used by it", number: true, cell: (row) => row.used, value: (row) => row.used },
  { name: "lent", title: "Lent", number: true, cell: (row) => row.lent, value: (row) => row.lent },
  { name: "borrowed", title: "Borrowed", number: true, cell: (row) => row.borrowed, value: (row) => row.borrowed },
  { name: "members", title: "Members", cell: (row) => <bdi>{membersOf(row)}</bdi>, value: membersOf },
  { name: "places", title: "Where", cell: (row) => <bdi>{placesOf(row)}</bdi>, value: placesOf },
];

function membersOf({ members, tenant }: TenantCells): string {
  return members.length > 0 ? members.join(", ") : tenant;
}

function placesOf({ places }: TenantCells): string {
  return places.map(({ node, gpus }) => `${node}: ${gpus.join(" ")}`).join("; ");
}

type Use = NodeShown["used"][number];

function usesByGpu(node: NodeShown): Map<number, Use[]> {
  const found = new Map<number, Use[]>();
  for (const use of node.used) found.set(use.gpu, [...(found.get(use.gpu) ?? []), use]);
  return found;
}

function UsedSlot({ gpu, use, also }: { gpu: number; use: Use; also: string }) {
  if (use.job === null) return <span class="slot is-other" title={`GPU ${gpu}: another user's job${also}`} />;
  const name = store.jobs.get(use.job)?.name ?? "";
  const what = use.measuring ? "its speed is measured" : `worker ${use.worker}`;
  return (
    <a
      class="slot" href={jobAddress(use.job)} style={{ background: jobColour(use.job), color: inkOn(jobPixel(use.job)) }}
      title={`GPU ${gpu}: job ${use.job} ${name}, ${what}${also}`} aria-label={`GPU ${gpu}: job ${use.job}, ${what}${also}`}
    >
      {use.job}
    </a>
  );
}

function NodeBox({ node }: { node: NodeShown }) {
  const used = usesByGpu(node);
  const outside = new Set(node.others);
  return (
    <div class={node.state === "up" ? "node" : "node is-closed"}>
      <p class="node-name">
        <bdi>{nameOf(node)}</bdi> <span class="quiet">{node.type !== "gpu" && node.type}</span>
        {node.state !== "up" && <span class="state bad">{node.state}</span>}
      </p>
      <div class="slots">
        {Array.from({ length: node.gpus }, (_, gpu) => {
          const uses = used.get(gpu) ?? [];
          if (uses.length === 1) return <UsedSlot key={gpu} gpu={gpu} use={uses[0]!} also="" />;
          if (uses.length > 1) {
            return <span key={gpu} class="slot-pair">{uses.map((use, i) => <UsedSlot key={i} gpu={gpu} use={use} also={`, shared by ${uses.length} jobs`} />)}</span>;
          }
          if (outside.has(gpu)) return <span key={gpu} class="slot is-outside" title={`GPU ${gpu}: used outside Rubato`} />;
          return <span key={gpu} class={node.state === "up" ? "slot is-free" : "slot is-closed"} title={`GPU ${gpu}: free`} />;
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
  const held = nodes.reduce((sum, node) => sum + heldOn(node), 0);
  const shared = nodes.reduce((sum, node) => sum + [...usesByGpu(node).values()].filter((uses) => uses.length > 1).length, 0);
  const gpus = nodes.reduce((sum, node) => sum + node.gpus, 0);
  const largest = Math.max(0, ...free);
  const closed = nodes.length - up.length;
  const outside = nodes.reduce((sum, node) => sum + node.others.length, 0);
  const parts = [`${held} of ${plural(gpus, "GPU")} are held, ${total} free on nodes that are up`];
  if (total > 0) parts.push(`the most on one node is ${largest}, spread over ${plural(free.filter((count) => count > 0).length, "node")}`);
  if (shared > 0) parts.push(`${shared} ${shared === 1 ? "is" : "are"} shared by two or more jobs`);
  if (outside > 0) parts.push(`${outside} ${outside === 1 ? "is" : "are"} used outside Rubato`);
  if (closed > 0) parts.push(`${plural(closed, "node")} ${closed === 1 ? "is" : "are"} not in use`);
  return `${parts.join("; ")}.`;
}

function columnsOf(admin: boolean, withCells: boolean, onChange: (node: NodeShown, state: "drain" | "resume") => void): Column<NodeShown>[] {
  const columns: Column<NodeShown>[] = [
    { name: "node", title: "Node", number: true, cell: (node) => node.id, value: (node) => node.id },
    { name: "name", title: "Name", cell: (node) => <bdi>{node.name}</bdi>, value: (node) => node.name },
    { name: "state", title: "State", cell: (node) => node.state, value: (node) => node.state },
    { name: "since", title: "Since", cell: (node) => <Clock when={node.since} />, value: (node) => String(node.since) },
    { name: "type", title: "GPU type", cell: (node) => node.type, value: (node) => node.type },
    { name: "held", title: "Held", number: true, cell: (node) => `${heldOn(node)} of ${node.gpus}`, value: heldOn },
    {
      name: "jobs", title: "Jobs",
      cell: (node) => jobsOn(node).map((id) => <span key={id}><JobLink job={store.jobs.get(id) ?? { id }} /> </span>),
      value: (node) => jobsOn(node).join(" "),
    },
    { name: "others", title: "Other users", number: true, cell: othersOn, value: othersOn },
    { name: "outside", title: "Outside Rubato", number: true, cell: (node) => node.others.length, value: (node) => node.others.length },
    { name: "labels", title: "Labels", cell: (node) => <bdi>{labelsOf(node)}</bdi>, value: labelsOf },
    ...(withCells ? [{ name: "cells", title: "Cells", cell: (node: NodeShown) => <bdi>{cellsOf(node)}</bdi>, value: cellsOf }] : []),
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

/** "vision 4" for each tenant with cells there. */
function cellsOf(node: NodeShown): string {
  return (node.cells ?? []).map(({ tenant, gpus }) => `${tenant} ${gpus}`).join(", ");
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
