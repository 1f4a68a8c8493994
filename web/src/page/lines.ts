// The bytes of a log as lines with their place in it.

export interface Line {
  /** First byte of the line in the log. */
  at: number;
  text: string;
}

/** Longer lines are cut on the screen; the download has them whole. */
const longestLine = 4000;

/** Cuts bytes into lines, and remembers at which byte each of them begins. */
export class LineSplitter {
  private readonly decoder = new TextDecoder();
  private rest: Uint8Array[] = [];
  private restBytes = 0;
  private cut = false;

  /** `partial`: the first bytes are the end of a line that began before; they are dropped. */
  constructor(private at: number, private partial: boolean) {}

  push(bytes: Uint8Array): Line[] {
    const lines: Line[] = [];
    let begin = 0;
    for (let end = bytes.indexOf(10); end >= 0; end = bytes.indexOf(10, begin)) {
      this.keep(bytes.subarray(begin, end));
      this.finish(lines);
      this.at += 1;
      begin = end + 1;
    }
    this.keep(bytes.subarray(begin));
    return lines;
  }

  end(): Line[] {
    const lines: Line[] = [];
    if (this.restBytes > 0) this.finish(lines);
    return lines;
  }

  private keep(bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    const room = longestLine - this.rest.reduce((sum, piece) => sum + piece.length, 0);
    if (room > 0) this.rest.push(bytes.slice(0, room));
    if (bytes.length > room) this.cut = true;
    this.restBytes += bytes.length;
  }

  private finish(lines: Line[]): void {
    let text = this.rest.map((piece) => this.decoder.decode(piece, { stream: true })).join("") + this.decoder.decode();
    if (this.cut) text += " …";
    if (!this.partial) lines.push({ at: this.at, text });
    this.partial = false;
    this.at += this.restBytes;
    this.rest = [];
    this.restBytes = 0;
    this.cut = false;
  }
}
