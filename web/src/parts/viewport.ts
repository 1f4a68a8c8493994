// The stretch of time and GPUs on view, shared by the charts over time and the timelines.
import { Observable } from "./observable";
import { fitSpan, lengthOf, zoomSpan, type Span } from "./span";

/** Seconds; below this, axis labels would need fractions. */
const shortestTime = 10;
const fewestLanes = 1;

export class Viewport {
  readonly changed = new Observable();
  readonly cursorMoved = new Observable();
  time: Span;
  lanes: Span;
  /** Time under the pointer, in whichever view it is. */
  cursor: number | null = null;

  constructor(public wholeTime: Span, readonly wholeLanes: Span) {
    this.time = wholeTime;
    this.lanes = wholeLanes;
  }

  get isZoomed(): boolean {
    return lengthOf(this.time) < lengthOf(this.wholeTime) || lengthOf(this.lanes) < lengthOf(this.wholeLanes);
  }

  show(time: Span, lanes: Span = this.lanes): void {
    this.time = fitSpan(time, this.wholeTime, shortestTime);
    this.lanes = fitSpan(lanes, this.wholeLanes, fewestLanes);
    this.changed.notify();
  }

  zoomTime(factor: number, around = (this.time.lo + this.time.hi) / 2): void {
    this.show(zoomSpan(this.time, factor, around));
  }

  zoomLanes(factor: number, around: number): void {
    this.show(this.time, zoomSpan(this.lanes, factor, around));
  }

  pan(time: number, lanes: number): void {
    this.show(
      { lo: this.time.lo + time, hi: this.time.hi + time },
      { lo: this.lanes.lo + lanes, hi: this.lanes.hi + lanes },
    );
  }

  reset(): void {
    this.show(this.wholeTime, this.wholeLanes);
  }

  /** Time passes: a view of everything moves along, any other stays where it is. */
  moveOn(wholeTime: Span): void {
    const everything = lengthOf(this.time) >= lengthOf(this.wholeTime);
    this.wholeTime = wholeTime;
    if (everything) this.time = wholeTime;
    this.changed.notify();
  }

  moveCursor(time: number | null): void {
    if (time === this.cursor) return;
    this.cursor = time;
    this.cursorMoved.notify();
  }
}
