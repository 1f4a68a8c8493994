// A real daemon for tests of its page, with real jobs. RUBATO_BUILD is the folder of the program and the examples.
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
export const build = resolve(process.env.RUBATO_BUILD ?? join(here, "..", "..", "build"));
const rubato = join(build, "rubato");
export const mlp = join(build, "examples", "mlp");

export const chromiumFlags = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];

export function hasProgram() {
  return existsSync(rubato) && existsSync(mlp);
}

export class Daemon {
  constructor(options = ["--cluster", "2x4"]) {
    this.options = options;
    this.state = mkdtempSync(join(tmpdir(), "rubato-page-"));
    this.address = null;
    // In a session of its own: it also outlives a ctrl-C.
    this.guard = spawn(process.execPath, [join(here, "guard.mjs"), this.state], { stdio: ["pipe", "ignore", "inherit"], detached: true });
  }

  /** Starts it on the port that it had before, if it had one. */
  async start() {
    const listen = this.address ? ["--listen", this.address] : [];
    this.process = spawn(rubato, ["up", "--state", this.state, ...this.options, ...listen], { stdio: ["ignore", "ignore", "pipe"] });
    let said = "";
    this.process.stderr.on("data", (data) => (said += data));
    await until(() => {
      if (this.process.exitCode !== null) throw new Error(`the daemon ended: ${said}`);
      return said.includes("ctrl-C");
    });
    this.address = readFileSync(join(this.state, "api.address"), "utf8").trim();
  }

  get url() {
    return `http://${this.address}`;
  }

  async stop(signal = "SIGTERM") {
    const { process } = this;
    if (!process || process.exitCode !== null || process.signalCode !== null) return;
    const ended = new Promise((resolve) => process.once("exit", resolve));
    process.kill(signal);
    await ended;
  }

  /** Ends the daemon and its jobs, and removes its directory. The same happens when this process is killed. */
  async end() {
    await this.stop();
    const ended = once(this.guard, "exit");
    this.guard.stdin.end();
    await ended;
  }

  run(command, ...words) {
    const at = words.indexOf("--");
    const place = at < 0 ? words.length : at;
    const all = [command, ...words.slice(0, place), "--state", this.state, ...words.slice(place)];
    return execFileSync(rubato, all, { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
  }

  json(command, ...words) {
    return JSON.parse(this.run(command, ...words, "--json"));
  }

  /** The address with a one-time code. */
  page() {
    return this.run("page", "--print").trim();
  }

  adminToken() {
    return readFileSync(join(this.state, "admin.token"), "utf8").trim();
  }

  /** Submits the example, which trains for so many steps; returns its number. */
  train(name, steps, ...flags) {
    return Number(this.run("submit", "--parsable", "--name", name, ...flags, "--", mlp, "--steps", String(steps)).trim());
  }

  /** Submits a program of the shell, which knows nothing of Rubato. */
  shell(name, script, ...flags) {
    const gpus = flags.includes("--gpus") ? [] : ["--gpus", "1"];
    return Number(this.run("submit", "--parsable", "--no-elastic", ...gpus, "--name", name, ...flags, "--", "sh", "-c", script).trim());
  }
}

export async function until(condition, patience = 60_000) {
  const end = Date.now() + patience;
  for (;;) {
    if (await condition()) return;
    if (Date.now() > end) throw new Error(`waited in vain for ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
