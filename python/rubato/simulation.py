"""The simulator from Python. It runs `rubato simulate` and reads what that writes.

    result = rubato.simulate("jobs.csv", cluster="8x8", policy=["fifo", "rubato"], seed=7)
    result["rubato"].summary["avg_jct_s"]
    result["fifo"].jobs["end_s"]             # a column with an element for each job
    result                                   # in a notebook: the report page
"""

import csv
import heapq
import html
import json
import os
import pathlib
import re
import subprocess
import tempfile
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union

from rubato.client import Error
from rubato.policy import Policy, Server

_NUMBERS = ("submit_s", "start_s", "end_s", "deadline_s", "met", "rejected", "earliest_deadline_s")
_MOST_BOXES = 20_000  # of a picture
_LENGTHS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

Path = Union[str, "os.PathLike[str]"]
AnyPolicy = Union[str, Policy]


def seconds(length: Union[str, int, float]) -> float:
    """90, "90s", "10m", "2h" or "3d" in seconds."""
    if not isinstance(length, str):
        return float(length)
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd])", length)
    if not match:
        raise ValueError(f"{length!r} is not a length of time; write it as '30s', '10m', '2h' or '3d'")
    return float(match[1]) * _LENGTHS[match[2]]


def _table(columns: Dict[str, List[float]]) -> Any:
    """A data frame if pandas is installed, else a dict of arrays. Without numpy: of lists."""
    try:
        import pandas  # not at the top: programs that train need not load it
        return pandas.DataFrame(columns)
    except ImportError:
        pass
    try:
        import numpy
    except ImportError:
        return columns
    return {name: numpy.array(values, float) for name, values in columns.items()}


class Page(str):
    """An HTML text that shows itself in a notebook."""

    height = 700

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{html.escape(self)}" width="100%" height="{self.height}" frameborder="0"></iframe>'

    def save(self, path: Path) -> None:
        """Writes it to a file."""
        pathlib.Path(path).write_text(self, encoding="utf-8")


class Picture(str):
    """An SVG text that shows itself in a notebook."""

    def _repr_html_(self) -> str:
        return str(self)

    def save(self, path: Path) -> None:
        """Writes it to a file."""
        pathlib.Path(path).write_text(self, encoding="utf-8")


class Trace:
    """A file with jobs in any of the formats of docs/traces.md, or a part of it."""

    def __init__(self, path: Path, first: float = 0, end: Optional[float] = None):
        self.path, self.first, self.end = os.fspath(path), first, end

    @classmethod
    def read(cls, path: Path) -> "Trace":
        """The trace in this file. The simulator reads it, and says what is wrong with it."""
        if not os.path.exists(path):
            raise Error(f"{os.fspath(path)} does not exist", 2)
        return cls(path)

    @classmethod
    def generate(cls, path: Path, *, program: str = "rubato", **options: Any) -> "Trace":
        """Writes a random trace to this file. `options` are the flags of `rubato generate`: jobs=300, cluster="8x8",
        load=0.9, seed=7 and so on."""
        run_program([program, "generate", *_flags(options), "--out", os.fspath(path)])
        return cls(path)

    def between(self, first: Union[str, int, float], end: Union[str, int, float]) -> "Trace":
        """Only the jobs that are submitted from `first` until `end`, counted from the first submission of the file:
        `between(0, "7d")` is its first week."""
        if seconds(first) >= seconds(end):
            raise ValueError(f"between({first!r}, {end!r}) is empty")
        return Trace(self.path, seconds(first), seconds(end))

    def flags(self) -> List[str]:
        """For the command line."""
        flags = ["--trace", self.path]
        if self.first:
            flags += ["--from", repr(self.first)]
        if self.end is not None:
            flags += ["--until", repr(self.end)]
        return flags

    def __repr__(self) -> str:
        return f"Trace({self.path!r}, {self.first!r}, {self.end!r})"


class PolicyRun:
    """What one policy did with the trace.

    policy        its name
    summary       the figures of `rubato simulate --json`
    names         of the jobs, in the order in which they were submitted; job_id counts them from 0
    jobs          the columns job_id, submit_s, start_s, end_s, deadline_s, met, rejected and earliest_deadline_s, as
                  `rubato simulate --jobs-csv` writes them; what is unknown is not a number
    allocations   the columns job_id, time_s and gpus: from then on, the job has so many GPUs
    """

    def __init__(self, summary: Dict[str, Any], rows: List[Dict[str, str]]):
        self.policy: str = summary["policy"]
        self.summary = summary
        self.names = [row["job_id"] for row in rows]
        numbers = {name: [float(row[name] or "nan") for row in rows] for name in _NUMBERS}
        self.jobs = _table({"job_id": [float(i) for i in range(len(rows))], **numbers})
        changes = [(float(i), *map(float, change.split(":")))
                   for i, row in enumerate(rows) for change in row["gpus"].split(";") if change]
        self.allocations = _table({name: [change[i] for change in changes]
                                   for i, name in enumerate(("job_id", "time_s", "gpus"))})

    def timeline(self, width: int = 1000, height: int = 300) -> Picture:
        """A picture of who held how many GPUs when. A row is a GPU, if GPUs were interchangeable."""
        return _timeline(list(zip(self.allocations["job_id"], self.allocations["time_s"], self.allocations["gpus"])),
                         width, height)

    def __repr__(self) -> str:
        mean = self.summary["avg_jct_s"]
        return f"<{self.policy}: average completion time {'unknown' if mean is None else f'{mean:.0f} s'}>"


def _stretches(changes: List[Tuple[float, float, float]]) -> List[Tuple[int, int, float, float]]:
    """(job, row, from, until) for each GPU that a job held. GPUs are rows, and a job takes the first free ones."""
    free: List[int] = []
    rows = 0
    held: Dict[int, List[Tuple[int, float]]] = {}  # by job: row, since when
    stretches = []
    by_time: Dict[float, List[Tuple[int, int]]] = {}
    for job, time, gpus in changes:
        by_time.setdefault(float(time), []).append((int(job), int(gpus)))
    for now in sorted(by_time):
        for job, gpus in by_time[now]:  # what is released now can be taken now
            while len(held.get(job, ())) > gpus:
                row, since = held[job].pop()
                heapq.heappush(free, row)
                stretches.append((job, row, since, now))
        for job, gpus in by_time[now]:
            mine = held.setdefault(job, [])
            while len(mine) < gpus:
                if not free:
                    heapq.heappush(free, rows)
                    rows += 1
                mine.append((heapq.heappop(free), now))
    return stretches


def _timeline(changes: List[Tuple[float, float, float]], width: int, height: int) -> Picture:
    stretches = _stretches(changes)
    rows = max((row for _, row, _, _ in stretches), default=0) + 1
    first, last = min((s[2] for s in stretches), default=0.0), max((s[3] for s in stretches), default=1.0)
    across, down = (width - 10) / max(last - first, 1e-9), (height - 30) / rows
    least = 0.3 / across if len(stretches) > _MOST_BOXES else 0  # narrower ones could not be seen
    drawn = [f'<rect x="{5 + (since - first) * across:.2f}" y="{5 + row * down:.2f}" '
             f'width="{max((until - since) * across, 0.3):.2f}" height="{down:.2f}" '
             f'fill="hsl({job * 137 % 360},55%,{55 + job * 61 % 20}%)"><title>job {job}</title></rect>'
             for job, row, since, until in stretches if until - since >= least]
    return Picture(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
        f'<rect width="{width}" height="{height}" fill="white"/>{"".join(drawn)}'
        f'<g font-size="12" font-family="sans-serif"><text x="5" y="{height - 8}">{rows} GPUs, from 0</text>'
        f'{_marks(last - first, across, height)}</g></svg>')


def _marks(length: float, across: float, height: int) -> str:
    """The time below a picture, about eight times."""
    unit, letter = (86400, "d") if length > 4 * 86400 else (3600, "h") if length > 2 * 3600 else (60, "min")
    each = next((n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500) if length / unit / n <= 8), 1000) * unit
    return "".join(f'<path d="M{5 + at * across:.1f} {height - 25}v5" stroke="black"/>'
                   f'<text x="{5 + at * across:.1f}" y="{height - 8}" text-anchor="middle">{at // unit} {letter}</text>'
                   for at in range(each, int(length) + 1, each) if at * across > 100)


class Simulation:
    """The runs of all policies, by name or in the order in which they were given. `trace` says what the trace is like."""

    def __init__(self, trace: Dict[str, Any], runs: List[PolicyRun], page: str, limits: Callable[[], Dict[str, Any]]):
        self.trace, self.runs, self._page, self._limits = trace, runs, page, limits

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

    def timeline(self, policy: Union[int, str] = 0) -> Picture:
        """A picture of who held how many GPUs when, for one of the policies."""
        return self[policy].timeline()

    def report(self) -> Page:
        """The report page, one HTML text."""
        return Page(self._page)

    def bound(self) -> Dict[str, Any]:
        """What no schedule of these jobs can exceed: `avg_jct_s` is a lower bound on the average completion time, and
        `deadlines` says how many can be met at most. It is computed when it is asked for."""
        return self._limits()

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()


def _flags(options: Dict[str, Any]) -> List[str]:
    flags: List[str] = []
    for name, value in options.items():
        if value is True:
            flags.append(f"--{name.replace('_', '-')}")
        elif value is not False and value is not None:
            flags += [f"--{name.replace('_', '-')}", str(value)]
    return flags


class Program:
    """The program `rubato`, started with some arguments. Its output goes to files, so it never waits for a reader."""

    def __init__(self, command: Sequence[str]):
        self._out, self._err = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
        try:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self._out, stderr=self._err,
                                            text=True)
        except FileNotFoundError:
            raise Error(f"{command[0]} was not found: put it on the PATH, or say program=...", 2) from None

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._out.close()
        self._err.close()

    def output(self) -> str:
        """What it has written, when it has ended. Its errors are raised."""
        code = self.process.wait()
        texts = []
        for file in (self._out, self._err):
            file.seek(0)
            texts.append(file.read())
        if code != 0:
            said = (texts[1].strip() or texts[0].strip()).splitlines()
            raise Error(said[-1].removeprefix("rubato: ") if said else f"it ended with code {code}", code)
        return texts[0]


def run_program(command: Sequence[str]) -> str:
    """Runs the program `rubato` and returns what it writes."""
    with Program(command) as program:
        return program.output()


def simulation_flags(trace: Union[Path, Trace], cluster: str, seed: int, options: Dict[str, Any]) -> List[str]:
    """The flags of `rubato simulate` without policies."""
    chosen = trace if isinstance(trace, Trace) else Trace(trace)
    return [*chosen.flags(), "--cluster", cluster, "--seed", str(seed), *_flags(options)]


def simulate(trace: Union[Path, Trace], *, cluster: str, policy: Union[AnyPolicy, Sequence[AnyPolicy]], seed: int = 1,
             program: str = "rubato", **options: Any) -> Simulation:
    """Simulates a trace with some policies: names as `rubato policies` lists them, or policies in Python
    (rubato.Policy). `options` are the flags of `rubato simulate`: placement="pack", restart_cost=30 and so on. Errors are
    those of the command line. An exception in a policy ends the simulation."""
    policies: List[AnyPolicy] = [policy] if isinstance(policy, (str, Policy)) else list(policy)
    ours = [one for one in policies if isinstance(one, Policy)]
    names = [one for one in policies if isinstance(one, str)]
    flags = simulation_flags(trace, cluster, seed, options)

    def limits() -> Dict[str, Any]:
        # Jobs have speed curves only if one of the policies is elastic, so the bound must know these policies.
        asked = [*names, *(["aonline"] if any(one.elastic for one in ours) else [])] or ["fifo"]
        chosen = [flag for name in asked for flag in ("--policy", name)]
        more = [] if "--bound" in flags else ["--bound"]
        known: Dict[str, Any] = json.loads(run_program([program, "simulate", *flags, *more, *chosen, "--json"]))
        bound: Dict[str, Any] = known["bound"]
        return bound

    with tempfile.TemporaryDirectory() as folder, Server(ours) as server:
        jobs, page = pathlib.Path(folder) / "jobs.csv", pathlib.Path(folder) / "report.html"
        command = [program, "simulate", *flags, "--json", "--jobs-csv", str(jobs), "--html", str(page)]
        for name in names:
            command += ["--policy", name]
        for path in server.paths:
            command += ["--policy-socket", path]
        with Program(command) as running:
            server.serve(running.process)
            answer = json.loads(running.output())
        rows: List[List[Dict[str, str]]] = [[] for _ in answer["runs"]]
        with open(jobs, encoding="utf-8", newline="") as file:
            everything = list(csv.DictReader(file))
        each = len(everything) // max(1, len(rows))
        for i in range(len(rows)):  # the rows of one policy after those of another; two may have one name
            rows[i] = everything[i * each:(i + 1) * each]
        runs = [PolicyRun(summary, some) for summary, some in zip(answer["runs"], rows)]
        # The program names its own policies first. Here they are in the order in which they were asked for.
        theirs, named = runs[len(runs) - len(ours):], runs[:len(runs) - len(ours)]
        if all(isinstance(one, str) for one in policies) or len(named) != len(names):
            ordered = runs
        else:
            ordered = [theirs.pop(0) if isinstance(one, Policy) else named.pop(0) for one in policies]
        return Simulation(answer["trace"], ordered, page.read_text(encoding="utf-8"), limits)
