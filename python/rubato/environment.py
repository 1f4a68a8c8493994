"""The simulator as an environment for reinforcement learning, in the form of Gymnasium's Env (which it does not need).

    env = rubato.Environment("jobs.csv", cluster="8x8")
    question, info = env.reset(seed=1)
    done = False
    while not done:
        gpus = my_agent(question.now, question.jobs, question.cluster)     # an array with an element for each job
        question, reward, done, truncated, info = env.step(gpus)
    info["summary"]["avg_jct_s"]
"""

import json
from typing import Any, Callable, Dict, Optional, Tuple, Union

from rubato.policy import Decision, Policy, Question, Server, _Connection
from rubato.simulation import Path, Program, Trace, simulation_flags

Reward = Callable[[Question, Optional[Question]], float]


def job_seconds(before: Question, after: Optional[Question]) -> float:
    """The default reward: minus the time that all jobs have spent in the system since the last decision, in hours. Its
    sum over an episode falls with the average completion time. At the end, nothing is left to wait for."""
    return 0.0 if after is None else -len(before.jobs) * (after.now - before.now) / 3600


class _Agent(Policy):
    def __init__(self, elastic: bool):
        self.elastic = elastic

    @property
    def name(self) -> str:
        return "agent"


class Environment:
    """An episode is one simulation of the trace. An observation is a Question: `now`, `jobs` and `cluster`, as
    Policy.decide() gets them. It is valid until the next step. An action is what Policy.decide() returns.

    trace       a file, a Trace, or a function that makes one from the seed of reset(), so that episodes differ
    elastic     the agent chooses how many GPUs a job gets
    reward      a function of the questions before and after; None after the last one
    options     flags of `rubato simulate`
    """

    def __init__(self, trace: Union[Path, Trace, Callable[[int], Union[Path, Trace]]], *, cluster: str,
                 elastic: bool = False, reward: Reward = job_seconds, program: str = "rubato", **options: Any):
        self._trace, self._cluster, self._elastic, self._reward = trace, cluster, elastic, reward
        self._program_name, self._options = program, options
        self._server: Optional[Server] = None
        self._program: Optional[Program] = None
        self._connection: Optional[_Connection] = None
        self._question: Optional[Question] = None

    def reset(self, *, seed: int = 1, options: Optional[Dict[str, Any]] = None) -> Tuple[Question, Dict[str, Any]]:
        """Begins an episode. Returns the first question. `options` replace those of the constructor."""
        self.close()
        trace = self._trace(seed) if callable(self._trace) else self._trace
        self._server = Server([_Agent(self._elastic)])
        self._program = Program([self._program_name, "simulate",
                                 *simulation_flags(trace, self._cluster, seed, {**self._options, **(options or {})}),
                                 "--json", "--policy-socket", self._server.paths[0]])
        for connection in self._server.connections(self._program.process):
            question = connection.question()
            if question is not None:
                self._connection, self._question = connection, question
                return question, {}
            self._server.forget(connection)  # it only asked for the name
        self._program.output()  # raises what was wrong
        raise RuntimeError("the simulation asked nothing")

    def step(self, action: Union[Decision, Any]) -> Tuple[Optional[Question], float, bool, bool, Dict[str, Any]]:
        """Decides. Returns the next question, the reward, whether the episode is over, False (nothing is cut short), and
        at the end {"summary": ...}. After the end, the question is None."""
        if self._connection is None or self._question is None or self._program is None:
            raise RuntimeError("call reset() first")
        before = self._question
        counted = _Counted(before)  # its memory belongs to the next question soon
        self._connection.answer(before, action)
        self._question = self._connection.question()
        reward = self._reward(counted, self._question)  # type: ignore[arg-type]
        if self._question is not None:
            return self._question, reward, False, False, {}
        summary = json.loads(self._program.output())["runs"][0]
        self.close()
        return None, reward, True, False, {"summary": summary}

    def close(self) -> None:
        """Ends the episode, if there is one."""
        if self._program is not None:
            self._program.__exit__()
        if self._server is not None:
            self._server.__exit__()
        self._server = self._program = self._connection = self._question = None

    def __enter__(self) -> "Environment":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Counted:
    """What the reward may know of the question before."""

    def __init__(self, question: Question):
        self.now = question.now
        self.jobs = range(len(question.jobs))
