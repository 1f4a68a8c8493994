// What the colours of a timeline mean.
import type { LegendEntry } from "./job_colours";

export function LegendList({ entries }: { entries: LegendEntry[] }) {
  return (
    <ul class="legend">
      {entries.map(({ label, colour }) => (
        <li key={label}>
          <span class="legend-colour" aria-hidden="true" style={{ background: colour }} />
          <bdi>{label}</bdi>
        </li>
      ))}
    </ul>
  );
}
