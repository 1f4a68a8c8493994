// Ends what a daemon of the tests has started, and removes its directory: node guard.mjs STATE_DIRECTORY
//
// It waits for the end of its standard input. That comes when the test closes it, and also when the test was killed.
// Agents and masters survive their daemon, so they are found by the directory, which is in their environment or arguments.
import { readdirSync, readFileSync, rmdirSync, rmSync } from "node:fs";
import { join } from "node:path";

const state = process.argv[2];

function* ours() {
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name) || Number(name) === process.pid) continue;
    try {
      const words = ["environ", "cmdline"].map((file) => readFileSync(`/proc/${name}/${file}`, "latin1")).join("\0");
      if (words.includes(state)) yield Number(name);
    } catch {
      // it has ended, or is not ours
    }
  }
}

function tried(action) {
  try {
    action();
  } catch {
    // gone already
  }
}

process.stdin.resume();
process.stdin.once("close", async () => {
  // Some may start others while we look.
  for (let found = [...ours()]; found.length > 0; found = [...ours()]) {
    for (const pid of found) tried(() => process.kill(pid, "SIGKILL"));
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  // Those that agents had no time to remove.
  tried(() => {
    for (const file of readdirSync(join(state, "nodes"), { recursive: true }))
      if (/cgroup-[^/]*\.json$/.test(file)) tried(() => rmdirSync(JSON.parse(readFileSync(join(state, "nodes", file), "utf8")).cgroup));
  });
  rmSync(state, { recursive: true, force: true });
});
