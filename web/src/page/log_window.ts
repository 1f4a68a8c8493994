// A part of a log in memory: lines with their place in the file. It never holds more than a few MiB, however long
// the log is.
import { Observable } from "../parts/observable";
import { messageOf, send } from "./api";
import { mayShow, visibleText } from "./ansi";
import { LineSplitter, type Line } from "./lines";

const mostBytes = 4 << 20;
const mostLines = 20_000;
/** How much is read around a place. */
const before = 64 << 10;
const around = 512 << 10;

export interface Search {
  text: string;
  /** First bytes of the first lines with a match. */
  lines: number[];
  /** How many lines have a match. */
  matchingLines: number;
  matches: number;
  done: boolean;
  problem: string | null;
}

const mostMatchingLines = 100_000;
/** Milliseconds without a chance for the browser to draw. */
const longestTurn = 50;

/** Bytes that are always there when they are wanted could keep the browser from drawing and from taking clicks. */
class Turns {
  private began = performance.now();

  /** Gives the browser a chance, if it had none for a while. Returns whether it had one now. */
  async next(): Promise<boolean> {
    if (performance.now() - this.began < longestTurn) return false;
    // A timer would be slow while the page is hidden.
    const { port1, port2 } = new MessageChannel();
    await new Promise((resolve) => {
      port1.onmessage = resolve;
      port2.postMessage(null);
    });
    port1.close();
    this.began = performance.now();
    return true;
  }
}

export class LogWindow {
  readonly changed = new Observable();
  lines: Line[] = [];
  following = false;
  /** The log has ended, or was not followed. */
  complete = false;
  problem: string | null = null;
  search: Search | null = null;
  private bytes = 0;
  private abort = new AbortController();
  private searchAbort = new AbortController();

  constructor(private readonly job: number) {}

  /** The end of the log, and what is added to it. */
  follow(): Promise<void> {
    return this.read(-around, true);
  }

  /** The part around a byte. */
  show(at: number): Promise<void> {
    return this.read(Math.max(0, at - before), false);
  }

  stop(): void {
    this.abort.abort();
    this.searchAbort.abort();
  }

  lineAt(at: number): number {
    let found = -1;
    for (let i = 0; i < this.lines.length && this.lines[i]!.at <= at; i++) found = i;
    return found;
  }

  holds(at: number): boolean {
    const last = this.lines[this.lines.length - 1];
    return last !== undefined && this.lines[0]!.at <= at && at <= last.at;
  }

  private async read(from: number, follow: boolean): Promise<void> {
    this.abort.abort();
    const abort = (this.abort = new AbortController());
    this.lines = [];
    this.bytes = 0;
    this.following = follow;
    this.complete = false;
    this.problem = null;
    this.changed.notify();
    try {
      const response = await send("GET", `/v1/jobs/${this.job}/log?from=${from}&follow=${follow ? 1 : 0}`, { signal: abort.signal });
      const start = Number(response.headers.get("Rubato-Log-From") ?? Math.max(0, from));
      const splitter = new LineSplitter(start, start > 0);
      const reader = response.body!.getReader();
      const turns = new Turns();
      let read = 0;
      for (;;) {
        await turns.next();
        const { done, value } = await reader.read();
        if (abort.signal.aborted) return;
        if (done) break;
        this.add(splitter.push(value));
        read += value.length;
        // The place that was asked for is near the beginning, so what is too much is left out at the end.
        if (!follow && (read > around || this.lines.length >= mostLines)) {
          abort.abort();
          break;
        }
      }
      if (!abort.signal.aborted) this.add(splitter.end());
      this.complete = true;
    } catch (error) {
      if (abort.signal.aborted) return;
      this.problem = messageOf(error);
    }
    this.changed.notify();
  }

  private add(lines: Line[]): void {
    for (const line of lines) {
      this.lines.push(line);
      this.bytes += line.text.length;
    }
    if (!this.following && this.lines.length > mostLines) this.lines.length = mostLines;
    while (this.lines.length > mostLines || this.bytes > mostBytes) {
      const dropped = this.lines.splice(0, Math.ceil(this.lines.length / 10));
      for (const line of dropped) this.bytes -= line.text.length;
    }
    this.changed.notify();
  }

  /** Reads the whole log once and keeps only where the matches are. */
  async find(text: string): Promise<void> {
    this.searchAbort.abort();
    const abort = (this.searchAbort = new AbortController());
    if (text === "") {
      this.search = null;
      return this.changed.notify();
    }
    const search: Search = { text, lines: [], matchingLines: 0, matches: 0, done: false, problem: null };
    this.search = search;
    this.changed.notify();
    const wanted = text.toLowerCase();
    const take = (lines: Line[]) => {
      for (const line of lines) {
        const count = countIn(visibleText(line.text).toLowerCase(), wanted);
        if (count === 0) continue;
        search.matches += count;
        search.matchingLines++;
        if (search.lines.length < mostMatchingLines) search.lines.push(line.at);
      }
    };
    try {
      const response = await send("GET", `/v1/jobs/${this.job}/log?from=0`, { signal: abort.signal });
      const splitter = new LineSplitter(Number(response.headers.get("Rubato-Log-From") ?? 0), false, (all) => mayShow(all, wanted));
      const reader = response.body!.getReader();
      const turns = new Turns();
      for (;;) {
        if (await turns.next()) this.changed.notify();
        const { done, value } = await reader.read();
        if (abort.signal.aborted) return;
        if (done) break;
        take(splitter.push(value));
      }
      take(splitter.end());
    } catch (error) {
      if (abort.signal.aborted) return;
      search.problem = messageOf(error);
    }
    search.done = true;
    this.changed.notify();
  }
}

function countIn(text: string, wanted: string): number {
  let count = 0;
  for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + wanted.length)) count++;
  return count;
}
