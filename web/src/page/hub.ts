// One event stream for all tabs of a browser. The hub runs in a SharedWorker; where there is none, each tab
// has its own. It keeps the token in memory, so a new tab needs no new login.
import { EventStream, type ServerEvent, type Status } from "./stream";

export interface Session {
  token: string;
  user: string;
  role: "user" | "admin";
  /** ISO 8601. */
  until: string;
}

export type ToHub =
  | { kind: "hello"; session: Session | null }
  | { kind: "login"; session: Session }
  | { kind: "logout" }
  | { kind: "retry" }
  | { kind: "bye" };

export type FromHub =
  | { kind: "session"; session: Session | null }
  | { kind: "events"; events: ServerEvent[] }
  | { kind: "status"; status: Status };

export class Hub {
  private readonly ports = new Set<MessagePort>();
  private session: Session | null = null;
  private stream: EventStream | null = null;
  private status: Status = { kind: "connecting" };

  add(port: MessagePort): void {
    this.ports.add(port);
    port.onmessage = (event: MessageEvent<ToHub>) => this.receive(port, event.data);
    port.start();
  }

  private receive(port: MessagePort, message: ToHub): void {
    switch (message.kind) {
      case "hello":
        if (!this.session && message.session) this.begin(message.session);
        this.send(port, { kind: "session", session: this.session });
        this.send(port, { kind: "status", status: this.status });
        break;
      case "login":
        this.begin(message.session);
        this.toAll({ kind: "session", session: this.session });
        break;
      case "logout":
        this.end();
        this.toAll({ kind: "session", session: null });
        break;
      case "retry":
        this.stream?.retry();
        break;
      case "bye":
        this.ports.delete(port);
        break;
    }
  }

  private begin(session: Session): void {
    this.end();
    this.session = session;
    this.stream = new EventStream(
      session.token,
      (events) => this.toAll({ kind: "events", events }),
      (status) => this.say(status),
    );
  }

  private end(): void {
    this.stream?.stop();
    this.stream = null;
    this.session = null;
    this.status = { kind: "connecting" };
  }

  private say(status: Status): void {
    this.status = status;
    this.toAll({ kind: "status", status });
    if (status.kind !== "refused") return;
    this.end();
    this.toAll({ kind: "session", session: null });
  }

  private toAll(message: FromHub): void {
    for (const port of this.ports) this.send(port, message);
  }

  private send(port: MessagePort, message: FromHub): void {
    port.postMessage(message);
  }
}
