// The whole state of the view is in the fragment of the address: "#/jobs/7?tab=log&at=4096".
// A fragment never reaches a server.
import { Observable } from "../parts/observable";
import type { Span } from "../parts/span";

export class Route {
  readonly changed = new Observable();
  path: string[] = [];
  query = new URLSearchParams();

  constructor() {
    this.read();
  }

  listen(): void {
    addEventListener("hashchange", () => {
      this.read();
      this.changed.notify();
    });
  }

  /** Replaces parts of the query without a new entry in the browser's history. */
  set(values: Record<string, string | null>): void {
    for (const [name, value] of Object.entries(values)) {
      if (value === null || value === "") this.query.delete(name);
      else this.query.set(name, value);
    }
    history.replaceState(null, "", this.text());
    this.changed.notify();
  }

  go(address: string): void {
    location.hash = address;
  }

  get(name: string): string | null {
    return this.query.get(name);
  }

  private text(): string {
    const query = this.query.toString();
    return `#/${this.path.map(encodeURIComponent).join("/")}${query ? `?${query}` : ""}`;
  }

  private read(): void {
    const text = location.hash.replace(/^#\/?/, "");
    const [path = "", query = ""] = text.split("?", 2);
    this.path = path.split("/").filter((part) => part !== "").map(decoded);
    this.query = new URLSearchParams(query);
  }
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const route = new Route();

export function jobAddress(id: number, tab = ""): string {
  return `#/jobs/${id}${tab ? `?tab=${tab}` : ""}`;
}

/** The part of the time that was zoomed to. */
export function spanInAddress(): Span | null {
  const lo = Number(route.get("from") ?? NaN);
  const hi = Number(route.get("to") ?? NaN);
  return hi > lo ? { lo, hi } : null;
}

/** Takes the one-time code out of the address, so that neither history nor a bookmark keeps it. */
export function takeCode(): string | null {
  const match = location.hash.match(/^#code=([\w-]+)$/);
  if (!match) return null;
  history.replaceState(null, "", location.pathname);
  return match[1]!;
}
