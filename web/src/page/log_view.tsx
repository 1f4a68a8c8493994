// The log of a job: follow it, search it, link to a line of it.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { formatCount, plural } from "../parts/format";
import { useChanges } from "../parts/observable";
import { piecesOf, visibleText } from "./ansi";
import { messageOf, send } from "./api";
import { Problem } from "./bits";
import type { Line } from "./lines";
import { LogWindow } from "./log_window";
import { route } from "./route";
import { saveAs } from "./table";

const rowHeight = 18;
const extraRows = 30;

export function LogView({ job, name }: { job: number; name: string }) {
  const log = useMemo(() => new LogWindow(job), [job]);
  useChanges(log.changed);
  const [text, setText] = useState(route.get("find") ?? "");
  const [match, setMatch] = useState(-1);
  const [saving, setSaving] = useState(false);
  const [saveProblem, setSaveProblem] = useState("");
  const marked = Number(route.get("at") ?? NaN);
  const list = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const stick = useRef(true);
  const wanted = useRef<number | null>(null);

  useEffect(() => {
    if (Number.isFinite(marked)) goTo(marked);
    else void log.follow();
    if (text) void log.find(text);
    return () => log.stop();
  }, [log]);

  const goTo = (at: number) => {
    stick.current = false;
    wanted.current = at;
    if (!log.holds(at)) void log.show(at);
    else scrollToWanted();
  };
  const scrollToWanted = () => {
    const at = wanted.current;
    if (at === null || !list.current || !log.holds(at)) return;
    wanted.current = null;
    list.current.scrollTop = Math.max(0, log.lineAt(at) * rowHeight - list.current.clientHeight / 3);
  };

  useLayoutEffect(() => {
    scrollToWanted();
    const element = list.current;
    if (element && stick.current && log.following) element.scrollTop = element.scrollHeight;
  });

  const { search } = log;
  const step = (by: number) => {
    if (!search || search.lines.length === 0) return;
    const from = match < 0 && by < 0 ? 0 : match;
    const next = (from + by + search.lines.length) % search.lines.length;
    setMatch(next);
    const at = search.lines[next]!;
    route.set({ at: String(at) });
    goTo(at);
  };
  const submit = (event: Event) => {
    event.preventDefault();
    if (search && search.text === text) return step(1);
    setMatch(-1);
    route.set({ find: text || null });
    void log.find(text);
  };
  const follow = () => {
    stick.current = true;
    route.set({ at: null });
    void log.follow();
  };
  const download = async () => {
    setSaving(true);
    setSaveProblem("");
    try {
      const response = await send("GET", `/v1/jobs/${job}/log`);
      // Not in the memory of this page: the browser takes the bytes as they come and keeps them on its disk.
      saveAs(await response.blob(), `${name || "job"}-${job}.log`);
    } catch (error) {
      setSaveProblem(messageOf(error));
    }
    setSaving(false);
  };
  const scrolled = () => {
    const element = list.current!;
    setTop(element.scrollTop);
    stick.current = element.scrollTop + element.clientHeight >= element.scrollHeight - rowHeight;
  };

  const first = Math.max(0, Math.floor(top / rowHeight) - extraRows);
  const shown = log.lines.slice(first, first + Math.ceil((list.current?.clientHeight ?? 600) / rowHeight) + 2 * extraRows);
  return (
    <div class="log">
      <form class="controls" onSubmit={submit}>
        <div class="search">
          <input
            type="search" aria-label="Search the log" placeholder="Search the log…" value={text}
            onInput={(event) => setText(event.currentTarget.value)}
          />
        </div>
        <div class="toggle" role="group" aria-label="Matches">
          <button type="submit">Search</button>
          <button type="button" aria-label="Previous match" disabled={!search?.lines.length} onClick={() => step(-1)}>↑</button>
          <button type="button" aria-label="Next match" disabled={!search?.lines.length} onClick={() => step(1)}>↓</button>
        </div>
        <span class="quiet" role="status" data-matches={search?.done ? search.matches : undefined}>{searchText(log, match)}</span>
        <span class="spacer" />
        <button type="button" class="boxed" onClick={follow} aria-pressed={log.following}>{log.following ? "Following the end" : "Follow the end"}</button>
        <button type="button" class="boxed" onClick={download} disabled={saving}>{saving ? "Downloading…" : "Download"}</button>
      </form>
      {saveProblem && <Problem>The log was not downloaded: {saveProblem}</Problem>}
      {log.problem && <Problem>{log.problem}</Problem>}
      <div class="log-lines" ref={list} onScroll={scrolled} tabIndex={0} role="log" aria-live="off" aria-label={`Log of job ${job}`}>
        <div style={{ height: `${log.lines.length * rowHeight}px`, position: "relative" }}>
          <div style={{ position: "absolute", top: `${first * rowHeight}px`, left: "0", minWidth: "100%" }}>
            {shown.map((line) => (
              <LogLine key={line.at} line={line} marked={line.at === marked} wanted={search?.text ?? ""} />
            ))}
          </div>
        </div>
        {log.lines.length === 0 && <p class="empty">{log.complete ? "Nothing was written." : "Nothing was written yet."}</p>}
      </div>
      <p class="quiet">
        {formatCount(log.lines.length)} lines are in this window. {log.following ? "New lines appear as they are written." : "This is a part of the log."}{" "}
        Click the number of a line to link to it.
      </p>
    </div>
  );
}

function searchText({ search }: LogWindow, match: number): string {
  if (!search) return "";
  if (search.problem) return search.problem;
  const { lines, matchingLines, matches } = search;
  const found = `${formatCount(matches)} ${matches === 1 ? "match" : "matches"}`;
  const where = match >= 0 && lines.length > 0 ? `line ${formatCount(match + 1)} of ${formatCount(matchingLines)}, ${found}` : `${found} in ${plural(matchingLines, "line")}`;
  const reach = matchingLines > lines.length ? `; the arrows reach the first ${formatCount(lines.length)} lines` : "";
  return `${where}${search.done ? "" : " so far"}${reach}`;
}

function LogLine({ line, marked, wanted }: { line: Line; marked: boolean; wanted: string }) {
  const hit = wanted !== "" && visibleText(line.text).toLowerCase().includes(wanted.toLowerCase());
  return (
    <div class={`log-line${marked ? " is-marked" : ""}${hit ? " is-hit" : ""}`} data-at={line.at}>
      <a class="log-at" href="#" aria-label={`Link to byte ${line.at}`} onClick={(event) => { event.preventDefault(); route.set({ at: String(line.at) }); }}>
        {line.at}
      </a>
      <bdi class="log-text" dir="ltr">{hit ? <Highlighted text={line.text} wanted={wanted} /> : <Coloured text={line.text} />}</bdi>
    </div>
  );
}

function Coloured({ text }: { text: string }) {
  return <>{piecesOf(text).map((piece, i) => (piece.style ? <span key={i} class={piece.style}>{piece.text}</span> : piece.text))}</>;
}

/** A match may span colours, so a line with one is shown without them. */
function Highlighted({ text, wanted }: { text: string; wanted: string }) {
  const plain = visibleText(text);
  const lower = plain.toLowerCase();
  const parts = [];
  let from = 0;
  for (let at = lower.indexOf(wanted.toLowerCase()); at >= 0; at = lower.indexOf(wanted.toLowerCase(), from)) {
    parts.push(plain.slice(from, at), <mark key={at}>{plain.slice(at, at + wanted.length)}</mark>);
    from = at + wanted.length;
  }
  return <>{parts}{plain.slice(from)}</>;
}
