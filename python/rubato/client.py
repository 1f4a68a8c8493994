"""Jobs of a cluster, from Python. It runs the program `rubato` and reads its JSON, so answers and errors are those of
the command line.

    client = rubato.Client()
    job = client.submit(["python3", "train.py"], name="pearl", deadline="+2h", work="epochs=90", gpus="1:8")
    print(client.promise(job), client.explain(job))
    client.wait(job)
"""

import json
import os
import subprocess
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Union

Job = Union[int, str]  # its number or its name


class Error(Exception):
    """What the command line would have said. `code` is its exit code: 1 a job failed or was refused, 2 bad input,
    3 not found, 4 no daemon, 5 not allowed."""

    def __init__(self, message: str, code: int):
        super().__init__(message)
        self.code = code


class Client:
    """Asks the daemon. `state` and `server` are those of the command line; by default RUBATO_STATE and RUBATO_SERVER."""

    def __init__(self, *, program: str = "rubato", state: Optional[str] = None, server: Optional[str] = None,
                 token_file: Optional[str] = None):
        self._program = program
        self._connection: List[str] = []
        for flag, value in (("--state", state), ("--server", server), ("--token-file", token_file)):
            if value is not None:
                self._connection += [flag, os.fspath(value)]

    def _run(self, command: str, *arguments: str) -> str:
        try:
            done = subprocess.run([self._program, command, *self._connection, *arguments], check=False, text=True,
                                  capture_output=True, stdin=subprocess.DEVNULL)
        except FileNotFoundError:
            raise Error(f"{self._program} was not found: put it on the PATH, or say Client(program=...)", 2) from None
        if done.returncode != 0:
            said = done.stderr.strip() or done.stdout.strip()
            raise Error(said.removeprefix("rubato: "), done.returncode)
        return done.stdout

    def _ask(self, command: str, *arguments: str) -> Any:
        return json.loads(self._run(command, "--json", *arguments))

    def submit(self, command: Sequence[str], *, dry_run: bool = False, env: Optional[Mapping[str, str]] = None,
               **fields: Union[str, int, float]) -> Dict[str, Any]:
        """Submits a job and returns the daemon's answer; its number is answer["id"]. `fields` are the flags of
        `rubato submit`: name, deadline, work, gpus, batch, weight and so on. With `dry_run`, nothing is submitted: the
        answer says what would happen. A job whose deadline cannot be promised raises Error."""
        flags = ["--dry-run"] if dry_run else []
        for field, value in fields.items():
            flags += [f"--{field.replace('_', '-')}", str(value)]
        for variable, value in (env or {}).items():
            flags += ["--env", f"{variable}={value}"]
        answer: Dict[str, Any] = self._ask("submit", *flags, "--", *map(os.fspath, command))
        return answer

    def status(self, job: Job) -> Dict[str, Any]:
        """Everything about a job."""
        answer: Dict[str, Any] = self._ask("status", str(job))
        return answer

    def promise(self, job: Job) -> Optional[str]:
        """When the job was promised to be done, as a time in UTC. None: it was promised nothing, or not yet."""
        return self.status(job)["promised"] or None

    def explain(self, job: Job) -> str:
        """Why a job waits, or why it has the GPUs it has."""
        return self._run("explain", str(job)).strip()

    def resize(self, job: Job, count: Union[int, str]) -> None:
        """Changes how many GPUs a job may have: 4, "+1", "1:8". It trains on meanwhile."""
        self._run("resize", "--", str(job), str(count))

    def cancel(self, job: Job) -> None:
        self._run("cancel", str(job))

    def jobs(self) -> List[Dict[str, Any]]:
        jobs: List[Dict[str, Any]] = self._ask("ls", "--all")["jobs"]
        return jobs

    def what_if(self, policy: Union[str, Sequence[str]], *, since: str = "24h", until: Optional[str] = None,
                journal: Optional["os.PathLike[str]"] = None) -> Dict[str, Any]:
        """How the past of the cluster would have gone under these policies. "as-run" is the one that really ran. It
        changes nothing. With `journal`, the state directory of a daemon, no daemon needs to run."""
        policies = policy if isinstance(policy, str) else ",".join(policy)
        flags = ["--policy", policies, "--since", since]
        for flag, value in (("--until", until), ("--journal", journal)):
            if value is not None:
                flags += [flag, os.fspath(value)]
        answer: Dict[str, Any] = self._ask("whatif", *flags)
        return answer

    def logs(self, job: Job) -> str:
        """What the workers of a job have written so far."""
        return self._run("logs", str(job))

    def follow(self, job: Job) -> Iterator[str]:
        """The lines that the workers of a job write, until it has ended."""
        with subprocess.Popen([self._program, "logs", *self._connection, "--follow", str(job)], text=True,
                              stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            for line in process.stdout:
                yield line.rstrip("\n")

    def wait(self, job: Job) -> Dict[str, Any]:
        """Waits until the job has ended, and returns its status. Raises Error if it did not complete."""
        self._run("wait", str(job))
        return self.status(job)
