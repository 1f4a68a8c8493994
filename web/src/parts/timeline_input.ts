// Pointer, wheel and keyboard on a timeline: hover, pin, zoom and pan.
import { lengthOf } from "./span";
import type { Box, TimelineCanvas } from "./timeline_canvas";

export interface Hover {
  job: number;
  /** The moment and GPU under the pointer. */
  moment: number;
  lane: number;
  /** Pointer position within the plot. */
  x: number;
  y: number;
}

export interface TimelineEvents {
  onHover(hover: Hover | null): void;
  onPin(job: number | null): void;
}

const dragThreshold = 4;
/** A drag flatter than this selects time only. */
const flatDrag = 24;
const keyPan = 0.15;
const zoomStep = 1.4;
const wheelSpeed = 0.003;

interface Drag {
  x: number;
  y: number;
  panning: boolean;
  moved: boolean;
}

/** Starts listening; returns how to stop. */
export function listenToTimeline(overlay: HTMLCanvasElement, view: TimelineCanvas, events: TimelineEvents): () => void {
  const input = new TimelineInput(overlay, view, events);
  const stop = new AbortController();
  const on = { signal: stop.signal };
  overlay.addEventListener("pointerdown", (event) => input.press(event), on);
  overlay.addEventListener("pointermove", (event) => input.move(event), on);
  overlay.addEventListener("pointerup", (event) => input.release(event), on);
  overlay.addEventListener("pointercancel", () => input.cancel(), on);
  overlay.addEventListener("pointerleave", () => input.leave(), on);
  overlay.addEventListener("dblclick", () => view.scene.viewport.reset(), on);
  overlay.addEventListener("wheel", (event) => input.wheel(event), { ...on, passive: false });
  overlay.addEventListener("keydown", (event) => input.key(event), on);
  return () => stop.abort();
}

class TimelineInput {
  private drag: Drag | null = null;

  constructor(
    private readonly overlay: HTMLCanvasElement,
    private readonly view: TimelineCanvas,
    private readonly events: TimelineEvents,
  ) {}

  press(event: PointerEvent): void {
    if (event.button > 1) return;
    this.drag = { ...this.position(event), panning: event.shiftKey || event.button === 1, moved: false };
    this.overlay.setPointerCapture(event.pointerId);
  }

  move(event: PointerEvent): void {
    const { x, y } = this.position(event);
    const { drag } = this;
    if (!drag) return this.hover(x, y);
    drag.moved ||= Math.hypot(x - drag.x, y - drag.y) > dragThreshold;
    if (!drag.moved) return;
    this.events.onHover(null);
    if (drag.panning) this.pan(drag, x, y);
    else this.select(drag, x, y);
  }

  release(event: PointerEvent): void {
    const { x, y } = this.position(event);
    if (this.view.box) this.showBox(this.view.box);
    else if (this.drag && !this.drag.moved) this.pinAt(x, y);
    this.drag = null;
  }

  cancel(): void {
    this.drag = null;
    this.view.box = null;
    this.view.paintOverlay();
  }

  leave(): void {
    this.view.hovered = null;
    this.view.scene.viewport.moveCursor(null);
    this.view.paintOverlay();
    this.events.onHover(null);
  }

  wheel(event: WheelEvent): void {
    // Without focus the wheel belongs to the page, or scrolling past would get stuck here.
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== this.overlay) return;
    event.preventDefault();
    const { view } = this;
    const { viewport } = view.scene;
    const { x, y } = this.position(event);
    const sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
    const factor = Math.exp(Math.max(-100, Math.min(100, event.deltaY)) * wheelSpeed);
    if (sideways) viewport.pan(view.timeAt(event.deltaX || event.deltaY) - view.timeAt(0), 0);
    else if (event.altKey) viewport.zoomLanes(factor, view.laneAt(y));
    else viewport.zoomTime(factor, view.timeAt(x));
  }

  key(event: KeyboardEvent): void {
    const action = event.ctrlKey || event.metaKey ? undefined : this.actions()[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  private actions(): Record<string, () => void> {
    const { viewport } = this.view.scene;
    const aside = lengthOf(viewport.time) * keyPan;
    const down = lengthOf(viewport.lanes) * keyPan;
    return {
      ArrowLeft: () => viewport.pan(-aside, 0),
      ArrowRight: () => viewport.pan(aside, 0),
      ArrowUp: () => viewport.pan(0, -down),
      ArrowDown: () => viewport.pan(0, down),
      "+": () => viewport.zoomTime(1 / zoomStep),
      "=": () => viewport.zoomTime(1 / zoomStep),
      "-": () => viewport.zoomTime(zoomStep),
      "0": () => viewport.reset(),
      Escape: () => this.events.onPin(null),
    };
  }

  private position(event: MouseEvent): { x: number; y: number } {
    const area = this.overlay.getBoundingClientRect();
    return { x: event.clientX - area.left, y: event.clientY - area.top };
  }

  private jobAt(x: number, y: number): number | null {
    return this.view.jobAt(x, y);
  }

  private hover(x: number, y: number): void {
    const { view } = this;
    const job = this.jobAt(x, y);
    const moment = view.timeAt(x);
    view.hovered = job;
    view.scene.viewport.moveCursor(moment);
    view.paintOverlay();
    this.events.onHover(job === null ? null : { job, moment, lane: Math.floor(view.laneAt(y)), x, y });
  }

  private pan(from: Drag, x: number, y: number): void {
    const { view } = this;
    view.scene.viewport.pan(view.timeAt(from.x) - view.timeAt(x), view.laneAt(from.y) - view.laneAt(y));
    from.x = x;
    from.y = y;
  }

  private select(from: Drag, x: number, y: number): void {
    const flat = Math.abs(y - from.y) < flatDrag;
    this.view.box = {
      left: Math.min(from.x, x),
      right: Math.max(from.x, x),
      top: flat ? 0 : Math.min(from.y, y),
      bottom: flat ? this.view.plotHeight : Math.max(from.y, y),
    };
    this.view.paintOverlay();
  }

  private showBox({ left, right, top, bottom }: Box): void {
    const { view } = this;
    view.box = null;
    view.scene.viewport.show(
      { lo: view.timeAt(left), hi: view.timeAt(right) },
      { lo: view.laneAt(top), hi: view.laneAt(bottom) },
    );
  }

  private pinAt(x: number, y: number): void {
    const job = this.jobAt(x, y);
    this.events.onPin(job === this.view.scene.pinned ? null : job);
  }
}
