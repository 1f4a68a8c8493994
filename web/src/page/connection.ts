// The page's side of the hub: who is logged in, the state of the stream, and the events.
import { Observable } from "../parts/observable";
import { Hub, type FromHub, type Session, type ToHub } from "./hub";
import type { ServerEvent, Status } from "./stream";

declare const WORKER_PATH: string;

const storageKey = "rubato-session";

class Connection {
  /** Undefined until the hub has said whether somebody is logged in. */
  session: Session | null | undefined = undefined;
  status: Status = { kind: "connecting" };
  readonly changed = new Observable();
  onEvents: (events: ServerEvent[]) => void = () => {};
  private port: MessagePort | null = null;

  open(): void {
    this.port = openPort();
    this.port.onmessage = (event: MessageEvent<FromHub>) => this.receive(event.data);
    this.port.start();
    this.send({ kind: "hello", session: stored() });
    addEventListener("pagehide", () => this.send({ kind: "bye" }));
    addEventListener("online", () => this.retry());
  }

  login(session: Session): void {
    this.send({ kind: "login", session });
  }

  logout(): void {
    this.send({ kind: "logout" });
  }

  retry(): void {
    this.send({ kind: "retry" });
  }

  private send(message: ToHub): void {
    this.port?.postMessage(message);
  }

  private receive(message: FromHub): void {
    switch (message.kind) {
      case "session":
        this.session = message.session;
        store(message.session);
        this.changed.notify();
        break;
      case "status":
        this.status = message.status;
        this.changed.notify();
        break;
      case "events":
        this.onEvents(message.events);
        break;
    }
  }
}

function openPort(): MessagePort {
  if (typeof SharedWorker !== "undefined") return new SharedWorker(WORKER_PATH, "rubato").port;
  const { port1, port2 } = new MessageChannel();
  new Hub().add(port2);
  return port1;
}

// sessionStorage belongs to this tab and to this origin with its port; cookies would reach other ports, too.
function stored(): Session | null {
  try {
    const session = JSON.parse(sessionStorage.getItem(storageKey) ?? "null") as Session | null;
    return session && Date.parse(session.until) > Date.now() ? session : null;
  } catch {
    return null;
  }
}

function store(session: Session | null): void {
  if (session) sessionStorage.setItem(storageKey, JSON.stringify(session));
  else sessionStorage.removeItem(storageKey);
}

export const connection = new Connection();
