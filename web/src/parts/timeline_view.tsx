// A timeline on the screen: the canvas, the pointer on it, and a tooltip beside the pointer.
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { presentationChanged } from "./presentation";
import { margin, TimelineCanvas, type Scene } from "./timeline_canvas";
import { listenToTimeline, type Hover } from "./timeline_input";

interface Props {
  scene: Scene;
  label: string;
  height: number;
  onPin(job: number | null): void;
  /** What to say about the place under the pointer. */
  tooltip(hover: Hover): ComponentChildren;
}

export function TimelineView({ scene, label, height, onPin, tooltip }: Props) {
  const frame = useRef<HTMLDivElement>(null);
  const picture = useRef<HTMLCanvasElement>(null);
  const overlay = useRef<HTMLCanvasElement>(null);
  const view = useRef<TimelineCanvas | null>(null);
  const [hover, setHover] = useState<Hover | null>(null);
  const pin = useRef(onPin);
  pin.current = onPin;
  const { viewport } = scene;

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
        aria-label={`${label} Arrow keys pan, plus and minus zoom, 0 shows everything, Escape unpins.`}
      />
      {hover && (
        <div class="tooltip" role="status" style={besidePointer(hover, view.current!)}>
          {tooltip(hover)}
        </div>
      )}
    </div>
  );
}

const pointerGap = 14;

/** On the side of the pointer that has more room. */
function besidePointer(hover: Hover, view: TimelineCanvas) {
  const x = margin.left + hover.x;
  const across =
    hover.x > view.plotWidth / 2 ? { right: `calc(100% - ${x - pointerGap}px)` } : { left: `${x + pointerGap}px` };
  const along =
    hover.y > view.plotHeight / 2 ? { bottom: `calc(100% - ${hover.y - pointerGap}px)` } : { top: `${hover.y + pointerGap}px` };
  return { ...across, ...along };
}
