// Finds a job by name: type, pick from the matches, go there.
import { useMemo, useState } from "preact/hooks";

const mostMatches = 8;

/** Jobs whose name contains the text; exact matches first, then those that start with it. */
export function matchJobs(names: string[], text: string): number[] {
  const wanted = text.trim().toLowerCase();
  if (wanted === "") return [];
  const ranked: [number, number][] = [];
  names.forEach((name, job) => {
    const at = name.toLowerCase().indexOf(wanted);
    if (at >= 0) ranked.push([name.length === wanted.length ? -1 : Math.min(at, 1), job]);
  });
  return ranked.sort((a, b) => a[0] - b[0] || a[1] - b[1]).slice(0, mostMatches).map(([, job]) => job);
}

interface Props {
  names: string[];
  onPick(job: number): void;
}

export function JobSearch({ names, onPick }: Props) {
  const [text, setText] = useState("");
  const [open, setOpen] = useState(false);
  const [active, setActive] = useState(0);
  const matches = useMemo(() => matchJobs(names, text), [names, text]);
  const listed = open && text.trim() !== "";

  const pick = (job: number | undefined) => {
    if (job === undefined) return;
    setText(names[job]!);
    setOpen(false);
    onPick(job);
  };
  const type = (value: string) => {
    setText(value);
    setOpen(true);
    setActive(0);
  };
  const keyDown = (event: KeyboardEvent) => {
    const actions: Record<string, () => void> = {
      Enter: () => pick(matches[active]),
      ArrowDown: () => setActive(Math.min(matches.length - 1, active + 1)),
      ArrowUp: () => setActive(Math.max(0, active - 1)),
      Escape: () => setOpen(false),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  };

  return (
    <div class="search">
      <input
        type="search"
        placeholder="Find a job…"
        aria-label="Find a job by name"
        role="combobox"
        aria-expanded={listed}
        aria-controls="job-matches"
        aria-autocomplete="list"
        aria-activedescendant={listed && matches.length > 0 ? `job-match-${active}` : undefined}
        autocomplete="off"
        spellcheck={false}
        value={text}
        onInput={(event) => type(event.currentTarget.value)}
        onKeyDown={keyDown}
        onBlur={() => setOpen(false)}
      />
      {listed && (
        <ul id="job-matches" role="listbox" aria-label="Matching jobs">
          {matches.length === 0 && <li class="quiet">No job has this text in its name.</li>}
          {matches.map((job, i) => (
            <li
              key={job}
              id={`job-match-${i}`}
              role="option"
              aria-selected={i === active}
              onMouseDown={(event) => event.preventDefault()}
              onClick={() => pick(job)}
            >
              {names[job]}
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}
