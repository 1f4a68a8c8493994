// The daemon's event stream, read with fetch because EventSource cannot send an Authorization header.
// Opens the stream again whenever it breaks, and says what it is doing.

export interface ServerEvent {
  type: string;
  data: unknown;
}

export type Status =
  | { kind: "connecting" }
  | { kind: "live" }
  /** The daemon does not answer; the next attempt is at `retryAt` (milliseconds since the epoch). */
  | { kind: "lost"; since: number; retryAt: number }
  /** The token has ended. */
  | { kind: "refused" };

/** The daemon sends something at least every 15 seconds. */
const longestSilence = 40_000;
const shortestPause = 500;
const longestPause = 10_000;

/** Splits the text of a stream into events; keeps what is incomplete for the next piece. */
export class EventParser {
  lastId = "";
  private rest = "";

  push(text: string): ServerEvent[] {
    this.rest += text;
    const events: ServerEvent[] = [];
    for (let end = this.rest.indexOf("\n\n"); end >= 0; end = this.rest.indexOf("\n\n")) {
      const event = this.read(this.rest.slice(0, end));
      this.rest = this.rest.slice(end + 2);
      if (event) events.push(event);
    }
    return events;
  }

  private read(block: string): ServerEvent | null {
    let type = "message";
    const data: string[] = [];
    for (const line of block.split("\n")) {
      const colon = line.indexOf(":");
      if (colon <= 0) continue;
      const value = line.slice(colon + 1).replace(/^ /, "");
      const field = line.slice(0, colon);
      if (field === "id") this.lastId = value;
      else if (field === "event") type = value;
      else if (field === "data") data.push(value);
    }
    if (data.length === 0) return null;
    try {
      return { type, data: JSON.parse(data.join("\n")) };
    } catch {
      return null;
    }
  }
}

export class EventStream {
  private stopped = false;
  private abort = new AbortController();
  private pause = shortestPause;
  private lostSince: number | null = null;
  private lastId = "";
  private opened = 0;
  private wake: () => void = () => {};

  constructor(
    private readonly token: string,
    private readonly onEvents: (events: ServerEvent[]) => void,
    private readonly onStatus: (status: Status) => void,
  ) {
    void this.run();
  }

  stop(): void {
    this.stopped = true;
    this.abort.abort();
    this.wake();
  }

  /** Tries again at once, for example because the computer woke up. */
  retry(): void {
    this.wake();
  }

  private async run(): Promise<void> {
    this.onStatus({ kind: "connecting" });
    while (!this.stopped) {
      const outcome = await this.readOnce();
      if (this.stopped) return;
      if (outcome === "refused") return this.onStatus({ kind: "refused" });
      this.lostSince ??= Date.now();
      this.onStatus({ kind: "lost", since: this.lostSince, retryAt: Date.now() + this.pause });
      await this.sleep(this.pause);
      this.pause = Math.min(longestPause, this.pause * 2);
    }
  }

  private async readOnce(): Promise<"refused" | "broken"> {
    this.abort = new AbortController();
    let silence = setTimeout(() => this.abort.abort(), longestSilence);
    try {
      const headers: Record<string, string> = { Authorization: `Bearer ${this.token}` };
      if (this.lastId) headers["Last-Event-ID"] = this.lastId;
      const response = await fetch("/v1/events", { headers, signal: this.abort.signal, cache: "no-store" });
      if (response.status === 401) return "refused";
      if (!response.ok || !response.body) return "broken";
      this.pause = shortestPause;
      this.lostSince = null;
      this.onStatus({ kind: "live" });
      // With an id the daemon sends what was missed, or "resync". Without one, nobody knows what was missed.
      if (this.opened++ > 0 && this.lastId === "") this.onEvents([{ type: "resync", data: {} }]);
      const parser = new EventParser();
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return "broken";
        clearTimeout(silence);
        silence = setTimeout(() => this.abort.abort(), longestSilence);
        const events = parser.push(value);
        if (parser.lastId) this.lastId = parser.lastId;
        if (events.length > 0) this.onEvents(events);
      }
    } catch {
      return "broken";
    } finally {
      clearTimeout(silence);
    }
  }

  private sleep(milliseconds: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, milliseconds);
      this.wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}
