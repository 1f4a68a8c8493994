// Who held which GPU when, under one policy.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Report, Run } from "./data";
import { formatCount } from "./format";
import type { JobColouring } from "./job_colours";
import { JobFacts } from "./job_facts";
import type { NodeMap } from "./nodes";
import { presentationChanged } from "./presentation";
import { margin, TimelineCanvas, type Scene } from "./timeline_canvas";
import type { TimelineIndex } from "./timeline_index";
import { listenToTimeline, type Hover } from "./timeline_input";
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
  const frame = useRef<HTMLDivElement>(null);
  const picture = useRef<HTMLCanvasElement>(null);
  const overlay = useRef<HTMLCanvasElement>(null);
  const view = useRef<TimelineCanvas | null>(null);
  const [hover, setHover] = useState<Hover | null>(null);
  const scene: Scene = useMemo(
    () => ({ index, nodes, jobNames: report.jobs.name, ...colouring, pinned, viewport }),
    [index, nodes, report, colouring, pinned, viewport],
  );
  const pin = useRef(onPin);
  pin.current = onPin;

  useLayoutEffect(() => {
    const canvas = new TimelineCanvas(picture.current!, overlay.current!, scene);
    view.current = canvas;
    let width = 0;
    const fit = () => {
      width = frame.current!.clientWidth;
      canvas.resize(width, height);
    };
    fit();
    const sizes = new ResizeObserver(() => frame.current!.clientWidth !== width && fit());
    sizes.observe(frame.current!);
    const stops = [
      () => sizes.disconnect(),
      () => canvas.dispose(),
      presentationChanged.subscribe(fit),
      viewport.changed.subscribe(() => canvas.requestPaint()),
      viewport.cursorMoved.subscribe(() => canvas.paintOverlay()),
      listenToTimeline(overlay.current!, canvas, { onHover: setHover, onPin: (job) => pin.current(job) }),
    ];
    return () => stops.forEach((stop) => stop());
  }, [viewport, height]);

  useEffect(() => {
    if (!view.current || view.current.scene === scene) return;
    view.current.scene = scene;
    view.current.requestPaint();
  }, [scene]);

  return (
    <div class="timeline" ref={frame} style={{ height: `${height}px` }}>
      <canvas ref={picture} aria-hidden="true" />
      <canvas
        ref={overlay}
        class="timeline-plot"
        style={{ left: `${margin.left}px` }}
        tabIndex={0}
        role="application"
        aria-label={`GPU timeline of ${run.policy}: ${formatCount(index.count)} allocations. Arrow keys pan, plus and minus zoom, 0 shows everything, Escape unpins.`}
      />
      {hover && <Tooltip report={report} run={run} index={index} nodes={nodes} hover={hover} view={view.current!} />}
    </div>
  );
}

interface TooltipProps {
  report: Report;
  run: Run;
  index: TimelineIndex;
  nodes: NodeMap;
  hover: Hover;
  view: TimelineCanvas;
}

const pointerGap = 14;

function Tooltip({ report, run, index, nodes, hover, view }: TooltipProps) {
  const held = index.gpusHeld(hover.job, hover.moment) || null;
  return (
    <div class="tooltip" role="status" style={besidePointer(hover, view)}>
      <JobFacts report={report} run={run} job={hover.job} gpusHeld={held} />
      <p class="quiet">{nodes.describe(hover.lane)}</p>
    </div>
  );
}

/** On the side of the pointer that has more room. */
function besidePointer(hover: Hover, view: TimelineCanvas) {
  const x = margin.left + hover.x;
  const across =
    hover.x > view.plotWidth / 2 ? { right: `calc(100% - ${x - pointerGap}px)` } : { left: `${x + pointerGap}px` };
  const along =
    hover.y > view.plotHeight / 2 ? { bottom: `calc(100% - ${hover.y - pointerGap}px)` } : { top: `${hover.y + pointerGap}px` };
  return { ...across, ...along };
}
