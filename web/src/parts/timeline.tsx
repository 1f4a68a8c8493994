// Who held which GPU when, under one policy.
import { useMemo } from "preact/hooks";
import type { Report, Run } from "./data";
import { formatCount } from "./format";
import type { JobColouring } from "./job_colours";
import { JobFacts } from "./job_facts";
import type { NodeMap } from "./nodes";
import type { Scene } from "./timeline_canvas";
import type { TimelineIndex } from "./timeline_index";
import { TimelineView } from "./timeline_view";
import type { Viewport } from "./viewport";

interface Props {
  report: Report;
  run: Run;
  index: TimelineIndex;
  nodes: NodeMap;
  colouring: JobColouring;
  viewport: Viewport;
  pinned: number | null;
  onPin(job: number | null): void;
  height: number;
}

export function Timeline({ report, run, index, nodes, colouring, viewport, pinned, onPin, height }: Props) {
  const scene: Scene = useMemo(
    () => ({ index, nodes, jobNames: report.jobs.name, ...colouring, pinned, viewport }),
    [index, nodes, report, colouring, pinned, viewport],
  );
  return (
    <TimelineView
      scene={scene}
      label={`GPU timeline of ${run.policy}: ${formatCount(index.count)} allocations.`}
      height={height}
      onPin={onPin}
      tooltip={({ job, moment, lane }) => (
        <>
          <JobFacts report={report} run={run} job={job} gpusHeld={index.gpusHeld(job, moment) || null} />
          <p class="quiet">{nodes.describe(lane)}</p>
        </>
      )}
    />
  );
}
