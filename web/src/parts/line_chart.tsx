// Lines over a number axis, drawn as SVG: a few hundred points, no interaction.
import { formatNumber } from "./format";
import { seriesColour } from "./presentation";
import { numberTicks } from "./ticks";

export interface Line {
  label: string;
  points: [number, number][];
  /** Which colour; several lines may share one. */
  colour: number;
  dashed?: boolean;
}

interface Props {
  label: string;
  lines: Line[];
  horizontal: string;
  vertical: string;
  logarithmic?: boolean;
}

const size = { width: 1180, height: 300, left: 70, right: 16, top: 12, bottom: 42 };

export function LineChart({ label, lines, horizontal, vertical, logarithmic = false }: Props) {
  const xs = lines.flatMap(({ points }) => points.map(([x]) => x));
  const ys = lines.flatMap(({ points }) => points.map(([, y]) => y));
  if (xs.length === 0) return <p class="quiet">There is nothing to draw.</p>;
  const scale = (x: number) => (logarithmic ? Math.log10(Math.max(x, 1)) : x);
  const [left, right] = [scale(Math.min(...xs)), scale(Math.max(...xs))];
  const margin = (Math.max(...ys) - Math.min(...ys)) * 0.06 || Math.abs(ys[0]!) * 0.06 || 1;
  const [low, high] = [Math.min(...ys) - margin, Math.max(...ys) + margin];
  const x = (value: number) => size.left + ((scale(value) - left) / (right - left || 1)) * (size.width - size.left - size.right);
  const y = (value: number) => size.top + ((high - value) / (high - low)) * (size.height - size.top - size.bottom);
  const ticks = logarithmic
    ? Array.from({ length: Math.floor(right) - Math.ceil(left) + 1 }, (_, i) => 10 ** (Math.ceil(left) + i))
    : numberTicks(left, right, 8);
  return (
    <figure>
      <svg class="figure" viewBox={`0 0 ${size.width} ${size.height}`} role="img" aria-label={label}>
        {numberTicks(low, high, 5).map((value) => (
          <g key={value}>
            <line x1={size.left} x2={size.width - size.right} y1={y(value)} y2={y(value)} stroke="var(--grid)" />
            <text x={size.left - 8} y={y(value) + 4} text-anchor="end">{formatNumber(value)}</text>
          </g>
        ))}
        {ticks.map((value) => (
          <text key={value} x={x(value)} y={size.height - size.bottom + 18} text-anchor="middle">{formatNumber(value)}</text>
        ))}
        <text x={(size.left + size.width - size.right) / 2} y={size.height - 6} text-anchor="middle">{horizontal}</text>
        <text x={14} y={size.height / 2} text-anchor="middle" transform={`rotate(-90 14 ${size.height / 2})`}>{vertical}</text>
        {lines.map((line) => (
          <polyline
            key={line.label}
            points={line.points.map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`).join(" ")}
            fill="none"
            stroke={seriesColour(line.colour)}
            stroke-width={line.dashed ? 1.5 : 2}
            stroke-dasharray={line.dashed ? "6 4" : undefined}
          />
        ))}
      </svg>
      <Key entries={lines.map((line) => [line.label, line.colour])} />
    </figure>
  );
}

export function Key({ entries }: { entries: [string, number][] }) {
  return (
    <ul class="key">
      {entries.map(([label, colour]) => (
        <li key={label}><span style={{ background: seriesColour(colour) }} />{label}</li>
      ))}
    </ul>
  );
}
