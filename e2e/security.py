#!/usr/bin/env python3
"""Tests who may do and see what on a live cluster, with real daemons, users and connections.

    e2e/security.py BUILD [SCENARIO...]     all scenarios by default; exit 1 if anything does not hold

As root it acts as two users that exist on every machine, through setpriv. It creates no users. Without
root, checks that need root are skipped, with a message.
"""

import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import pwd
import re
import secrets
import shutil
import signal
import stat
import subprocess
import time

from live import PATIENCE, Cluster, await_true, main, require

ONE, OTHER = "nobody", "daemon"  # two users with few rights
ADDRESS_FILE, TOKEN_FILE = "api.address", "admin.token"


def needs_root():
    """Why the jobs of other users cannot be tested here; or None."""
    if os.geteuid() != 0:
        return "skipped: only root can act as other users"
    if not shutil.which("setpriv"):
        return "skipped: there is no setpriv"
    for name in (ONE, OTHER):
        try:
            pwd.getpwnam(name)
        except KeyError:
            return f"skipped: there is no user {name}"
    return None


def as_user(name):
    """The prefix that runs a command as this user."""
    user = pwd.getpwnam(name)
    return ["setpriv", "--reuid", str(user.pw_uid), "--regid", str(user.pw_gid), "--clear-groups"]


def mode(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


class Guarded(Cluster):
    """A daemon in a public directory, so that other users can reach it."""

    def __init__(self, build, *flags):
        super().__init__(build, "fifo-backfill", *flags)
        os.chmod(self.directory, 0o711)
        # Other users may not be able to enter the build directory.
        self.rubato = shutil.copy(self.rubato, self.directory / "rubato")
        os.chmod(self.rubato, 0o755)
        self.homes = {}

    def home(self, user):
        """A private directory of the user."""
        if user not in self.homes:
            path = self.directory / f"of-{user}"
            path.mkdir(mode=0o700)
            os.chown(path, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
            self.homes[user] = path
        return self.homes[user]

    def run_as(self, user, *args, check=True):
        """Runs the command line as this user, through the unix socket."""
        command = [*as_user(user), self.rubato, *map(str, args)]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True,
                              cwd=self.home(user), timeout=PATIENCE)
        require(not check or done.returncode == 0,
                f"as {user}, {' '.join(map(str, args))}: exit {done.returncode}\n"
                f"{done.stdout}{done.stderr}")
        return done

    def ask_as(self, user, *args):
        return json.loads(self.run_as(user, args[0], "--json", *args[1:]).stdout)

    def submit_as(self, user, name, script, *flags):
        return self.ask_as(user, "submit", "--name", name, "--gpus", "1", *flags, "--", "/bin/sh",
                           "-c", script)["id"]

    def lines(self, job):
        """What the job's program has printed, without the worker's number."""
        try:
            text = (self.job_directory(job) / "log").read_text()
        except FileNotFoundError:  # it has not started
            return []
        return [line.partition("] ")[2] for line in text.splitlines() if line.startswith("[")]

    def token_of(self, user):
        return json.loads(self.run("users", "add", "--json", user).stdout)["token"]

    # --- the network ---

    def connect(self):
        host, _, port = (self.state / ADDRESS_FILE).read_text().strip().rpartition(":")
        return http.client.HTTPConnection(host, int(port), timeout=PATIENCE)

    def admin_token(self):
        return (self.state / TOKEN_FILE).read_text().strip()

    def http(self, verb, path, token=None, body=None, headers=None, host="localhost"):
        """The status and text of an answer over TCP."""
        connection = self.connect()
        with contextlib.closing(connection):
            connection.putrequest(verb, path, skip_host=True)
            given = {"Host": host, **(headers or {})}
            if token is not None:
                given["Authorization"] = f"Bearer {token}"
            if body is not None:
                given.setdefault("Content-Type", "application/json")
                given.setdefault("Content-Length", str(len(body)))
            for name, value in given.items():
                connection.putheader(name, value)
            connection.endheaders(body.encode() if body is not None else None)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def watch(self, token):
        """An open stream of events."""
        connection = self.connect()
        connection.request("GET", "/v1/events", headers={"Authorization": f"Bearer {token}"})
        return connection.getresponse()


def events_until(stream, pattern):
    """The text of a stream up to the line that matches."""
    seen = []
    while True:
        line = stream.readline().decode()
        require(line, f"a stream of events ended before {pattern}")
        seen.append(line)
        if re.search(pattern, line):
            return "".join(seen)


def files_below(path):
    return [found for found in pathlib.Path(path).rglob("*")
            if found.is_file() and not found.is_symlink()]


def without(text, *names):
    """The answer without names of jobs, so that two answers can be compared."""
    for name in names:
        text = text.replace(str(name), "JOB")
    return text


# --- scenarios ---------------------------------------------------------------------------------------


def jobs_run_as_their_user(build):
    """A job has its user and groups, cannot gain privileges, inherits no descriptor, and owns its files."""
    if why := needs_root():
        return why
    with Guarded(build) as cluster:
        cluster.up()
        user = pwd.getpwnam(ONE)
        script = ("echo uid=$(id -u); echo gid=$(id -g); echo groups=$(id -G); "
                  "echo privileges=$(grep NoNewPrivs /proc/self/status | cut -f2); "
                  "echo capabilities=$(grep CapEff /proc/self/status | cut -f2); "
                  "for n in $(seq 0 255); do [ ! -e /proc/$$/fd/$n ] || open=\"$open $n\"; done; "
                  "echo open=${open# }; echo umask=$(umask); echo user=$USER; "
                  "echo ours=${RUBATO_STATE-none}; pwd; "
                  "echo weights > $RUBATO_CHECKPOINT/file; "
                  "while [ ! -e go ]; do sleep 0.1; done")
        job = cluster.submit_as(ONE, "who", script)
        directory = cluster.job_directory(job)
        await_true(lambda: (directory / "checkpoint" / "file").exists(), "the job to run")
        # A restarted daemon finds directories that others may enter.
        cluster.kill()
        cluster.up(first=False)
        (cluster.home(ONE) / "go").touch()
        cluster.await_state(job, "COMPLETED")
        groups = " ".join(map(str, os.getgrouplist(ONE, user.pw_gid)))
        expected = [f"uid={user.pw_uid}", f"gid={user.pw_gid}", f"groups={groups}", "privileges=1",
                    "capabilities=0000000000000000", "open=0 1 2", "umask=0022", f"user={ONE}",
                    "ours=none", str(cluster.home(ONE))]
        require(cluster.lines(job) == expected, f"{cluster.lines(job)} and not {expected}")
        for path in [directory, *directory.rglob("*")]:
            there = os.lstat(path)
            require(there.st_uid == user.pw_uid, f"{path} belongs to {there.st_uid}")
        for path in (directory, directory / "log", directory / "checkpoint",
                     directory / "launch.json"):
            require(mode(path) & 0o077 == 0, f"{path} has mode {mode(path):o}")
        # Without `directory`, a job runs in its user's home. This user has none.
        token = cluster.token_of(ONE)
        status, text = cluster.http("POST", "/v1/jobs", token, json.dumps(
            {"command": ["pwd"], "name": "where", "gpus": 1}))
        require(status == 201, f"{status} {text}")
        where = json.loads(text)["id"]
        cluster.await_state(where, "COMPLETED")
        require(len(cluster.lines(where)) == 1 and cluster.lines(where)[0] in ("/", user.pw_dir),
                f"{cluster.lines(where)}")
        cluster.stop()
        cluster.replays()
        return f"as {ONE}, also across a restart of the daemon"


def only_users_of_this_machine(build):
    """No job ever runs as another user: such jobs are refused at submission."""
    if why := needs_root():
        return why
    with Guarded(build) as cluster:
        cluster.up()
        body = json.dumps({"command": ["true"], "gpus": 1})
        stranger = cluster.token_of("no-such-user")
        status, text = cluster.http("POST", "/v1/jobs", stranger, body)
        require(status == 403 and "this machine has no user" in text, f"{status} {text}")
        status, text = cluster.http("GET", "/v1/jobs", stranger)
        require(status == 200, f"looking: {status} {text}")
        # The first admin is root. A normal user can neither take that name nor become root.
        done = cluster.run("users", "add", "root", check=False)
        require(done.returncode != 0, "there are two users root")
        status, text = cluster.http("POST", "/v1/jobs", cluster.admin_token(), json.dumps(
            {"command": ["id", "-u"], "gpus": 1}))
        require(status == 201, f"{status} {text}")
        job = json.loads(text)["id"]
        cluster.await_state(job, "COMPLETED")
        require(cluster.lines(job) == ["0"], f"{cluster.lines(job)}")
        status, text = cluster.http("DELETE", "/v1/users/root", cluster.admin_token())
        require(status == 200, f"{status} {text}")
        plain = cluster.token_of("root")
        status, text = cluster.http("POST", "/v1/jobs", plain, body)
        require(status == 403 and "root" in text, f"a plain user called root: {status} {text}")
        cluster.stop()
        return "strangers and a plain user called root refused"


def daemon_of_a_plain_user(build):
    """A daemon that does not run as root accepts only jobs of its own user, and says so."""
    if why := needs_root():
        return why
    with Guarded(build) as cluster:
        cluster.state = cluster.home(ONE) / "state"
        cluster.env["RUBATO_STATE"] = str(cluster.state)
        cluster.prefix = as_user(ONE)
        cluster.up()
        require(mode(cluster.state) == 0o700, f"its directory has mode {mode(cluster.state):o}")
        job = cluster.submit_as(ONE, "own", "id -u")
        cluster.await_state(job, "COMPLETED")
        require(cluster.lines(job) == [str(pwd.getpwnam(ONE).pw_uid)], f"{cluster.lines(job)}")
        done = cluster.run("submit", "--gpus", "1", "--", "true", check=False)
        require(done.returncode == 5 and f"runs jobs of \"{ONE}\" alone" in done.stderr,
                f"root submits: exit {done.returncode} {done.stderr}")
        status, text = cluster.http("POST", "/v1/jobs", cluster.token_of(OTHER),
                                    '{"command": ["true"]}')
        require(status == 403 and "started by root" in text, f"{status} {text}")
        cluster.stop()
        return "others refused with a sentence"


def users_do_not_see_each_other(build):
    """Users see no other user's job (by id, by name, in lists, events, history, metrics), and cannot change it."""
    if why := needs_root():
        return why
    with Guarded(build) as cluster:
        cluster.up()
        tokens = {user: cluster.token_of(user) for user in (ONE, OTHER)}
        streams = {user: cluster.watch(tokens[user]) for user in tokens}
        go = cluster.home(ONE) / "go"
        hidden = cluster.submit_as(ONE, "hidden", "while [ ! -e go ]; do sleep 0.1; done")
        cluster.await_state(hidden, "RUNNING")
        require([job["id"] for job in cluster.ask_as(ONE, "ls")["jobs"]] == [hidden],
                "its owner does not see it")
        require(cluster.ask_as(OTHER, "ls", "--all")["jobs"] == [], "another sees it in the list")
        asked = cluster.ask_as(OTHER, "ls", "--all", "-u", ONE)["jobs"]
        require(asked == [], "another sees it by asking for its owner")
        for there, absent in ((hidden, 999), ("hidden", "absent")):
            for command, *more in (["status"], ["cancel"], ["hold"], ["release"], ["resize", "2"],
                                   ["logs"], ["explain"], ["history"]):
                one = cluster.run_as(OTHER, command, there, *more, check=False)
                none = cluster.run_as(OTHER, command, absent, *more, check=False)
                require(one.returncode == none.returncode == 3,
                        f"{command} {there}: exit {one.returncode} and {none.returncode}")
                require(without(one.stdout + one.stderr, there) ==
                        without(none.stdout + none.stderr, absent),
                        f"{command}: {one.stderr} differs from {none.stderr}")
            for verb, path, body in (("GET", "", None), ("DELETE", "", None),
                                     ("POST", "/hold", ""), ("POST", "/release", ""),
                                     ("POST", "/resize", '{"gpus": 2}'), ("GET", "/explain", None),
                                     ("GET", "/log", None)):
                answers = [cluster.http(verb, f"/v1/jobs/{job}{path}", tokens[OTHER], body)
                           for job in (there, absent)]
                require(answers[0][0] == answers[1][0] == 404, f"{verb} {path}: {answers}")
                require(without(answers[0][1], there) == without(answers[1][1], absent),
                        f"{verb} {path}: {answers}")
        require(cluster.job(hidden)["state"] == "RUNNING", "another has changed it")
        own = cluster.http("GET", "/metrics", tokens[ONE])[1]
        others = cluster.http("GET", "/metrics", tokens[OTHER])[1]
        admins = cluster.http("GET", "/metrics", cluster.admin_token())[1]
        require(f'user="{ONE}"' in own and f'user="{ONE}"' in admins, "no share of its owner")
        require(ONE not in others and "hidden" not in others, "metrics tell another")
        go.touch()
        cluster.await_state(hidden, "COMPLETED")
        seen = events_until(streams[ONE], r'"COMPLETED"')
        require('"hidden"' in seen, "its owner is told nothing")
        mine = cluster.submit_as(OTHER, "mine", "true")
        cluster.await_state(mine, "COMPLETED")
        told = events_until(streams[OTHER], r'"COMPLETED"')
        require('"mine"' in told, "events of one's own are missing")
        require("hidden" not in told and ONE not in told, f"events tell another: {told}")
        past = cluster.run_as(OTHER, "history", "--json").stdout
        require("hidden" not in past and ONE not in past and "mine" in past,
                f"the history tells another: {past}")
        for command in (["users", "list"], ["users", "add", "x"], ["drain", "0"],
                        ["policy", "srtf"]):
            done = cluster.run_as(OTHER, *command, check=False)
            require(done.returncode == 5, f"{command} as a plain user: exit {done.returncode}")
        cluster.stop()
        return "ids, names, lists, events, history and metrics"


def files_are_private(build):
    """Users can reach the daemon's socket and their own jobs, and see nothing else of its directory."""
    with Guarded(build) as cluster:
        cluster.up()
        cluster.ask("submit", "--gpus", "1", "--name", "one", "--", "true")
        job = cluster.jobs()[0]["id"]
        cluster.await_state(job, "COMPLETED")
        passable = 0o711 if os.geteuid() == 0 else 0o700
        for path in (cluster.state, cluster.state / "jobs"):
            require(mode(path) == passable, f"{path} has mode {mode(path):o}")
        for path in cluster.state.rglob("*"):
            if path in (cluster.state / "jobs", cluster.state / "api.sock") or path.is_symlink():
                continue
            inside = cluster.job_directory(job) in path.parents
            require(inside or mode(path) & 0o077 == 0, f"{path} has mode {mode(path):o}")
        require(mode(cluster.state / TOKEN_FILE) == 0o600, "the token of the admin is not private")
        token = cluster.admin_token().encode()
        users = json.loads(cluster.run("users", "list", "--json").stdout)["users"]
        [digest] = users[0]["tokens"]  # the beginning of its hash
        cluster.stop()
        stored = [path for path in files_below(cluster.state) if digest.encode() in path.read_bytes()]
        require(any("journal" in path.name for path in stored), "no hash of it is stored")
        for path in files_below(cluster.directory):
            require(path.name == TOKEN_FILE or token not in path.read_bytes(),
                    f"the token is in {path}")
        if not (why := needs_root()):
            for path in (cluster.state, cluster.state / "jobs", cluster.state / "journal.sqlite",
                         cluster.state / TOKEN_FILE, cluster.state / "nodes",
                         cluster.job_directory(job)):
                done = subprocess.run([*as_user(ONE), "test", "-r", str(path)])
                require(done.returncode != 0, f"{ONE} can read {path}")
        return "tokens are stored as hashes alone" + (f"; the rest {why}" if why else "")


def unless_too_often(answer):
    return answer if answer[0] != 429 else None


def every_verb_needs_a_token(build):
    """Over the network: no token, a bad token, other host names, pages in a browser, too many requests."""
    with Guarded(build) as cluster:
        cluster.up()
        admin = cluster.admin_token()
        routes = 0
        path = ""
        for line in (pathlib.Path(__file__).parent / "../docs/openapi.yaml").read_text().splitlines():
            if found := re.fullmatch(r"  (/\S*):", line):
                path = re.sub(r"\{\w+\}", "1", found[1])
            if not (found := re.fullmatch(r"    (get|post|put|delete|patch):", line)):
                continue
            verb = found[1].upper()
            if path == "/healthz":
                require(cluster.http(verb, path) == (200, "ok\n"), "/healthz says more than ok")
                continue
            if path.startswith("/assets/") or path == "/":  # the page's files, which are the same for all
                continue
            body = "{}" if verb in ("POST", "PUT") else None
            if (verb, path) == ("POST", "/v1/page/session"):  # the code in it is what counts
                body = '{"code": "wrong"}'
            for token in (None, "rub_" + secrets.token_urlsafe(32), admin[:-1], ""):
                # Requests without a valid token have a common rate limit. Beyond it, the answer is 429.
                status, text = await_true(lambda: unless_too_often(cluster.http(verb, path, token, body)),
                                          "an answer that is not 429")
                require(status == 401 and "error" in text, f"{verb} {path}: {status} {text}")
            routes += 1
        require(routes > 15, f"{routes} routes in openapi.yaml")
        require(cluster.http("GET", "/v1/jobs", admin)[0] == 200, "the admin's own token")
        for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", ""):
            status, _ = cluster.http("GET", "/v1/jobs", admin, host=host)
            require(status in (400, 403), f"Host {host}: {status}")
        for origin in ("http://evil.example", "null", "http://localhost:1", "https://localhost"):
            status, _ = cluster.http("GET", "/v1/jobs", admin, headers={"Origin": origin})
            require(status == 403, f"Origin {origin}: {status}")
        status, text = cluster.http("POST", "/v1/jobs", admin, json.dumps(
            {"command": ["true"], "user": "root"}))
        require(400 <= status < 500 and "user cannot be given" in text, f"{status} {text}")
        status, text = cluster.http("POST", "/v1/jobs", admin, headers={
            "Content-Type": "application/json", "Content-Length": str(2 << 20)})
        require(status == 413, f"a body that is too large: {status} {text}")
        deep = '{"command": ["true"], "env": ' + "[" * 100 + "]" * 100 + "}"
        status, text = cluster.http("POST", "/v1/jobs", admin, deep)
        require(status == 422 and "nested" in text, f"a job that is too deep: {status} {text}")
        status, text = cluster.http("POST", "/v1/users", admin, '{"name": ' + deep + "}")
        require(status == 400 and "nested" in text, f"a body that is too deep: {status} {text}")
        status, _ = cluster.http("GET", "/v1/jobs", admin, headers={"X-Long": "x" * 20000})
        require(status == 431, f"a head that is too long: {status}")
        require(cluster.jobs() == [], "something of that became a job")
        # A revoked token no longer works.
        token = cluster.token_of("guest")
        require(cluster.http("GET", "/v1/jobs", token)[0] == 200, "a new token")
        cluster.run("users", "remove", "guest")
        require(cluster.http("GET", "/v1/jobs", token)[0] == 401, "a token of nobody")
        cluster.stop()
        return f"{routes} routes"


def loopback_only(build):
    """The daemon refuses addresses that other machines can reach, unless a flag allows them."""
    with Guarded(build) as cluster:
        for address in ("0.0.0.0:0", "[::]:0"):
            done = cluster.run("up", *cluster.flags, "--listen", address, check=False)
            require(done.returncode == 2 and "loopback" in done.stderr,
                    f"{address}: exit {done.returncode} {done.stderr}")
        require(not cluster.state.exists(), "it began something all the same")
        cluster.flags += ["--listen", "0.0.0.0:0", "--beyond-loopback", "rubato.example"]
        cluster.up()
        token = cluster.admin_token()
        require(cluster.http("GET", "/v1/jobs", token, host="rubato.example:80")[0] == 200,
                "its name")
        require(cluster.http("GET", "/v1/jobs", token, host="evil.example")[0] == 403, "another")
        require(cluster.http("GET", "/v1/jobs", host="rubato.example")[0] == 401, "no token")
        cluster.stop()
        return "refused unless told"


def secrets_leave_no_trace(build):
    """A secret reaches only its job. Nobody else can read it, also after the master was killed."""
    with Guarded(build) as cluster:
        cluster.up()
        user = pwd.getpwuid(os.geteuid()).pw_name if needs_root() else ONE
        submit = cluster.submit_as if not needs_root() else (
            lambda _, name, script, *flags: cluster.ask(
                "submit", "--name", name, "--gpus", "1", "--directory", str(cluster.home(user)),
                *flags, "--", "/bin/sh", "-c", script)["id"])
        content = secrets.token_hex(32)
        file = cluster.home(user) / "key"
        file.write_text(content)
        file.chmod(0o600)
        os.chown(file, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
        stream = cluster.watch(cluster.admin_token())
        script = ("sha256sum < $KEY; echo mode=$(stat -Lc %a $KEY) in=$(stat -c %a ${KEY%/*}); "
                  "while [ ! -e go ]; do sleep 0.1; done")
        jobs = [submit(user, name, script, "--secret", f"KEY={file}") for name in ("ends", "dies")]
        expected = [hashlib.sha256(content.encode()).hexdigest() + "  -", "mode=600 in=700"]
        for job in jobs:
            cluster.await_state(job, "RUNNING")
            await_true(lambda: cluster.lines(job) == expected, "the secret to arrive")
        copies = [(cluster.job_directory(job) / "secrets").resolve() for job in jobs]
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            for name in ("cmdline", "environ"):
                with contextlib.suppress(OSError):
                    require(content.encode() not in (entry / name).read_bytes(),
                            f"the secret is in {entry / name}")
        os.kill(cluster.master(jobs[1]), signal.SIGKILL)
        await_true(lambda: not copies[1].exists(), "the secret of the dead master to go")
        (cluster.home(user) / "go").touch()
        cluster.await_state(jobs[0], "COMPLETED")
        cluster.await_state(jobs[1], "COMPLETED", "FAILED")
        for directory in copies:
            require(not directory.exists(), f"{directory} was left")
        told = events_until(stream, r'"ends".*"COMPLETED"|"COMPLETED".*"ends"')
        shown = told + cluster.run("history", "--json").stdout + "".join(
            cluster.run("status", "--json", job).stdout for job in jobs)
        require(content not in shown, "the secret is shown")
        cluster.stop()
        for path in files_below(cluster.directory):
            require(path == file or content.encode() not in path.read_bytes(),
                    f"the secret is in {path}")
        return f"as {user}"


def words_and_logs(build):
    """No shell interprets a command, and a job that prints without end does not fill the disk."""
    limit = 64 << 10
    with Guarded(build, "--log-limit", "64K") as cluster:
        cluster.up()
        words = ["a;b", "$(id)", "`id`", "$HOME", "x  y", "*", "|cat", "'\"", "&&", "> file", "\\"]
        verbatim = cluster.ask("submit", "--name", "words", "--gpus", "1", "--", "/usr/bin/printf",
                               "%s\\n", *words)["id"]
        cluster.await_state(verbatim, "COMPLETED")
        require(cluster.lines(verbatim) == words, f"{cluster.lines(verbatim)}")
        script = f"yes {'x' * 90} | head -c {100 * limit}; echo; echo the end"
        talks = cluster.ask("submit", "--name", "talks", "--gpus", "1", "--", "/bin/sh", "-c",
                            script)["id"]
        largest = 0
        while cluster.job(talks)["state"] not in ("COMPLETED", "FAILED"):
            with contextlib.suppress(FileNotFoundError):
                largest = max(largest, (cluster.job_directory(talks) / "log").stat().st_size)
            time.sleep(0.05)
        cluster.await_state(talks, "COMPLETED")
        largest = max(largest, (cluster.job_directory(talks) / "log").stat().st_size)
        require(largest <= limit, f"its log has {largest} bytes")
        require(cluster.lines(talks)[-1] == "the end", "the newest lines were dropped")
        require("older lines were dropped" in (cluster.job_directory(talks) / "log").read_text(),
                "nothing says that lines were dropped")
        cluster.stop()
        return f"{100 * limit} bytes printed, at most {largest} kept"


SCENARIOS = [jobs_run_as_their_user, only_users_of_this_machine, daemon_of_a_plain_user,
             users_do_not_see_each_other, files_are_private, every_verb_needs_a_token,
             loopback_only, secrets_leave_no_trace, words_and_logs]

if __name__ == "__main__":
    main(SCENARIOS, "security")
