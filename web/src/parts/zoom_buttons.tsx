// Buttons that zoom in time, for those who do not drag.
import { useChanges } from "./observable";
import type { Viewport } from "./viewport";

export function ZoomButtons({ viewport }: { viewport: Viewport }) {
  useChanges(viewport.changed);
  return (
    <div class="toggle" role="group" aria-label="Zoom in time">
      <button type="button" aria-label="Zoom in" title="Zoom in" onClick={() => viewport.zoomTime(0.5)}>+</button>
      <button type="button" aria-label="Zoom out" title="Zoom out" disabled={!viewport.isZoomed} onClick={() => viewport.zoomTime(2)}>−</button>
      <button type="button" disabled={!viewport.isZoomed} onClick={() => viewport.reset()}>Reset</button>
    </div>
  );
}
