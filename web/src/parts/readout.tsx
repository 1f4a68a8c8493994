// A chart's legend that also shows each run's value, now or at the pointer.
import { missing } from "./format";
import { seriesColour, seriesDash } from "./presentation";

export interface ReadoutRow {
  run: number;
  label: string;
  value: string | null;
}

interface Props {
  caption: string;
  rows: ReadoutRow[];
  selected: number;
}

export function Readout({ caption, rows, selected }: Props) {
  return (
    <div class="readout">
      <p class="readout-caption">{caption}</p>
      <ul>
        {rows.map(({ run, label, value }) => (
          <li key={run} class={run === selected ? "is-selected" : undefined}>
            <Swatch run={run} />
            <span class="readout-label" title={label}>{label}</span>
            <span class="number">{value ?? missing}</span>
          </li>
        ))}
      </ul>
    </div>
  );
}

export function Swatch({ run }: { run: number }) {
  const style = seriesDash(run).length > 0 ? "dashed" : "solid";
  return <span class="swatch" aria-hidden="true" style={{ borderTop: `3px ${style} ${seriesColour(run)}` }} />;
}
