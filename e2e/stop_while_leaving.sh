#!/usr/bin/env bash
# A job is stopped exactly when one of its workers leaves. It must end once, after the last published step, and its
# checkpoint must be of that step.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec python3 - "${1:-build}" <<'END'
import os
import random
import signal
import sys
import tempfile
import time
import types

sys.path.insert(0, "bench")
import elastic

build = os.path.abspath(sys.argv[1])
choose = random.Random(5)
faults = 0
for _ in range(6):
    with tempfile.TemporaryDirectory(prefix="rubato-stop-") as directory:
        run = elastic.Run(types.SimpleNamespace(build=build), directory, "stop", "1:4", 2,
                          [f"{build}/examples/mlp", "--steps", "1000000000",
                           "--checkpoint", f"{directory}/checkpoint"])
        try:
            run.wait_for(lambda: run.settled(5), 120, "two steady workers")
            run.resize(1)
            time.sleep(choose.uniform(0, 0.02))
            run.process.send_signal(signal.SIGTERM)
            run.finish(120)
            stopped = [event["content"]["step"] for event in run.notices("stopped")]
            last = max(report["step"] for report in run.reports)
            newest = sorted(os.listdir(f"{directory}/checkpoint"))[-1]
            if stopped != [last] or newest != f"step-{last:012d}.ckpt":
                faults += 1
                print(f"FAIL stopped after {stopped}, last published {last}, checkpoint {newest}")
        finally:
            run.destroy()
print(f"{6 - faults} passed, {faults} failed")
sys.exit(1 if faults else 0)
END
