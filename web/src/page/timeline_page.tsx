// The first page: who held which GPU, the live edge, and what is planned.
import { useEffect, useMemo, useState } from "preact/hooks";
import { Select, Toggle } from "../parts/choice";
import { formatCount, formatDuration, plural } from "../parts/format";
import { toPixel } from "../parts/job_colours";
import { useChanges } from "../parts/observable";
import { currentInk, presentationChanged } from "../parts/presentation";
import { LegendList } from "../parts/legend";
import { lengthOf } from "../parts/span";
import type { Scene } from "../parts/timeline_canvas";
import { TimelineView } from "../parts/timeline_view";
import { Viewport } from "../parts/viewport";
import { ZoomButtons } from "../parts/zoom_buttons";
import { Card, Clock, JobLink, Problem, Progress, Slack, State } from "./bits";
import { connection } from "./connection";
import { jobAddress, route, spanInAddress } from "./route";
import { active, store, waiting } from "./store";
import { Table, type Column } from "./table";
import { clock, clockTicks, exact } from "./time";
import { TimelineModel, type Colouring, type Picture } from "./timeline_model";
import { heldOn, nameOf, type Held } from "./timeline_rows";
import { settings } from "./settings";
import { Why } from "./why";

const spans: [string, string, number][] = [
  ["15m", "15 min", 900], ["1h", "1 h", 3600], ["6h", "6 h", 21600], ["1d", "1 day", 86400], ["7d", "7 days", 604800],
];
const refreshPause = 1500;
const refreshAnyway = 10_000;

const shortestPast = 120;
/** Half pixels of a wide screen. */
const finestTime = 3000;

/** The past that was asked for, as far as anything happened in it, and the future as far as it is planned, but no more than
    the past, or than what somebody chose. */
function wholeOf(model: TimelineModel, span: number): { lo: number; hi: number } {
  const { now } = model;
  const past = Math.min(span, Math.max(shortestPast, (now - model.first) * 1.05));
  const ahead = Math.min(route.get("span") === null ? past : span, Math.max(past * 0.08, (model.horizon - now) * 1.1));
  return { lo: now - past, hi: now + ahead };
}

export function TimelinePage() {
  const admin = connection.session?.role === "admin";
  const name = spans.find(([choice]) => choice === route.get("span"))?.[0] ?? "1h";
  const span = spans.find(([choice]) => choice === name)![2];
  const colouring = (route.get("colour") as Colouring | null) ?? "job";
  const pinnedId = Number(route.get("pin") ?? NaN);
  const model = useMemo(() => new TimelineModel(), []);
  useChanges(model.changed);
  useChanges(settings.changed);
  useChanges(presentationChanged);
  const gpus = Math.max(1, store.gpus);
  const viewport = useMemo(() => viewportOf(model, span, gpus), [span, gpus]);
  useLive(model, viewport, span);

  const { idle } = currentInk();
  const picture = useMemo(() => model.draw(store.nodes, colouring, toPixel(idle)), [model.version, nodesVersion(), colouring, idle]);
  const pinned = picture.ids.indexOf(pinnedId);
  const scene: Scene = useMemo(
    () => ({
      index: picture.index, nodes: picture.nodes, jobNames: picture.names, pixels: picture.pixels, perJob: colouring === "job",
      plansFrom: picture.plansFrom, deadlines: picture.deadlines, ticks: clockTicks, now: model.now,
      pinned: pinned < 0 ? null : pinned, viewport,
    }),
    [picture, viewport, pinned, settings.zone],
  );
  useLiveEdge(model, scene, picture, viewport, span);

  const pin = (job: number | null) => {
    const id = job === null ? null : picture.ids[job];
    route.set({ pin: id === null || id === undefined || id === pinnedId ? null : String(id) });
  };
  const jobs = [...store.live.values()];
  const running = jobs.filter((job) => active.has(job.state)).length;
  const queued = jobs.filter((job) => waiting.has(job.state)).length;
  const held = store.nodes.reduce((sum, node) => sum + heldOn(node), 0);
  return (
    <>
      <div class="figures">
        <Figure label="GPUs held" value={`${held} of ${store.gpus}`} />
        <Figure label={admin ? "Jobs running" : "Your jobs running"} value={formatCount(running)} href="#/jobs" />
        <Figure label={admin ? "Jobs waiting" : "Your jobs waiting"} value={formatCount(queued)} href="#/jobs?show=queue" />
        <LateFigure />
        <Figure label="Policy" value={store.policy?.policy ?? "–"} href="#/policy" />
      </div>
      <Card
        title="Who holds which GPU" id="timeline-title"
        head={
          <Toggle label="Past shown" options={spans.map(([choice, text]) => [choice, text])} value={name} onChange={(choice) => route.set({ span: choice, from: null, to: null })} />
        }
      >
        <div class="controls">
          <Select
            label="Colour by" value={colouring}
            options={[["job", "Job"], ...(admin ? [["user", "User"] as [Colouring, string]] : []), ["deadline", "On time or late"]]}
            onChange={(colour) => route.set({ colour: colour === "job" ? null : colour })}
          />
          <ZoomButtons viewport={viewport} />
        </div>
        {model.problem && <Problem>The timeline cannot be read: {model.problem}</Problem>}
        {store.nodes.length === 0 ? (
          <p class="empty timeline-place">The cluster has no nodes yet.</p>
        ) : (
          <div class="with-side">
            <div>
              <TimelineView
                scene={scene} height={Math.min(460, Math.max(150, gpus * 22 + 36))} onPin={pin}
                label={`GPUs over time: ${plural(model.held.size, "allocation")} and ${plural(model.plans.length, "planned step")}.`}
                tooltip={(hover) => <TooltipText model={model} picture={picture} job={hover.job} moment={hover.moment} lane={hover.lane} />}
              />
              <p class="quiet">
                Lighter bars right of the line are planned: how many GPUs is promised, which ones is not. A flag is a deadline. A bar over the lower half of
                another is a job that shares its GPU.
                {model.truncated && " Older allocations were too many to send: choose a shorter time."}
              </p>
            </div>
            <div class="side">{pinned >= 0 ? <Pinned id={pinnedId} onClose={() => route.set({ pin: null })} /> : <Legend picture={picture} />}</div>
          </div>
        )}
        <p class="quiet screen-only">
          Drag to zoom, Shift-drag to pan, click a job to pin it, double-click for everything. The wheel zooms once the timeline is clicked, or with Ctrl.
        </p>
        <TableTwin model={model} viewport={viewport} />
      </Card>
    </>
  );
}

/** Changes when the picture must have other rows, not when somebody else holds a GPU. */
function nodesVersion(): string {
  return store.nodes.map((node) => `${node.name} ${node.gpus} ${node.type}`).join();
}

function viewportOf(model: TimelineModel, span: number, gpus: number): Viewport {
  const viewport = new Viewport(wholeOf(model, span), { lo: 0, hi: gpus });
  const wanted = spanInAddress();
  if (wanted) viewport.show(wanted);
  return viewport;
}

/** Reads the timeline, reads it again when jobs have changed, and keeps the zoom in the address. */
function useLive(model: TimelineModel, viewport: Viewport, span: number): void {
  useEffect(() => {
    // A part of the future that is in the address can be shown once it is known how far the plans reach.
    const wanted = spanInAddress();
    void model.load(span).then(() => {
      viewport.moveOn(wholeOf(model, span));
      if (wanted) viewport.show(wanted);
    });
    let timer = 0;
    const soon = () => {
      if (timer !== 0) return;
      timer = window.setTimeout(() => {
        timer = 0;
        void model.refresh();
      }, refreshPause);
    };
    const stop = store.allocationsChanged.subscribe(soon);
    const anyway = setInterval(() => document.hidden || soon(), refreshAnyway);
    return () => {
      stop();
      clearInterval(anyway);
      clearTimeout(timer);
    };
  }, [model, span]);

  useEffect(() => {
    let timer = 0;
    const stop = viewport.changed.subscribe(() => {
      clearTimeout(timer);
      timer = window.setTimeout(() => {
        const { lo, hi } = viewport.time;
        const whole = !viewport.isZoomed;
        const from = whole ? null : String(Math.round(lo));
        const to = whole ? null : String(Math.round(hi));
        if (route.path.length === 0 && (route.get("from") !== from || route.get("to") !== to)) route.set({ from, to });
      }, 400);
    });
    // The address may be changed while the timeline is shown: by a link, by hand, by the browser's Back.
    const follow = () => {
      if (route.path.length > 0) return;
      const wanted = spanInAddress();
      if (wanted) viewport.show(wanted);
      else viewport.reset();
    };
    addEventListener("hashchange", follow);
    return () => {
      removeEventListener("hashchange", follow);
      clearTimeout(timer);
      stop();
    };
  }, [viewport]);
}

/** Once a second, what is held now grows to the right. */
function useLiveEdge(model: TimelineModel, scene: Scene, picture: Picture, viewport: Viewport, span: number): void {
  useEffect(() => {
    let drawn = false;
    const step = () => {
      if (document.hidden) return;
      const now = model.now;
      // Less than half a pixel is not worth a new picture.
      if (scene.now !== undefined && now - scene.now < lengthOf(viewport.time) / finestTime && drawn) return;
      drawn = true;
      scene.now = now;
      for (const row of picture.open) picture.index.extend(row, now);
      for (const row of picture.planned) if (picture.index.start[row]! < now) picture.index.postpone(row, now);
      viewport.moveOn(wholeOf(model, span));
    };
    step();
    const timer = setInterval(step, 1000);
    return () => clearInterval(timer);
  }, [model, scene, picture, viewport, span]);
}

function Figure({ label, value, href, bad }: { label: string; value: string; href?: string; bad?: boolean }) {
  const text = (
    <>
      <span class="figure-value">{value}</span>
      <span class="figure-label">{label}</span>
    </>
  );
  return href ? <a class={bad ? "figure is-late" : "figure"} href={href}>{text}</a> : <div class="figure">{text}</div>;
}

function LateFigure() {
  const due = [...store.live.values()].filter((job) => job.deadline !== null);
  const late = due.filter((job) => (job.slack_seconds ?? 0) < 0).length;
  return <Figure label={late > 0 ? "Deadlines in danger" : "Deadlines on time"} value={late > 0 ? `${late} of ${due.length}` : formatCount(due.length)} href="#/promises" bad={late > 0} />;
}

function TooltipText({ model, picture, job, moment, lane }: { model: TimelineModel; picture: Picture; job: number; moment: number; lane: number }) {
  const id = picture.ids[job] ?? null;
  const where = <p class="quiet">{picture.nodes.describe(lane)}, {clock(moment)}</p>;
  if (id === null) return <><strong>another user's job</strong>{where}</>;
  const known = model.describe(id);
  const held = picture.index.gpusHeld(job, moment);
  const planned = picture.index.gpusHeld(picture.plansFrom + job, moment);
  const live = store.jobs.get(id);
  return (
    <div class="job-facts">
      <strong>job {id} <bdi class="job-name">{known.name}</bdi></strong>
      <dl>
        {known.user && <div><dt>User</dt><dd><bdi>{known.user}</bdi></dd></div>}
        {held > 0 && <div><dt>Held then</dt><dd>{plural(held, "GPU")}</dd></div>}
        {held === 0 && planned > 0 && <div><dt>Planned</dt><dd>{plural(planned, "GPU")}</dd></div>}
        {live && <div><dt>Now</dt><dd>{live.state.toLowerCase()}, {plural(live.gpus, "GPU")}</dd></div>}
        {known.deadline !== null && <div><dt>Deadline</dt><dd>{clock(known.deadline)}</dd></div>}
      </dl>
      {where}
    </div>
  );
}

function Pinned({ id, onClose }: { id: number; onClose(): void }) {
  const job = store.jobs.get(id);
  return (
    <div class="pinned">
      <button type="button" class="close" aria-label="Unpin" onClick={onClose}>×</button>
      <strong><JobLink job={job ?? { id }} /></strong>
      {job && (
        <dl class="facts-list">
          <div><dt>State</dt><dd><State state={job.state} /></dd></div>
          <div><dt>GPUs</dt><dd>{job.gpus}</dd></div>
          <div><dt>Done</dt><dd><Progress job={job} /></dd></div>
          {job.deadline && <div><dt>Deadline</dt><dd><Clock when={job.deadline} /></dd></div>}
          {job.deadline && <div><dt>Slack</dt><dd><Slack job={job} /></dd></div>}
        </dl>
      )}
      {job && store.live.has(id) ? <><h3>Why</h3><Why job={job} /></> : job?.reason && <p><bdi>{job.reason}</bdi></p>}
      <p><a href={jobAddress(id)}>All about it</a> · <a href={jobAddress(id, "log")}>Log</a></p>
    </div>
  );
}

function Legend({ picture }: { picture: Picture }) {
  return (
    <>
      {picture.legend.length > 0 && <LegendList entries={picture.legend} />}
      <p class="quiet">A job has the same colour everywhere on this page. Where there is no colour, a GPU is idle.</p>
    </>
  );
}

const twinColumns: Column<Held>[] = [
  { name: "job", title: "Job", cell: (row) => (row.job === null ? "another user's" : <JobLink job={store.jobs.get(row.job) ?? { id: row.job }} />), value: (row) => row.job },
  { name: "node", title: "Node", cell: (row) => <bdi>{nodeName(row.node)}</bdi>, value: (row) => nodeName(row.node) },
  { name: "gpus", title: "GPUs", cell: (row) => row.gpus.join(", "), value: (row) => row.gpus.join(" ") },
  { name: "from", title: "From", cell: (row) => <Clock when={row.from} />, value: (row) => exact(row.from) },
  { name: "until", title: "Until", cell: (row) => (row.until === null ? "now" : <Clock when={row.until} />), value: (row) => exact(row.until) || null },
  { name: "held", title: "Held for", number: true, cell: (row) => formatDuration((row.until ?? Date.now() / 1000) - row.from), value: (row) => (row.until ?? Date.now() / 1000) - row.from },
];

function nodeName(id: number): string {
  const node = store.nodes[id];
  return node ? nameOf(node) : `node ${id}`;
}

/** The same as a table, for those who cannot see the picture. */
function TableTwin({ model, viewport }: { model: TimelineModel; viewport: Viewport }) {
  const [shown, setShown] = useState(route.get("table") === "1");
  return (
    <details open={shown} onToggle={(event) => { setShown(event.currentTarget.open); route.set({ table: event.currentTarget.open ? "1" : null }); }}>
      <summary>As a table</summary>
      {shown && <TwinRows model={model} viewport={viewport} />}
    </details>
  );
}

function TwinRows({ model, viewport }: { model: TimelineModel; viewport: Viewport }) {
  const { lo, hi } = viewport.time;
  const rows = useMemo(
    () => [...model.held.values()].filter((row) => row.from < hi && (row.until ?? Infinity) > lo).sort((a, b) => b.from - a.from),
    [model.version, Math.round(lo), Math.round(hi)],
  );
  return <Table name="timeline" label="Allocations in view" rows={rows} columns={twinColumns} keyOf={(row) => `${row.job} ${row.node} ${row.from} ${row.gpus.join()}`} empty="Nothing was held in this time." />;
}
