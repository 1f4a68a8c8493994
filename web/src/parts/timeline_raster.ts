// Paints a timeline into pixels. Each pixel gets the mix of whatever it covers, so that
// a hundred thousand slivers show as density instead of noise.
import { mixPixels, type Pixel } from "./job_colours";
import { lengthOf, type Span } from "./span";
import type { TimelineIndex } from "./timeline_index";

/** Rectangles at least this large get crisp edges and a gap of one pixel to their neighbour. */
const roomForGap = 6;

/** Pixels of area from which on a rectangle shows its own colour in full. */
const legibleArea = 60;

export interface Paint {
  /** Colour of each job. */
  pixels: Uint32Array;
  idle: Pixel;
  /** What the colours of tiny rectangles fade into; null to keep them. */
  blur: Pixel | null;
}

export class TimelineRaster {
  readonly pixels: Uint32Array;
  /** Pixels that one rectangle covers entirely; zero elsewhere. */
  private readonly solid: Uint32Array;
  /** Red, green, blue and share covered of all other pixels. */
  private readonly mixed: Float32Array;

  constructor(readonly width: number, readonly height: number) {
    this.pixels = new Uint32Array(width * height);
    this.solid = new Uint32Array(width * height);
    this.mixed = new Float32Array(width * height * 4);
  }

  paint(index: TimelineIndex, { pixels, idle, blur }: Paint, time: Span, lanes: Span): void {
    this.solid.fill(0);
    this.mixed.fill(0);
    const perSecond = this.width / lengthOf(time);
    const perLane = this.height / lengthOf(lanes);
    index.forEachDuring(time, (i) => {
      const left = (index.start[i]! - time.lo) * perSecond;
      const right = (index.end[i]! - time.lo) * perSecond;
      const top = (index.lane[i]! - lanes.lo) * perLane;
      const bottom = top + index.width[i]! * perLane;
      if (bottom <= 0 || top >= this.height) return;
      const wide = right - left >= roomForGap;
      const tall = bottom - top >= roomForGap;
      this.addRectangle(
        wide ? Math.round(left) : left,
        wide ? Math.round(right) - 1 : right,
        tall ? Math.round(top) : top,
        tall ? Math.round(bottom) - 1 : bottom,
        blurred(pixels[index.job[i]!]!, blur, (right - left) * (bottom - top)),
      );
    });
    this.compose(idle);
  }

  private addRectangle(left: number, right: number, top: number, bottom: number, colour: Pixel): void {
    const x0 = Math.max(0, left);
    const x1 = Math.min(this.width, right);
    const y1 = Math.min(this.height, bottom);
    for (let y = Math.max(0, top); y < y1; ) {
      const row = Math.floor(y);
      const next = Math.min(row + 1, y1);
      this.addRow(row, x0, x1, next - y, colour);
      y = next;
    }
  }

  private addRow(row: number, x0: number, x1: number, share: number, colour: Pixel): void {
    const first = Math.ceil(x0);
    const last = Math.floor(x1);
    const base = row * this.width;
    if (first > last) {
      this.blend(base + last, share * (x1 - x0), colour);
      return;
    }
    if (first > x0) this.blend(base + first - 1, share * (first - x0), colour);
    if (x1 > last) this.blend(base + last, share * (x1 - last), colour);
    if (share > 0.999) this.solid.fill(colour, base + first, base + last);
    else for (let at = base + first; at < base + last; at++) this.blend(at, share, colour);
  }

  private blend(at: number, share: number, colour: Pixel): void {
    const { mixed } = this;
    const to = at * 4;
    mixed[to] = mixed[to]! + share * (colour & 255);
    mixed[to + 1] = mixed[to + 1]! + share * ((colour >>> 8) & 255);
    mixed[to + 2] = mixed[to + 2]! + share * ((colour >>> 16) & 255);
    mixed[to + 3] = mixed[to + 3]! + share;
  }

  private compose(background: Pixel): void {
    const { solid, mixed, pixels } = this;
    for (let at = 0; at < pixels.length; at++) {
      if (solid[at] !== 0) pixels[at] = solid[at]!;
      else if (mixed[at * 4 + 3]! > 0) pixels[at] = this.mixedPixel(at * 4, background);
      else pixels[at] = background;
    }
  }

  private mixedPixel(from: number, background: Pixel): Pixel {
    const covered = this.mixed[from + 3]!;
    const scale = covered > 1 ? 1 / covered : 1;
    const rest = Math.max(0, 1 - covered);
    const red = this.mixed[from]! * scale + rest * (background & 255);
    const green = this.mixed[from + 1]! * scale + rest * ((background >>> 8) & 255);
    const blue = this.mixed[from + 2]! * scale + rest * ((background >>> 16) & 255);
    return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  }
}

function blurred(colour: Pixel, blur: Pixel | null, area: number): Pixel {
  return blur === null || area >= legibleArea ? colour : mixPixels(blur, colour, area / legibleArea);
}
