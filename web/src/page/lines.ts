// The bytes of a log as lines with their place in it.

export interface Line {
  /** First byte of the line in the log. */
  at: number;
  text: string;
}

/** Longer lines are cut on the screen; the download has them whole. */
const longestLine = 4000;

const newline = 10;

/** Cuts bytes into lines, and remembers at which byte each of them begins. */
export class LineSplitter {
  private readonly decoder = new TextDecoder();
  private rest: Uint8Array[] = [];
  private restBytes = 0;
  private cut = false;

  /** `partial`: the first bytes are the end of a line that began before; they are dropped. `mayMatter`: lines that came
      together may be left out if it says no to their text. */
  constructor(private at: number, private partial: boolean, private readonly mayMatter: (text: string) => boolean = () => true) {}

  push(bytes: Uint8Array): Line[] {
    const lines: Line[] = [];
    const first = bytes.indexOf(newline);
    const rest = bytes.lastIndexOf(newline) + 1;
    if (first >= 0) {
      this.keep(bytes.subarray(0, first));
      this.finish(lines);
      this.at += 1;
      this.takeWhole(bytes.subarray(first + 1, rest), lines);
    }
    this.keep(bytes.subarray(rest));
    return lines;
  }

  end(): Line[] {
    const lines: Line[] = [];
    if (this.restBytes > 0) this.finish(lines);
    return lines;
  }

  /** Lines that are here with their ends. They are decoded together, because a call for each costs more than all the rest. */
  private takeWhole(bytes: Uint8Array, lines: Line[]): void {
    const all = this.decoder.decode(bytes);
    if (this.mayMatter(all)) {
      for (let begin = 0, from = 0; begin < bytes.length; ) {
        const end = bytes.indexOf(newline, begin);
        const to = all.indexOf("\n", from);
        const long = end - begin > longestLine;
        const text = long ? `${this.decoder.decode(bytes.subarray(begin, begin + longestLine))} …` : all.slice(from, to);
        lines.push({ at: this.at + begin, text });
        begin = end + 1;
        from = to + 1;
      }
    }
    this.at += bytes.length;
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
