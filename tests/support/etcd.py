"""Clusters of real etcd for tests: one to five members on 127.0.0.1, which a test may kill, freeze and start again.

    with Etcd(members=3) as etcd:
        engine = open_engine(etcd.endpoints)            # ["127.0.0.1:40001", ...]; etcd.store is the URL of --store
        etcd.members[etcd.leader()].freeze()

The program is the one that $ETCD names, else `etcd` in PATH, else what `make etcd` unpacked into build/etcd. Where
there is none, tests with the marker `etcd` are left out, with a line. `make etcd-new` builds a newer release, which
`ETCD=build/etcd-new/etcd` chooses.

A member's ports are its own as long as the cluster lives, also while the member is dead. Data are in a temporary
folder, which `close` removes. Flags that a test wants beside these (a small quota, an early snapshot) are `arguments`.

House rule: only processes that this module started get signals, by pid; none outlives `close`.
"""

from __future__ import annotations

import atexit
import base64
import json
import os
import shutil
import signal
import ssl
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests.support.patience import WITHIN_S
from tests.support.ports import reserved_port
from tests.support.started import Started
from tests.support.tenure import wait_until

if TYPE_CHECKING:
    from tests.support.certificates import Certificates

ROOT = Path(__file__).resolve().parents[2]
UNPACKED = ROOT / "build" / "etcd" / "usr" / "bin"
"""Where `make etcd` puts Debian's programs."""
NEW = ROOT / "build" / "etcd-new"
"""Where `make etcd-new` puts a release of today."""
MISSING = "no etcd is here (run `make etcd`, or install it; Debian: apt-get install etcd-server etcd-client)"
ASK_WITHIN_S = 5.0
"""One request to a member may take that long; a frozen member never answers."""


class EtcdError(Exception):
    """A member did not start, or refused a request; the text has its answer or the end of its output."""


def program(name: str = "etcd") -> str | None:
    """The path of `etcd`, or of a tool that comes with it (etcdctl, etcdutl); None if it isn't here."""
    if chosen := os.environ.get("ETCD"):
        beside = Path(chosen).resolve().with_name(name)
        return str(beside) if beside.exists() else None
    unpacked = UNPACKED / name
    return shutil.which(name) or (str(unpacked) if unpacked.exists() else None)


def stands_still(pid: int) -> bool:
    """Whether no thread of a process runs, after a SIGSTOP."""
    stats = [each.read_text() for each in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)


class Member:
    """One process of the cluster, on its own ports and data.

    endpoint: HOST:PORT for clients. log: the file of its output, all starts.
    """

    def __init__(self, number: int, folder: Path, scheme: str) -> None:
        self.name = f"m{number}"
        self.folder = folder / self.name
        self.log = folder / f"{self.name}.log"
        self.scheme = scheme
        self._ports = [reserved_port(), reserved_port()]
        self.endpoint, self.peer = (f"127.0.0.1:{held.getsockname()[1]}" for held in self._ports)
        self._process: subprocess.Popen[bytes] | None = None
        self._command: list[str] = []

    @property
    def pid(self) -> int:
        """The running process's id."""
        assert self._process is not None, "not running"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process is there, frozen or not."""
        return self._process is not None and self._process.poll() is None

    def launch(self, command: Sequence[str] = ()) -> None:
        """Start the process, and return at once; without a command, as it was started before."""
        assert not self.is_running, "already running"
        self._command = list(command) or self._command
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # Debian's unit file is not used, but a shell may have its variables.
                env={name: value for name, value in os.environ.items() if not name.startswith("ETCD")},
            )
        atexit.register(self.kill)

    def kill(self) -> None:
        """End the process with SIGKILL, frozen or not, and wait for its end."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the process with SIGTERM, as a rolling restart does: a leader hands its office over first."""
        self._end(signal.SIGTERM)

    def freeze(self) -> None:
        """SIGSTOP: its connections stay open, and nobody answers on them. Returns when no thread of it runs."""
        assert self._process is not None, "not running"
        self._process.send_signal(signal.SIGSTOP)
        wait_until(lambda: stands_still(self.pid), "the member stands still", WITHIN_S)

    def thaw(self) -> None:
        """SIGCONT."""
        assert self._process is not None, "not running"
        self._process.send_signal(signal.SIGCONT)

    def ask(self, path: str, body: dict[str, Any], context: ssl.SSLContext | None = None) -> dict[str, Any]:
        """The answer of etcd's HTTP gateway, at paths such as /v3/maintenance/status.

        Raises EtcdError if the member refuses, OSError if it doesn't answer.
        """
        request = urllib.request.Request(f"{self.scheme}://{self.endpoint}{path}", json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=ASK_WITHIN_S, context=context) as response:
                answer: dict[str, Any] = json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                raise EtcdError(f"{path}: {error.read().decode(errors='replace')}") from None
        return answer

    def tail(self) -> str:
        """The end of its output."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:]) if self.log.exists() else ""

    def close(self) -> None:
        """End the process and give up its ports."""
        self.kill()
        for held in self._ports:
            held.close()

    def _end(self, signal_number: signal.Signals) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal_number)
        try:
            self._process.wait(WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
        atexit.unregister(self.kill)


class Etcd(Started):
    """A cluster; see the module.

    members: its processes, by number from 0. arguments: more flags of each member.
    certificates: members speak TLS to clients with these files, and trust the clients of the same CA.
    """

    def __init__(
        self, members: int = 1, *, arguments: Sequence[str] = (), certificates: Certificates | None = None
    ) -> None:
        found = program()
        if found is None:
            raise EtcdError(MISSING)
        self.folder = Path(tempfile.mkdtemp(prefix="etcd-"))
        self._context = _context(certificates)
        scheme = "http" if certificates is None else "https"
        self.members = [Member(number, self.folder, scheme) for number in range(members)]
        self.arguments = [*_tls(certificates), *arguments]
        self._program = found

    @property
    def endpoints(self) -> list[str]:
        """HOST:PORT of each member, for clients."""
        return [member.endpoint for member in self.members]

    @property
    def store(self) -> str:
        """The value of `--store`."""
        return f"etcd://{','.join(self.endpoints)}"

    def start(self) -> Self:
        """Start all members with new data, and wait until each answers a linearizable read."""
        for member in self.members:
            member.launch(self.command(member))
        for number in range(len(self.members)):
            self.wait_for(number)
        return self

    def command(self, member: Member, state: str = "new") -> list[str]:
        """The command line of a member; a test that restores a snapshot starts it itself."""
        client = f"{member.scheme}://{member.endpoint}"
        return [
            self._program,
            *("--name", member.name),
            *("--data-dir", str(member.folder)),
            *("--listen-client-urls", client),
            *("--advertise-client-urls", client),
            *("--listen-peer-urls", f"http://{member.peer}"),
            *("--initial-advertise-peer-urls", f"http://{member.peer}"),
            *("--initial-cluster", self._initial_cluster()),
            *("--initial-cluster-state", state),
            *("--initial-cluster-token", self.folder.name),
            *self.arguments,
        ]

    def restart(self, number: int) -> None:
        """Start a dead member on its data and ports; wait until it answers, if a majority of members runs."""
        self.members[number].launch()
        running = sum(member.is_running for member in self.members)
        if 2 * running > len(self.members):
            self.wait_for(number)

    def wait_for(self, number: int) -> None:
        """Wait until this member answers a linearizable read: it has joined, and there is a leader."""
        member = self.members[number]

        def answers() -> bool:
            if not member.is_running:
                raise EtcdError(f"{member.name} ended\n{member.tail()}")
            with suppress(EtcdError, OSError):
                self.ask("/v3/kv/range", {"key": _base64("readiness")}, number)
                return True
            return False

        try:
            wait_until(answers, f"etcd {member.name}", WITHIN_S)
        except TimeoutError as error:
            raise EtcdError(f"{error}\n{member.tail()}") from None

    def ask(self, path: str, body: dict[str, Any], number: int = 0) -> dict[str, Any]:
        """See Member.ask. Keys and values are base64, numbers are text."""
        return self.members[number].ask(path, body, self._context)

    def enable_users(self, user: str, password: str, prefix: str) -> None:
        """Switch users on: root, and one that may read and write the keys with a prefix, and nothing else.

        From then on `ask` gets no answer about keys.
        """
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        permission = {"permType": "READWRITE", "key": _base64(prefix), "range_end": _base64(end)}
        for path, body in (
            ("user/add", {"name": "root", "password": "of-root"}),
            ("role/add", {"name": "root"}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("user/add", {"name": user, "password": password}),
            ("role/add", {"name": user}),
            ("role/grant", {"name": user, "perm": permission}),
            ("user/grant", {"user": user, "role": user}),
            ("enable", {}),
        ):
            self.ask(f"/v3/auth/{path}", body)

    def add_user(self, name: str) -> None:
        """Add one more user, once users are on."""
        self._ctl("--user=root:of-root", "user", "add", f"{name}:of-{name}")

    def leader(self) -> int:
        """The number of the leader, as a majority sees it; waits while there is none."""

        def found() -> int | None:
            votes: dict[str, int] = {}
            ids: dict[str, int] = {}
            for number, member in enumerate(self.members):
                if not member.is_running:
                    continue
                with suppress(EtcdError, OSError):
                    status = self.ask("/v3/maintenance/status", {}, number)
                    ids[status["header"]["member_id"]] = number
                    leader = status.get("leader", "")  # left out while a member knows none
                    votes[leader] = votes.get(leader, 0) + 1
            agreed = [each for each, count in votes.items() if each and 2 * count > len(self.members)]
            return ids.get(agreed[0]) if agreed else None

        # 0 is a member too, and `wait_until` takes it for a result.
        return next(iter(wait_until(lambda: None if (it := found()) is None else [it], "a leader", WITHIN_S)))

    def values(self, prefix: str, number: int = 0) -> dict[str, bytes]:
        """All keys that begin with the prefix, and their values, by a linearizable read.

        It asks again while there is no leader, or a disk is slow.
        """
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        refused: list[object] = []

        def read() -> dict[str, Any] | None:
            try:
                return self.ask("/v3/kv/range", {"key": _base64(prefix), "range_end": _base64(end)}, number)
            except (EtcdError, OSError) as error:
                refused[:] = [error]
                return None

        try:
            answer = wait_until(read, f"the keys {prefix}", WITHIN_S)
        except TimeoutError as error:
            raise EtcdError(f"{error}: {refused}") from None
        return {
            base64.b64decode(each["key"]).decode(errors="surrogateescape"): base64.b64decode(each.get("value", ""))
            for each in answer.get("kvs", [])
        }

    def save_snapshot(self, file: Path) -> None:
        """Save what the first member has."""
        self._ctl("snapshot", "save", str(file))

    def _ctl(self, *arguments: str) -> None:
        _run("etcdctl", f"--endpoints={self.members[0].endpoint}", *arguments)

    def restore_snapshot(self, file: Path) -> None:
        """End all members, give each the state of a snapshot in place of its data, and start them again."""
        for member in self.members:
            member.kill()
        newer = program("etcdutl")
        tool = "etcdctl" if newer is None else "etcdutl"
        bump: list[str] = []
        if "--bump-revision" in _run(tool, "snapshot", "restore", "--help"):
            bump = ["--bump-revision", "1000000000", "--mark-compacted"]
        for member in self.members:
            shutil.rmtree(member.folder)
            _run(
                *(tool, "snapshot", "restore", str(file), *bump),
                *("--data-dir", str(member.folder), "--name", member.name),
                *("--initial-cluster", self._initial_cluster()),
                *("--initial-advertise-peer-urls", f"http://{member.peer}"),
                *("--initial-cluster-token", self.folder.name),
            )
            member.launch()
        for number in range(len(self.members)):
            self.wait_for(number)

    def _initial_cluster(self) -> str:
        return ",".join(f"{each.name}=http://{each.peer}" for each in self.members)

    def close(self) -> None:
        """End all members, and remove their data."""
        for member in self.members:
            member.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _run(name: str, *arguments: str) -> str:
    """Run a tool that comes with etcd; returns what it printed."""
    path = program(name)
    if path is None:
        raise EtcdError(f"{name}: {MISSING}")
    done = subprocess.run(
        [path, *arguments], env={"ETCDCTL_API": "3"}, capture_output=True, text=True, timeout=WITHIN_S, check=False
    )
    if done.returncode:
        raise EtcdError(f"{name} {' '.join(arguments)}: {done.stderr}")
    return done.stdout


def _tls(certificates: Certificates | None) -> list[str]:
    if certificates is None:
        return []
    server = str(certificates.server)
    return [
        *("--cert-file", server),
        *("--key-file", server),
        *("--trusted-ca-file", str(certificates.ca)),
        "--client-cert-auth",
    ]


def _context(certificates: Certificates | None) -> ssl.SSLContext | None:
    if certificates is None:
        return None
    context = ssl.create_default_context(cafile=str(certificates.ca))
    context.load_cert_chain(certificates.client)
    return context


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
