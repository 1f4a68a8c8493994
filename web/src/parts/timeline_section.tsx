// The timelines of one or two policies, with their controls and legend.
import { useMemo, useState } from "preact/hooks";
import { Select } from "./choice";
import type { Report, Run } from "./data";
import { formatCount } from "./format";
import { colourJobs, colourModes, type ColourMode } from "./job_colours";
import { JobSearch } from "./job_search";
import { NodeMap } from "./nodes";
import { PinnedJob } from "./pinned_job";
import { LegendList } from "./legend";
import { Swatch } from "./readout";
import { lengthOf, type Span } from "./span";
import { Timeline } from "./timeline";
import { TimelineIndex } from "./timeline_index";
import type { Viewport } from "./viewport";
import { ZoomButtons } from "./zoom_buttons";

interface Props {
  report: Report;
  selected: number;
  onSelect(run: number): void;
  viewport: Viewport;
  pinned: number | null;
  onPin(job: number | null): void;
}

const none = "none";
const roomPerLane = 16;
const lowest = 72;
const highest = { alone: 430, paired: 290 };

export function TimelineSection({ report, selected, onSelect, viewport, pinned, onPin }: Props) {
  const [second, setSecond] = useState<number | null>(null);
  const [mode, setMode] = useState<ColourMode>("job");
  const nodes = useMemo(() => new NodeMap(report.cluster.groups), [report]);
  const other = second === selected ? null : second;
  const height = plotHeight(report.cluster.gpus, other === null ? highest.alone : highest.paired);
  const shared = { report, nodes, mode, viewport, pinned, onPin, height };
  const find = (job: number) => {
    onPin(job);
    showJob(viewport, report, report.runs[selected]!, job);
  };
  if (report.cluster.gpus <= 0) return <p class="empty">The cluster has no GPUs.</p>;
  return (
    <>
      <div class="controls">
        <Select label="Policy" options={runOptions(report)} value={String(selected)} onChange={(run) => onSelect(Number(run))} />
        {report.runs.length > 1 && (
          <Select
            label="Compare with"
            options={[[none, "–"], ...runOptions(report).filter(([run]) => Number(run) !== selected)]}
            value={other === null ? none : String(other)}
            onChange={(run) => setSecond(run === none ? null : Number(run))}
          />
        )}
        <Select label="Colour by" options={usefulModes(report)} value={mode} onChange={setMode} />
        <JobSearch names={report.jobs.name} onPick={find} />
        <ZoomButtons viewport={viewport} />
      </div>
      <div class="with-side">
        <div class="timelines">
          <RunTimeline {...shared} run={selected} />
          {other !== null && <RunTimeline {...shared} run={other} />}
          <p class="quiet screen-only">
            Drag to zoom, Shift-drag to pan, click a job to pin it, double-click for everything. The wheel zooms once
            the timeline is clicked, or with Ctrl; with Alt it zooms the GPUs.
          </p>
        </div>
        <div class="side">
          {nodes.describeGroups() && <p class="quiet">GPU types, {nodes.describeGroups()}.</p>}
          {pinned === null ? (
            <Legend report={report} mode={mode} run={report.runs[selected]!} />
          ) : (
            <PinnedJob report={report} selected={selected} job={pinned} onUnpin={() => onPin(null)} />
          )}
        </div>
      </div>
    </>
  );
}

function runOptions(report: Report): [string, string][] {
  return report.runs.map((run, i) => [String(i), run.policy]);
}

/** Ways of colouring that tell jobs apart at all. */
function usefulModes({ jobs }: Report): [ColourMode, string][] {
  const useful: Record<ColourMode, boolean> = {
    job: true,
    user: jobs.user.some((user) => user !== ""),
    model: jobs.model.some((model) => model !== ""),
    gpus: true,
    deadline: jobs.deadline.some((deadline) => deadline !== null),
  };
  return colourModes.filter(([mode]) => useful[mode]);
}

function plotHeight(gpus: number, most: number): number {
  return Math.min(most, Math.max(lowest, gpus * roomPerLane + lowest / 2));
}

const fewestLanesAround = 64;

/** Zooms to the life of a job, and to its GPUs where single ones are too thin to see. */
function showJob(viewport: Viewport, report: Report, run: Run, job: number): void {
  const submit = report.jobs.submit[job]!;
  const end = run.jobs.end[job] ?? run.jobs.start[job] ?? submit;
  const around = Math.max(60, (end - submit) * 0.15);
  viewport.show({ lo: submit - around, hi: end + around }, lanesAround(indexOf(run).lanesOf(job), viewport.wholeLanes));
}

function lanesAround(lanes: Span | null, whole: Span): Span {
  if (!lanes || lengthOf(whole) <= fewestLanesAround * 2) return whole;
  const around = Math.max(8, (fewestLanesAround - lengthOf(lanes)) / 2);
  return { lo: lanes.lo - around, hi: lanes.hi + around };
}

const indices = new WeakMap<Run, TimelineIndex>();

/** Built when a run is first looked at: a report may hold a dozen large ones. */
function indexOf(run: Run): TimelineIndex {
  const index = indices.get(run) ?? new TimelineIndex(run.timeline);
  indices.set(run, index);
  return index;
}

interface RunTimelineProps extends Pick<Props, "report" | "viewport" | "pinned" | "onPin"> {
  run: number;
  nodes: NodeMap;
  mode: ColourMode;
  height: number;
}

function RunTimeline({ report, run, mode, ...rest }: RunTimelineProps) {
  const shown = report.runs[run]!;
  const colouring = useMemo(() => colourJobs(mode, report.jobs, shown), [mode, report, shown]);
  const { shown: kept, total } = shown.timeline;
  return (
    <figure>
      <figcaption>
        <Swatch run={run} />
        <strong>{shown.policy}</strong>
        {kept < total && (
          <span class="quiet">
            the {formatCount(kept)} longest of {formatCount(total)} allocations
          </span>
        )}
      </figcaption>
      <Timeline {...rest} report={report} run={shown} index={indexOf(shown)} colouring={colouring} />
    </figure>
  );
}

function Legend({ report, mode, run }: { report: Report; mode: ColourMode; run: Run }) {
  const legend = useMemo(() => colourJobs(mode, report.jobs, run).legend, [mode, report, run]);
  return (
    <>
      {legend.length > 0 && <LegendList entries={legend} />}
      <p class="quiet">
        {legend.length === 0 && "Every job keeps its colour under all policies. "}
        Pale areas are idle GPUs. Jobs too small to tell apart blend together: zoom in to see them.
      </p>
    </>
  );
}
