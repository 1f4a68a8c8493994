"""Property tests for policies in Python: rubato.check(MyPolicy())."""

import json
import os
import random
import tempfile
from typing import Any, Dict, List, Tuple

from rubato import policy as _policy
from rubato.client import Error
from rubato.policy import Cluster, Decision, Jobs, Policy, Watched
from rubato.simulation import Simulation, Trace, simulate

_ONE_TYPE = ("1x4", "2x4", "5x2", "1x12")
_SEVERAL_TYPES = ("2x3:a,1x4:b", "1x2:a,1x3:b,2x4:c")
_PLACEMENTS = ("count", "pack", "spread", "even", "emptiest")


class CheckFailed(AssertionError):
    """A property does not hold. The message says which, and in which scene."""


class _Scene:
    """A random small workload, with a cluster on which machines may fail."""

    def __init__(self, seed: int, one_type: bool, folder: str, program: str):
        draw = random.Random(seed)
        self.program = program
        self.cluster = draw.choice(_ONE_TYPE if one_type else _ONE_TYPE + _SEVERAL_TYPES)
        self.options: Dict[str, Any] = {"seed": seed, "placement": draw.choice(_PLACEMENTS)}
        if draw.random() < 0.5:
            self.options["restart_cost"] = draw.randrange(1, 60)
        if draw.random() < 0.3:
            self.options["interval"] = draw.choice((30, 300, 77.5))
        if draw.random() < 0.3:
            self.options.update(failure_rate=draw.choice((2, 20)), repair_time=600)
        if draw.random() < 0.5:
            self.options["deadlines"] = "0.8:3"
        self.trace = Trace.generate(os.path.join(folder, f"{seed}.csv"), program=program, seed=seed,
                                    jobs=draw.randrange(3, 40), cluster=self.cluster, load=draw.choice((0.5, 1, 3)),
                                    longest=7200)
        self.text = f"scene {seed} ({self.cluster}, {', '.join(f'{k}={v}' for k, v in self.options.items())})"

    def run(self, policy: Policy) -> Simulation:
        return simulate(self.trace, cluster=self.cluster, policy=policy, program=self.program, **self.options)


def _words(decision: Decision) -> Tuple[Any, ...]:
    def listed(values: Any) -> Any:
        return None if values is None else [int(value) for value in values]
    return (listed(decision.gpus), listed(decision.type), listed(decision.refuse), listed(decision.order),
            decision.again_at)


def _check_pure(policy: Policy, scene: _Scene) -> None:
    """The decision depends on the arguments alone, and the state may be saved and loaded in between."""
    def watch(now: float, jobs: Jobs, cluster: Cluster, before: Dict[str, Any], decision: Decision) -> None:
        state = _policy.loaded(json.loads(json.dumps(_policy.saved(before))))
        again = policy.decide(now, jobs, cluster, state)
        words = _words(again if isinstance(again, Decision) else Decision(again))
        if words != _words(decision):
            raise CheckFailed(f"{scene.text}: at {now} s it decides {_words(decision)}, and {words} when its state was "
                              "saved and loaded before")
    scene.run(Watched(policy, watch))


def _check_work_conserving(policy: Policy, scene: _Scene) -> None:
    def watch(now: float, jobs: Jobs, cluster: Cluster, _before: Dict[str, Any], decision: Decision) -> None:
        idle = [int(usable) for usable in cluster.usable]
        for job, gpus in enumerate(decision.gpus):
            idle[int(decision.type[job]) if decision.type is not None else 0] -= int(gpus)
        for job, gpus in enumerate(decision.gpus):
            refused = decision.refuse is not None and decision.refuse[job]
            if not gpus and not refused and jobs.least[job] <= max(idle):
                raise CheckFailed(f"{scene.text}: job {jobs.id[job]} waits beside {max(idle)} idle GPUs at {now} s")
    scene.run(Watched(policy, watch))


def _check_ends(policy: Policy, scene: _Scene) -> Simulation:
    """Each decision can be carried out, and each job ends or is refused. (The simulator refuses invalid decisions, and
    stops if nothing ends any more.)"""
    result = scene.run(policy)
    summary = result[0].summary
    if summary["completed"] + summary["rejected"] != summary["jobs"]:
        raise CheckFailed(f"{scene.text}: of {summary['jobs']} jobs, {summary['completed']} ended and "
                          f"{summary['rejected']} were refused; the others wait for ever")
    starts, ends = result[0].jobs["start_s"], result[0].jobs["end_s"]
    if any(end < start for start, end in zip(starts, ends)):
        raise CheckFailed(f"{scene.text}: a job ended before it began")
    return result


def check(policy: Policy, *, scenes: int = 20, seed: int = 1, program: str = "rubato") -> List[str]:
    """Tests a policy on random small workloads, with failing machines, several GPU types, restart costs, placements and
    deadlines: every decision can be carried out; every job comes to an end; the same seed gives the same schedule; the
    decision depends on its arguments alone, so that a state that was saved and loaded makes no difference; and a policy
    that says `work_conserving = True` leaves no GPU idle that a waiting job could use. Returns what was checked. Raises
    CheckFailed with the first violation, and the exceptions of the policy itself."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(seed, seed + scenes):
            scene = _Scene(number, policy.one_type, folder, program)
            try:
                first, second = _check_ends(policy, scene), _check_ends(policy, scene)
            except Error as error:
                raise CheckFailed(f"{scene.text}: {error}") from None
            if list(first[0].jobs["end_s"]) != list(second[0].jobs["end_s"]) and first[0].summary["rejected"] == 0:
                raise CheckFailed(f"{scene.text}: two runs gave two schedules")
            _check_pure(policy, scene)
            if policy.work_conserving:
                _check_work_conserving(policy, scene)
    return [f"{scenes} scenes: every decision was valid, and every job came to an end",
            f"{scenes} scenes: the same schedule twice", f"{scenes} scenes: the same decisions with a loaded state",
            *([f"{scenes} scenes: no GPU idle that a waiting job could use"] if policy.work_conserving else [])]
