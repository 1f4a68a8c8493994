"""Scores of a policy on workloads that it has not seen: rubato.evaluate("my_policy.py")."""

import importlib.util
import inspect
import math
import os
import tempfile
from typing import Any, Dict, List, Sequence, Union

from rubato.policy import Policy
from rubato.simulation import Path, Trace, simulate

#: Seeds on which nobody should train.
HELD_OUT = tuple(range(900_001, 900_006))


class Scores:
    """How a policy did.

    score     the geometric mean, over all seeds, of the average completion time of the baseline divided by that of the
              policy: above 1 is better than the baseline. 0 if a simulation failed.
    seeds     for each seed a dict with seed, score, avg_jct_s, baseline_avg_jct_s and, if it failed, error
    """

    def __init__(self, policy: str, baseline: str, seeds: List[Dict[str, Any]]):
        self.policy, self.baseline, self.seeds = policy, baseline, seeds
        scores = [one["score"] for one in seeds]
        self.score = math.exp(sum(map(math.log, scores)) / len(scores)) if scores and min(scores) > 0 else 0.0

    def __repr__(self) -> str:
        errors = {one["error"] for one in self.seeds if "error" in one}
        return (f"<{self.policy}: {self.score:.4f} times as good as {self.baseline} on {len(self.seeds)} seeds"
                f"{'; ' + '; '.join(sorted(errors)) if errors else ''}>")


def load_policy(path: Path) -> Policy:
    """The policy in a Python file: the object `policy`, or one of the only class that derives from rubato.Policy."""
    spec = importlib.util.spec_from_file_location("rubato_evaluated_policy", os.fspath(path))
    if spec is None or spec.loader is None:
        raise ValueError(f"{os.fspath(path)} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if isinstance(getattr(module, "policy", None), Policy):
        return module.policy  # type: ignore[no-any-return]
    classes = [thing for thing in vars(module).values()
               if inspect.isclass(thing) and issubclass(thing, Policy) and thing.__module__ == module.__name__]
    if len(classes) != 1:
        raise ValueError(f"{os.fspath(path)} must define one class that derives from rubato.Policy, or an object named "
                         f"`policy`; it has {len(classes)} such classes")
    return classes[0]()


def evaluate(policy: Union[Path, Policy], *, seeds: Sequence[int] = HELD_OUT, jobs: int = 300, cluster: str = "8x8",
             load: float = 0.9, baseline: str = "srtf", program: str = "rubato", **options: Any) -> Scores:
    """Simulates a policy, or the one in a Python file, on generated workloads, one for each seed, and compares it with a
    policy of the table. A program that searches for policies gets a score in any case: errors of the policy are in the
    result. `options` are flags of `rubato simulate`; they are the same for both."""
    chosen = policy if isinstance(policy, Policy) else load_policy(policy)
    results: List[Dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            trace = Trace.generate(os.path.join(folder, f"{seed}.csv"), program=program, jobs=jobs, cluster=cluster,
                                   load=load, seed=seed)
            one: Dict[str, Any] = {"seed": seed, "score": 0.0}
            try:
                reference, run = (run.summary for run in simulate(
                    trace, policy=[baseline, chosen], cluster=cluster, seed=seed, program=program, **options))
                one.update(avg_jct_s=run["avg_jct_s"], baseline_avg_jct_s=reference["avg_jct_s"])
                if run["completed"] < reference["completed"]:
                    one["error"] = f"only {run['completed']} of {run['jobs']} jobs ended"
                else:
                    one["score"] = reference["avg_jct_s"] / run["avg_jct_s"]
            except Exception as error:  # whatever a candidate does
                one["error"] = f"{type(error).__name__}: {error}"
            results.append(one)
    return Scores(chosen.name, baseline, results)
