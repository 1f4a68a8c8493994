// What a reader chooses for all pages of this browser: light or dark, local time or UTC.
import { Observable } from "../parts/observable";
import { presentationChanged } from "../parts/presentation";

export type Theme = "system" | "light" | "dark";
export type Zone = "local" | "utc";

class Settings {
  readonly changed = new Observable();
  theme: Theme = oneOf(read("theme"), ["system", "light", "dark"]);
  zone: Zone = oneOf(read("zone"), ["local", "utc"]);

  setTheme(theme: Theme): void {
    this.theme = theme;
    write("theme", theme);
    applyTheme(theme);
    this.changed.notify();
  }

  setZone(zone: Zone): void {
    this.zone = zone;
    write("zone", zone);
    this.changed.notify();
    presentationChanged.notify();
  }
}

function oneOf<T extends string>(value: string | null, options: [T, ...T[]]): T {
  return options.find((option) => option === value) ?? options[0];
}

// A browser may forbid storage; then the choice lasts until the page is closed.
function read(name: string): string | null {
  try {
    return localStorage.getItem(`rubato-${name}`);
  } catch {
    return null;
  }
}

function write(name: string, value: string): void {
  try {
    localStorage.setItem(`rubato-${name}`, value);
  } catch {
    // nothing to do
  }
}

const darkQuery = "(prefers-color-scheme: dark)";
const mediaOf: Record<Theme, string> = { system: `screen and ${darkQuery}`, light: "not all", dark: "screen" };

/** The style sheet has the dark colours in one media rule: the choice decides when it holds. */
export function applyTheme(theme: Theme): void {
  for (const sheet of document.styleSheets) {
    for (const rule of sheet.cssRules) {
      if (rule instanceof CSSMediaRule && isDarkRule(rule)) rule.media.mediaText = mediaOf[theme];
    }
  }
  document.documentElement.style.colorScheme = theme === "system" ? "light dark" : theme;
  presentationChanged.notify();
}

const darkRules = new WeakSet<CSSMediaRule>();

function isDarkRule(rule: CSSMediaRule): boolean {
  if (rule.media.mediaText.includes(darkQuery)) darkRules.add(rule);
  return darkRules.has(rule);
}

export const settings = new Settings();
