// The keys, and where to read more.
import { useEffect, useRef } from "preact/hooks";

const keys: [string, string][] = [
  ["/", "find a job: its number, name, user, state or reason"],
  ["j, k", "next and previous row of a table"],
  ["Enter", "open the row"],
  ["?", "this help"],
  ["arrows, +, −, 0", "move and zoom the timeline that has the focus"],
  ["Esc", "close, unpin"],
];

export function Help({ onClose }: { onClose(): void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} onClose={onClose} aria-label="Keys and help">
      <form method="dialog">
        <h2>Keys</h2>
        <dl class="facts-list">{keys.map(([key, text]) => <div key={key}><dt><kbd>{key}</kbd></dt><dd>{text}</dd></div>)}</dl>
        <p>The address of this page holds all that you see: copy it to show it to somebody who may see it, too.</p>
        <p class="quiet">docs/page.md describes the page, docs/http-api.md the API that it uses.</p>
        <p class="dialog-buttons"><button type="submit" class="primary">Close</button></p>
      </form>
    </dialog>
  );
}
