// The daemon's page: the frame around its views.
import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Toggle } from "./parts/choice";
import { formatDuration } from "./parts/format";
import { useChanges } from "./parts/observable";
import { watchPresentation } from "./parts/presentation";
import { messageOf, openWithCode, send } from "./page/api";
import { Problem, useTick } from "./page/bits";
import { connection } from "./page/connection";
import { Help } from "./page/help";
import { JobView } from "./page/job_view";
import { JobsView } from "./page/jobs_view";
import { Login } from "./page/login";
import { NodesView } from "./page/nodes_view";
import { PolicyView } from "./page/policy_view";
import { PromisesView } from "./page/promises_view";
import { DecisionsView } from "./page/decisions_view";
import { SubmitView } from "./page/submit_view";
import { UseView } from "./page/use_view";
import { WhatIfView } from "./page/whatif_view";
import { jobAddress, route, takeCode } from "./page/route";
import { applyTheme, settings } from "./page/settings";
import { store } from "./page/store";
import { isTyping } from "./page/table";
import { TimelinePage } from "./page/timeline_page";

const views: [string, string][] = [
  ["", "Timeline"], ["jobs", "Jobs"], ["promises", "Promises"], ["nodes", "Nodes"], ["decisions", "Decisions"],
  ["use", "Use"], ["whatif", "What if"], ["policy", "Policy"], ["submit", "Submit"],
];

function App({ problem }: { problem: string | null }) {
  useChanges(connection.changed);
  const { session } = connection;
  useEffect(() => {
    if (session) void store.load();
    else store.forget();
  }, [session?.token]);
  if (session === undefined) return <p class="empty starting">Starting…</p>;
  if (session === null) return <Login problem={problem} />;
  return <Frame />;
}

function Frame() {
  useChanges(route.changed);
  useChanges(store.changed);
  useChanges(settings.changed);
  const [help, setHelp] = useState(false);
  const find = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (isTyping(event) || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "/") {
        event.preventDefault();
        find.current?.focus();
      } else if (event.key === "?") setHelp(true);
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  const view = route.path[0] ?? "";
  const menu = useRef<HTMLElement>(null);
  useEffect(() => {
    document.title = `${titleOf(view)} – Rubato`;
    // On a narrow screen the list of views is longer than the screen is wide.
    menu.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [view, route.path[1]]);
  const search = route.get("q") ?? "";
  const enter = (event: KeyboardEvent) => {
    if (event.key === "Escape") (event.currentTarget as HTMLElement).blur();
    if (event.key !== "Enter") return;
    const text = (event.currentTarget as HTMLInputElement).value.trim();
    route.go(/^\d+$/.test(text) && store.jobs.has(Number(text)) ? jobAddress(Number(text)) : `#/jobs?show=all&q=${encodeURIComponent(text)}`);
  };
  return (
    <>
      <a class="skip" href="#main">Skip to the content</a>
      <header class="top">
        <a class="brand" href="#/">Rubato</a>
        <nav class="views" aria-label="Views" ref={menu}>
          {views.map(([name, text]) => (
            <a key={name} href={`#/${name}`} aria-current={name === view ? "page" : undefined}>{text}</a>
          ))}
        </nav>
        <input
          ref={find} class="find" type="search" aria-label="Find a job" placeholder="Find a job  ( / )" value={search}
          onInput={(event) => (view === "jobs" || view === "promises") && !route.path[1] && route.set({ q: event.currentTarget.value })}
          onKeyDown={enter}
        />
        <Settings onHelp={() => setHelp(true)} />
      </header>
      <Connection />
      <main id="main">
        {!(view === "jobs" && route.path[1]) && <h1 class="for-screen-readers">{titleOf(view)}</h1>}
        {store.problem && <Problem>The daemon's lists cannot be read: {store.problem}</Problem>}
        {store.loaded ? <View view={view} search={search} /> : !store.problem && <p class="empty">Reading the cluster…</p>}
      </main>
      {help && <Help onClose={() => setHelp(false)} />}
    </>
  );
}

function titleOf(view: string): string {
  return view === "jobs" && route.path[1] ? `Job ${route.path[1]}` : (views.find(([name]) => name === view)?.[1] ?? "Nothing here");
}

function View({ view, search }: { view: string; search: string }) {
  const part = route.path[1];
  switch (view) {
    case "": return <TimelinePage />;
    case "jobs": return part ? <JobView key={part} reference={part} /> : <JobsView search={search} />;
    case "promises": return <PromisesView search={search} />;
    case "nodes": return <NodesView />;
    case "decisions": return <DecisionsView />;
    case "use": return <UseView />;
    case "whatif": return <WhatIfView id={part ?? null} />;
    case "policy": return <PolicyView />;
    case "submit": return <SubmitView />;
    default: return <p class="empty">There is nothing at this address. <a href="#/">Go to the timeline.</a></p>;
  }
}

/** Says what the stream does; silent while everything is well. Its room is kept, so nothing jumps. */
function Connection() {
  useTick();
  const { status } = connection;
  if (status.kind === "live") return <div class="connection" role="status" data-status="live"><span class="live-dot" aria-hidden="true" />Live</div>;
  if (status.kind === "connecting") return <div class="connection" role="status" data-status="connecting">Connecting…</div>;
  if (status.kind === "refused") return <div class="connection" role="status" data-status="refused">The session has ended.</div>;
  const left = Math.max(0, Math.ceil((status.retryAt - Date.now()) / 1000));
  return (
    <div class="connection is-lost" role="status" data-status="lost">
      The daemon has not answered for {formatDuration(Math.max(1, Math.round((Date.now() - status.since) / 1000)))}. What you see is from before.{" "}
      {left > 0 ? `Next attempt in ${left} s.` : "Trying…"} <button type="button" class="plain" onClick={() => connection.retry()}>Try now</button>
    </div>
  );
}

function Settings({ onHelp }: { onHelp(): void }) {
  const { session } = connection;
  const leave = async () => {
    await send("DELETE", "/v1/page/session").catch(() => {});
    connection.logout();
  };
  return (
    <details class="menu">
      <summary><span class="for-screen-readers">Settings of </span><bdi>{session?.user}</bdi>{session?.role === "admin" && <span class="badge">admin</span>}</summary>
      <div class="menu-body">
        <Toggle label="Colours" options={[["system", "System"], ["light", "Light"], ["dark", "Dark"]]} value={settings.theme} onChange={(theme) => settings.setTheme(theme)} />
        <Toggle label="Times" options={[["local", "Local time"], ["utc", "UTC"]]} value={settings.zone} onChange={(zone) => settings.setZone(zone)} />
        <button type="button" class="boxed" onClick={onHelp}>Keys and help ( ? )</button>
        <button type="button" class="boxed" onClick={leave}>Log out</button>
      </div>
    </details>
  );
}

async function start(): Promise<void> {
  applyTheme(settings.theme);
  watchPresentation();
  const code = takeCode();
  let problem: string | null = null;
  let session = null;
  if (code) {
    try {
      session = await openWithCode(code);
    } catch (error) {
      problem = messageOf(error);
    }
  }
  connection.onEvents = (events) => store.take(events);
  connection.open();
  if (session) connection.login(session);
  // Somebody may paste a new address into a page that is open.
  addEventListener("hashchange", () => location.hash.startsWith("#code=") && location.reload());
  route.listen();
  render(<App problem={problem} />, document.getElementById("page")!);
}

void start();
