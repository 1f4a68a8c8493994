// Text with terminal colours, as pieces that are never HTML.

export interface Piece {
  text: string;
  /** Class names; empty for plain text. */
  style: string;
}

interface Look {
  colour: string;
  background: string;
  bold: boolean;
  dim: boolean;
  italic: boolean;
  underline: boolean;
}

const plain: Look = { colour: "", background: "", bold: false, dim: false, italic: false, underline: false };
const names = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

// CSI sequences, OSC sequences, and single escapes; then whatever other control characters there are.
const escapes = /\x1b\[([0-9;:?]*)([ -/]*)([@-~])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]?|[\x00-\x08\x0b-\x1f\x7f-\x9f]/g;

/** What escapes and rewritten lines begin with. A text without these characters is shown as it is. */
const control = /[\x00-\x08\x0b-\x1f\x7f-\x9f]/;

/** A terminal that rewrites its line with "\r" shows the last version. */
function lastVersion(line: string): string {
  const text = line.endsWith("\r") ? line.slice(0, -1) : line;
  return text.slice(text.lastIndexOf("\r") + 1);
}

export function piecesOf(raw: string): Piece[] {
  const line = lastVersion(raw);
  const pieces: Piece[] = [];
  let look = plain;
  let at = 0;
  const add = (text: string) => {
    if (text !== "") pieces.push({ text, style: styleOf(look) });
  };
  for (const match of line.matchAll(escapes)) {
    add(line.slice(at, match.index));
    at = match.index + match[0].length;
    if (match[3] === "m" && match[2] === "") look = changed(look, match[1] ?? "");
  }
  add(line.slice(at));
  return pieces;
}

/** What a reader sees, for searching and copying. */
export function visibleText(raw: string): string {
  return lastVersion(raw).replace(escapes, "");
}

/** Whether one of these lines may show the words, which are in lower case. False is certain. */
export function mayShow(lines: string, words: string): boolean {
  return control.test(lines) || lines.toLowerCase().includes(words);
}

function changed(look: Look, codes: string): Look {
  let next = { ...look };
  const list = codes.split(/[;:]/).map((code) => Number(code) || 0);
  for (let i = 0; i < list.length; i++) {
    const code = list[i]!;
    if (code === 0) next = { ...plain };
    else if (code === 1) next.bold = true;
    else if (code === 2) next.dim = true;
    else if (code === 3) next.italic = true;
    else if (code === 4) next.underline = true;
    else if (code === 22) next.bold = next.dim = false;
    else if (code === 23) next.italic = false;
    else if (code === 24) next.underline = false;
    else if (code >= 30 && code <= 37) next.colour = names[code - 30]!;
    else if (code >= 90 && code <= 97) next.colour = names[code - 90]!;
    else if (code === 39) next.colour = "";
    else if (code >= 40 && code <= 47) next.background = names[code - 40]!;
    else if (code >= 100 && code <= 107) next.background = names[code - 100]!;
    else if (code === 49) next.background = "";
    else if (code === 38 || code === 48) {
      // One of 256 colours, or red, green and blue. The first 16 have names; all others are shown plain.
      const indexed = list[i + 1] === 5;
      const number = indexed ? (list[i + 2] ?? 16) : 16;
      const name = number < 16 ? names[number % 8]! : "";
      if (code === 38) next.colour = name;
      else next.background = name;
      i += indexed ? 2 : 4;
    }
  }
  return next;
}

function styleOf(look: Look): string {
  return [
    look.colour && `fg-${look.colour}`,
    look.background && `bg-${look.background}`,
    look.bold && "ansi-bold",
    look.dim && "ansi-dim",
    look.italic && "ansi-italic",
    look.underline && "ansi-underline",
  ].filter(Boolean).join(" ");
}
