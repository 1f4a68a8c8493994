// Where nodes begin and end among the numbered GPU lanes.
import type { NodeGroup } from "./data";
import { firstAbove } from "./span";

export class NodeMap {
  /** First lane of each node. */
  readonly firstLane: number[] = [];
  /** Group of each node. */
  private readonly groupOf: number[] = [];

  constructor(private readonly groups: NodeGroup[], private readonly names: string[] = []) {
    let lane = 0;
    groups.forEach((group, g) => {
      for (let node = 0; node < group.nodes; node++) {
        this.firstLane.push(lane);
        this.groupOf.push(g);
        lane += group.gpusPerNode;
      }
    });
  }

  get count(): number {
    return this.firstLane.length;
  }

  /** The group changes here; the first node does not count. */
  startsGroup(node: number): boolean {
    return node > 0 && this.groupOf[node] !== this.groupOf[node - 1];
  }

  nameOf(node: number): string {
    return this.names[node] ?? `node ${node}`;
  }

  nodeOf(lane: number): number {
    return Math.max(0, firstAbove(this.firstLane, lane) - 1);
  }

  lanesOf(node: number): number {
    return this.groups[this.groupOf[node]!]!.gpusPerNode;
  }

  /** Which nodes have which GPUs; empty if all are alike. */
  describeGroups(): string {
    if (this.groups.length < 2) return "";
    let first = 0;
    const ranges = this.groups.map(({ nodes, type }) => {
      const last = first + nodes - 1;
      const range = nodes === 1 ? `node ${first}` : `nodes ${first}–${last}`;
      first += nodes;
      return `${range}: ${type || "unnamed type"}`;
    });
    return ranges.join(", ");
  }

  /** "GPU 24, node 3, v100" */
  describe(lane: number): string {
    if (this.count === 0) return `GPU ${lane}`;
    const node = this.nodeOf(lane);
    const type = this.groups[this.groupOf[node]!]!.type;
    return [`GPU ${lane}`, this.nameOf(node), type].filter((part) => part !== "").join(", ");
  }
}
