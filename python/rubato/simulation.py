"""The simulator from Python. It runs `rubato simulate` and reads what that writes.

    result = rubato.simulate("jobs.csv", cluster="8x8", policy=["fifo", "rubato"], seed=7)
    result["rubato"].summary["avg_jct_s"]
    result["fifo"].jobs["end_s"]             # an array with an element for each job
    result                                   # in a notebook: the report page
"""

import csv
import html
import json
import os
import pathlib
import subprocess
import tempfile
from typing import Any, Dict, Iterator, List, Sequence, Union

from rubato.client import Error

_NUMBERS = ("job_id", "submit_s", "start_s", "end_s", "deadline_s", "met", "rejected", "earliest_deadline_s")


def _column(values: List[Any]) -> Any:
    try:
        import numpy  # not at the top: programs that train need not load it
    except ImportError:
        return values
    return numpy.array(values)


class PolicyRun:
    """What one policy did with the trace."""

    def __init__(self, summary: Dict[str, Any], rows: List[Dict[str, str]]):
        self.policy: str = summary["policy"]
        self.summary = summary
        # Columns of the CSV file of `rubato simulate --jobs-csv`. What is unknown is not a number.
        self.jobs: Dict[str, Any] = {name: _column([float(row[name] or "nan") for row in rows]) for name in _NUMBERS}
        changes = [(float(row["job_id"]), *map(float, change.split(":")))
                   for row in rows for change in row["gpus"].split(";") if change]
        # From time_s on, the job has so many GPUs.
        self.allocations: Dict[str, Any] = {
            name: _column([change[i] for change in changes]) for i, name in enumerate(("job_id", "time_s", "gpus"))}

    def __repr__(self) -> str:
        return f"<{self.policy}: average completion time {self.summary['avg_jct_s']:.0f} s>"


class Simulation:
    """The runs of all policies, by name or in order."""

    def __init__(self, trace: Dict[str, Any], runs: List[PolicyRun], page: str):
        self.trace, self.runs, self._page = trace, runs, page

    def __getitem__(self, key: Union[int, str]) -> PolicyRun:
        if isinstance(key, int):
            return self.runs[key]
        for run in self.runs:
            if run.policy == key:
                return run
        raise KeyError(f"{key}; the policies are {', '.join(run.policy for run in self.runs)}")

    def __iter__(self) -> Iterator[PolicyRun]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    def report(self) -> str:
        """The report page, one HTML file."""
        return self._page

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{html.escape(self._page)}" width="100%" height="700" frameborder="0"></iframe>'


def simulate(trace: Union[str, "os.PathLike[str]"], *, cluster: str, policy: Union[str, Sequence[str]], seed: int = 1,
             program: str = "rubato", **options: Any) -> Simulation:
    """Simulates a trace file with some policies. `options` are the flags of `rubato simulate`: placement="pack",
    restart_cost=30, bound=True and so on. Errors are those of the command line."""
    policies = [policy] if isinstance(policy, str) else list(policy)
    flags = ["--trace", os.fspath(trace), "--cluster", cluster, "--seed", str(seed)]
    for name in policies:
        flags += ["--policy", name]
    for name, value in options.items():
        if value is True:
            flags.append(f"--{name.replace('_', '-')}")
        elif value is not False and value is not None:
            flags += [f"--{name.replace('_', '-')}", str(value)]
    with tempfile.TemporaryDirectory() as folder:
        jobs, page = pathlib.Path(folder) / "jobs.csv", pathlib.Path(folder) / "report.html"
        try:
            done = subprocess.run([program, "simulate", *flags, "--json", "--jobs-csv", str(jobs), "--html", str(page)],
                                  check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        except FileNotFoundError:
            raise Error(f"{program} was not found: put it on the PATH, or say simulate(program=...)", 2) from None
        if done.returncode != 0:
            raise Error((done.stderr.strip() or done.stdout.strip()).removeprefix("rubato: "), done.returncode)
        answer = json.loads(done.stdout)
        rows: Dict[str, List[Dict[str, str]]] = {}
        with open(jobs, encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                rows.setdefault(row["policy"], []).append(row)
        runs = [PolicyRun(summary, rows.get(summary["policy"], [])) for summary in answer["runs"]]
        return Simulation(answer["trace"], runs, page.read_text(encoding="utf-8"))
