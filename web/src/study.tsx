// What was learned: placements of a graph on devices (`rubato graph place`), or weights of a policy (`rubato learn`).
import { render } from "preact";
import { useState } from "preact/hooks";
import { Toggle } from "./parts/choice";
import { formatCount, formatNumber, formatPercent, missing } from "./parts/format";
import { Key, LineChart, type Line } from "./parts/line_chart";
import { seriesColour, watchPresentation } from "./parts/presentation";
import { numberTicks } from "./parts/ticks";

interface Method {
  method: string;
  what: string;
  step_s: number | null;
  samples: number;
  samples_until_heft: number | null;
  cpu_s: number;
  placement: number[];
  curve: [number, number][];
  schedule?: { start: number[]; end: number[]; transfers: [number, number, number, number][] };
}

interface GraphStudy {
  kind: "graph";
  graph: string;
  settings: Record<string, string>;
  devices: { name: string; memory: number | null }[];
  groups: string[];
  group_memory: number[];
  operators: { name: string; group: number; inputs: number[] }[];
  methods: Method[];
}

interface LearnStudy {
  kind: "learn";
  title: string;
  settings: Record<string, string>;
  charts: { title: string; about: string; horizontal: string; vertical: string; lines: { label: string; points: [number, number][] }[] }[];
}

function Header({ overline, title, settings }: { overline: string; title: string; settings: Record<string, string> }) {
  return (
    <header>
      <p class="overline">{overline}</p>
      <h1>{title}</h1>
      <dl class="settings">
        {Object.entries(settings).map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </header>
  );
}

function GraphPage({ study }: { study: GraphStudy }) {
  const drawn = study.methods.filter((method) => method.schedule);
  const best = [...drawn].sort((a, b) => a.step_s! - b.step_s!)[0];
  const [chosen, setChosen] = useState(best?.method ?? "");
  const method = drawn.find((one) => one.method === chosen);
  return (
    <>
      <Header overline="Operators on devices" title={`${study.graph}: ${formatCount(study.operators.length)} operators in ${formatCount(study.groups.length)} groups`} settings={study.settings} />
      <main>
        <section class="card" aria-labelledby="methods-title">
          <h2 id="methods-title">Methods</h2>
          <Methods study={study} best={best?.step_s ?? null} />
        </section>
        <Curves study={study} />
        {method && (
          <section class="card" aria-labelledby="placement-title">
            <div class="card-head">
              <h2 id="placement-title">Placement and schedule</h2>
              <Toggle label="Method" options={drawn.map(({ method }) => [method, method])} value={chosen} onChange={setChosen} />
            </div>
            <p class="quiet">Each box is a group of operators on one device, placed from left to right by its depth in the graph. Bold lines go from one device to another.</p>
            <Groups study={study} method={method} />
            <Key entries={study.devices.map(({ name }, i) => [memoryUse(study, method, i, name), i])} />
            <h3>One step</h3>
            <p class="quiet">Above: what a device computes; lighter: backward operators. Below, narrow: what it sends, in the colour of the receiver.</p>
            <Timeline study={study} method={method} />
          </section>
        )}
      </main>
    </>
  );
}

function memoryUse(study: GraphStudy, method: Method, device: number, name: string): string {
  const used = study.group_memory.reduce((sum, bytes, group) => sum + (method.placement[group] === device ? bytes : 0), 0);
  const all = study.devices[device]!.memory;
  return `${name}: ${formatNumber(used / 1e9)}${all === null ? "" : ` of ${formatNumber(all / 1e9)}`} GB`;
}

function Methods({ study, best }: { study: GraphStudy; best: number | null }) {
  const heft = study.methods.find(({ method }) => method === "heft")?.step_s ?? null;
  return (
    <div class="scroller">
      <table class="results">
        <thead>
          <tr>
            <th>Method</th>
            <th class="words">What it does</th>
            <th>Step (ms)</th>
            <th>Of HEFT</th>
            <th>Samples</th>
            <th>Samples until HEFT + 2%</th>
            <th>CPU time (s)</th>
          </tr>
        </thead>
        <tbody>
          {study.methods.map((row) => (
            <tr key={row.method}>
              <td>{row.method}</td>
              <td class="words">{row.what}</td>
              <td class={row.step_s === best ? "best" : ""}>{row.step_s === null ? "does not fit" : formatNumber(row.step_s * 1e3)}</td>
              <td>{row.step_s === null || heft === null ? missing : formatPercent(row.step_s / heft)}</td>
              <td>{row.samples > 0 ? formatCount(row.samples) : missing}</td>
              <td>{formatCount(row.samples_until_heft)}</td>
              <td>{formatNumber(row.cpu_s)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Curves({ study }: { study: GraphStudy }) {
  const learned = study.methods.filter(({ curve }) => curve.length > 0);
  if (learned.length === 0) return null;
  const last = Math.max(...learned.map(({ samples }) => samples));
  const lines: Line[] = learned.map(({ method, curve }, i) => ({ label: method, colour: i, points: curve.map(([samples, step]) => [samples, step * 1e3]) }));
  const rules = study.methods.filter(({ curve, step_s }) => curve.length === 0 && step_s !== null);
  rules.forEach(({ method, step_s }, i) =>
    lines.push({ label: method, colour: learned.length + i, dashed: true, points: [[1, step_s! * 1e3], [last, step_s! * 1e3]] }),
  );
  return (
    <section class="card" aria-labelledby="curves-title">
      <h2 id="curves-title">Learning</h2>
      <p class="quiet">The best step so far, by the number of placements that were tried. Dashed: rules, which try nothing.</p>
      <LineChart label="Best step by samples" lines={lines} horizontal="samples" vertical="step (ms)" logarithmic />
    </section>
  );
}

const box = { width: 1180, high: 420 };

/** Groups in columns by their depth, and the edges between them. */
function Groups({ study, method }: { study: GraphStudy; method: Method }) {
  const depth = study.groups.map(() => -1);
  const edges = new Map<string, [number, number]>();
  for (const operator of study.operators) {
    let before = -1;
    for (const input of operator.inputs) {
      const from = study.operators[input]!.group;
      if (from === operator.group) continue;
      before = Math.max(before, depth[from]!);
      if (!edges.has(`${operator.group} ${from}`)) edges.set(`${from} ${operator.group}`, [from, operator.group]);
    }
    // A group stands where its first operator does.
    if (depth[operator.group] === -1) depth[operator.group] = before + 1;
  }
  const columns = Math.max(...depth) + 1;
  const used = Array.from({ length: columns }, () => 0);
  const row = depth.map((column) => used[column]!++);
  const rows = Math.max(...used);
  const [across, down] = [box.width / columns, Math.min(26, box.high / rows)];
  const height = rows * down + 8;
  const x = (group: number) => (depth[group]! + 0.5) * across;
  const y = (group: number) => 4 + (row[group]! + 0.5 + (rows - used[depth[group]!]!) / 2) * down;
  const [w, h] = [Math.max(4, Math.min(22, across * 0.6)), Math.max(4, down * 0.62)];
  return (
    <svg class="figure" viewBox={`0 0 ${box.width} ${height}`} role="img" aria-label={`Placement by ${method.method}`}>
      {[...edges.values()].map(([from, to]) => {
        const apart = method.placement[from] !== method.placement[to];
        return (
          <line key={`${from} ${to}`} x1={x(from) + w / 2} y1={y(from)} x2={x(to) - w / 2} y2={y(to)} stroke={apart ? "var(--text)" : "var(--boundary)"} stroke-width={apart ? 1.4 : 0.7} opacity={apart ? 0.75 : 1} />
        );
      })}
      {study.groups.map((name, group) => (
        <rect key={name} x={x(group) - w / 2} y={y(group) - h / 2} width={w} height={h} rx="2" fill={seriesColour(method.placement[group]!)}>
          <title>{`${name} on ${study.devices[method.placement[group]!]!.name}`}</title>
        </rect>
      ))}
    </svg>
  );
}

function Timeline({ study, method }: { study: GraphStudy; method: Method }) {
  const { start, end, transfers } = method.schedule!;
  const [left, lane, sends] = [70, 30, 9];
  const height = study.devices.length * (lane + sends + 12) + 30;
  const x = (seconds: number) => left + (seconds / (method.step_s! || 1)) * (box.width - left - 10);
  const top = (device: number) => 4 + device * (lane + sends + 12);
  const device = (operator: number) => method.placement[study.operators[operator]!.group]!;
  const ms = (seconds: number) => `${formatNumber(seconds * 1e3)} ms`;
  return (
    <svg class="figure" viewBox={`0 0 ${box.width} ${height}`} role="img" aria-label={`Schedule by ${method.method}`}>
      {study.devices.map(({ name }, i) => (
        <g key={name}>
          <text class="name" x="0" y={top(i) + 19}>{name}</text>
          <rect x={left} y={top(i)} width={box.width - left - 10} height={lane} fill="var(--idle)" />
          <rect x={left} y={top(i) + lane + 1} width={box.width - left - 10} height={sends} fill="var(--idle)" />
        </g>
      ))}
      {study.operators.map(({ name }, i) => (
        <rect key={i} x={x(start[i]!)} y={top(device(i))} width={Math.max(0.3, x(end[i]!) - x(start[i]!) - 0.3)} height={lane} fill={seriesColour(device(i))} opacity={name.endsWith(" backward") ? 0.6 : 1}>
          <title>{`${name}: ${ms(start[i]!)} to ${ms(end[i]!)}`}</title>
        </rect>
      ))}
      {transfers.map(([from, to, begin, finish], i) => (
        <rect key={i} x={x(begin)} y={top(device(from)) + lane + 1} width={Math.max(0.3, x(finish) - x(begin) - 0.3)} height={sends} fill={seriesColour(to)}>
          <title>{`${study.operators[from]!.name} to ${study.devices[to]!.name}: ${ms(begin)} to ${ms(finish)}`}</title>
        </rect>
      ))}
      {numberTicks(0, method.step_s! * 1e3, 10).map((tick) => (
        <text key={tick} x={x(tick / 1e3)} y={height - 6} text-anchor="middle">{formatNumber(tick)} ms</text>
      ))}
    </svg>
  );
}

function LearnPage({ study }: { study: LearnStudy }) {
  return (
    <>
      <Header overline="A policy that learns" title={study.title} settings={study.settings} />
      <main>
        {study.charts.map((chart) => (
          <section class="card" key={chart.title} aria-label={chart.title}>
            <h2>{chart.title}</h2>
            <p class="quiet">{chart.about}</p>
            <LineChart label={chart.title} lines={chart.lines.map((line, i) => ({ ...line, colour: i }))} horizontal={chart.horizontal} vertical={chart.vertical} />
          </section>
        ))}
      </main>
    </>
  );
}

function start(): void {
  const page = document.getElementById("page")!;
  let study: GraphStudy | LearnStudy;
  try {
    study = JSON.parse(document.getElementById("rubato-report")?.textContent ?? "");
  } catch {
    render(<p class="problem" role="alert">This page has no data. It is written by rubato learn and rubato graph place.</p>, page);
    return;
  }
  document.title = `${study.kind === "graph" ? study.graph : study.title} – Rubato`;
  watchPresentation();
  render(study.kind === "graph" ? <GraphPage study={study} /> : <LearnPage study={study} />, page);
}

start();
