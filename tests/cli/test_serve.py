"""`tenure serve` as a process: the ready line, exit codes, settings from all sources, and its imports."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from importlib.metadata import packages_distributions
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from coordinator.cli.main import main
from coordinator.client.client import Client
from coordinator.client.groups import describe_groups
from coordinator.story.described import Group
from protocol.messages import MetadataRequest
from tests.support import preloaded
from tests.support.certificates import Certificates
from tests.support.forked import forked
from tests.support.patience import WITHIN_S
from tests.support.ports import refusing_port
from tests.support.raw import ask
from tests.support.scripted import Member, hang_up
from tests.support.tenure import READY_LINE, tenure_command, wait_until

COMMAND = [sys.executable, "-m", "coordinator.cli.main", "serve"]


def run(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Start a server that ends by itself."""
    return preloaded.run([*COMMAND, *arguments], env={**os.environ, **(environment or {})})


@contextmanager
def serving(
    folder: Path,
    *arguments: str,
    environment: dict[str, str] | None = None,
    program: Sequence[str] = COMMAND,
    start: Callable[..., subprocess.Popen[str]] = preloaded.popen,
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running server process, and its ready line."""
    with (folder / "log").open("w") as log:
        process = start(
            [*program, "--listen", "127.0.0.1:0", "--data-dir", str(folder / "data"), *arguments],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, **(environment or {})},
        )
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_that_it_is_ready_and_ends_on_a_signal(tmp_path: Path, signal_number: signal.Signals) -> None:
    """After one line on standard output the server answers requests, and the signal ends it with exit code 0."""
    with serving(tmp_path, "--set", "node.id=7", start=subprocess.Popen) as (process, line):
        match = READY_LINE.fullmatch(line.rstrip("\n"))
        assert match is not None
        assert (match["node"], match["data"]) == ("7", str(tmp_path / "data"))
        host, _, port = match["listen"].partition(":")
        assert host == "127.0.0.1"
        assert ask(int(port), MetadataRequest(topics=None), 1).brokers[0].node_id == 7
        process.send_signal(signal_number)
        rest, _ = process.communicate(timeout=WITHIN_S)
        assert (process.returncode, rest) == (0, "")


@pytest.mark.parametrize("arguments", [["--log-format", "text"], ["--log-format", "json"], ["--workers", "2"]])
def test_a_new_data_folder_is_said(tmp_path: Path, arguments: list[str]) -> None:
    """One log line names a data folder that is made or was empty, and none a folder that was in use."""

    def lines() -> list[str]:
        with serving(tmp_path, *arguments) as (process, ready):
            assert ready
            process.terminate()
            process.communicate(timeout=WITHIN_S)
        return [line for line in (tmp_path / "log").read_text().splitlines() if "data folder" in line]

    (line,) = lines()
    assert f"{tmp_path / 'data'} is a new data folder: no group is in it yet" in line
    assert lines() == []
    shutil.rmtree(tmp_path / "data")
    (tmp_path / "data").mkdir()
    assert len(lines()) == 1


def test_settings_come_from_everywhere(tmp_path: Path) -> None:
    """Settings from file, environment, --set and options reach the server; log lines are JSON on standard error."""
    (tmp_path / "server.properties").write_text("node.id=2\ntenure.topics=a:1\nnum.io.threads=8\n")
    environment = {"TENURE_TOPICS": "b:2", "KAFKA_NODE_ID": "5", "KAFKA_NUM_PARTITIONS": "3"}
    arguments = ["--config", str(tmp_path / "server.properties"), "--log-format", "json", "--set", "node.id=9"]
    with serving(tmp_path, *arguments, environment=environment) as (process, line):
        match = READY_LINE.fullmatch(line.rstrip("\n"))
        assert match is not None
        assert match["node"] == "9"
        answer = ask(int(match["listen"].partition(":")[2]), MetadataRequest(topics=None), 1)
        assert [topic.name for topic in answer.topics] == ["__consumer_offsets", "__rebalance_events", "b"]
        process.terminate()
        assert process.wait(WITHIN_S) == 0
    events = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert events[0]["event"] == "setting_ignored"
    assert "num.io.threads" in events[0]["message"]


def test_workers_are_one_server(tmp_path: Path) -> None:
    """One line has the addresses of all workers; SIGTERM to the supervisor ends them all."""
    with serving(tmp_path, "--workers", "3", "--http", "127.0.0.1:0", start=subprocess.Popen) as (process, line):
        match = READY_LINE.fullmatch(line.rstrip("\n"))
        assert match is not None
        assert (match["node"], match["data"]) == ("0,1,2", str(tmp_path / "data"))
        for address in match["listen"].split(","):
            answer = ask(int(address.partition(":")[2]), MetadataRequest(topics=[]), 1)
            assert [broker.node_id for broker in answer.brokers] == [0, 1, 2]
        process.terminate()
        rest, _ = process.communicate(timeout=WITHIN_S)
        assert (process.returncode, rest) == (0, "")


def test_two_servers_can_not_share_a_folder(tmp_path: Path) -> None:
    """The second server ends with exit code 2 and one line that names the folder; the first goes on."""
    with serving(tmp_path) as (process, line):
        assert READY_LINE.match(line)
        second = run("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"))
        assert second.returncode == 2
        assert len(second.stderr.splitlines()) == 1
        assert str(tmp_path / "data") in second.stderr
        assert process.poll() is None


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_folder_that_is_not_ours_is_refused(tmp_path: Path, workers: str) -> None:
    """The server refuses the folder with one line that names a file in it, and makes nothing."""
    (tmp_path / "server.jar").touch()
    ended = run("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path), "--workers", workers)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"tenure: --data-dir: {tmp_path} is no data folder and not empty, 'server.jar' is in it\n"
    assert [path.name for path in tmp_path.iterdir()] == ["server.jar"]


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--set", "group.max.size=many"], ["group.max.size", "'many' is not a whole number"]),
        (["--set", "group.max.sise=1"], ["group.max.sise", "perhaps group.max.size"]),
        (["--set", "group.max.size"], ["--set", "NAME=VALUE"]),
        (["--set", "authorizer.class.name=foo"], ["authorizer.class.name: 'foo' is none of org.apache.kafka."]),
        (["--listen", "nowhere"], ["--listen", "'nowhere' is not HOST:PORT"]),
        (["--listen", "9092"], ["--listen", "'9092' is not HOST:PORT, as in 127.0.0.1:9092"]),
        (["--listen", "127.0.0.1:99999"], ["--listen", "a port is at most 65535"]),
        (["--listen", "192.0.2.1:9092"], ["tenure: --listen: 192.0.2.1:9092: Cannot assign requested address"]),
        (["--listen", "no-such-host.invalid:9092"], ["--listen: no-such-host.invalid:9092: "]),
        (["--http", "192.0.2.1:80"], ["--http: 192.0.2.1:80 is not of the loopback: set tenure.http.token"]),
        (
            ["--http", "192.0.2.1:80", "--set", "tenure.http.token=t"],
            ["--http: 192.0.2.1:80: Cannot assign requested address"],
        ),
        (
            ["--set", "tenure.http=192.0.2.1:80", "--set", "tenure.http.token=t"],
            ["tenure.http: 192.0.2.1:80: Cannot assign requested address"],
        ),
        (["--log-format", "xml"], ["--log-format", "'xml'"]),
        (["--config", "no/such/file"], ["--config", "no/such/file"]),
        (["--data-dir", "/dev/null/data"], ["--data-dir: ", "/dev/null/data"]),
        (["--no-such-option"], ["--no-such-option"]),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    """The line on standard error names the mistake, and nothing starts."""
    given = ["serve", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"), *arguments]
    with forked(partial(ended_in_this_process, given)) as (code, out, err):
        assert (code, out) == (2, "")
        last = err.splitlines()[-1]
        assert all(word in last for word in words)
        assert len(err.splitlines()) == 1 or "usage:" in err


def ended_in_this_process(arguments: list[str]) -> tuple[Any, str, str]:
    """A command's exit code and output, in a forked process: a new one would import everything again."""
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        try:
            main(arguments)
        except SystemExit as end:
            return end.code, out.getvalue(), err.getvalue()
    raise AssertionError("it did not end")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_wrong_key_prevents_the_start(certificates: Certificates, tmp_path: Path, workers: str) -> None:
    """The last line names setting and listener, and not the password; exit code 2, and no ready line."""
    settings = (
        "listener.security.protocol.map=PLAINTEXT:SSL",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={certificates.encrypted}",
        "ssl.key.password=not this one",
    )
    given = [part for setting in settings for part in ("--set", setting)]
    ended = run("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path), "--workers", workers, *given)
    assert (ended.returncode, ended.stdout) == (2, "")
    problem = "tenure: ssl.key.password: it doesn't open the private key (listener PLAINTEXT)"
    assert ended.stderr.splitlines()[-1] == problem
    assert workers != "1" or len(ended.stderr.splitlines()) == 1
    assert "not this one" not in ended.stderr


def test_a_wrong_variable_is_named(tmp_path: Path) -> None:
    """The error names a wrong variable of the environment."""
    ended = run("--data-dir", str(tmp_path / "data"), environment={"TENURE_GROUP_MAX_SISE": "1"})
    assert ended.returncode == 2
    assert "TENURE_GROUP_MAX_SISE" in ended.stderr


HANGS = """
from functools import partial
from coordinator.log.topics import logs
from coordinator.log.embedded import engine
from coordinator.server import app
from tests.support.hanging import HangingDisk, main
app.STOP_WITHIN_S, app.CLOSE_WITHIN_S = 1.0, 0.5
{logs}.Disk = partial(HangingDisk, "{folders}-")
main()
"""


@pytest.mark.parametrize(
    "logs, folders, named",
    [("logs", "__rebalance_events", "topics"), ("engine", "__consumer_offsets", "groups")],
)
def test_a_disk_that_hangs_does_not_keep_it_from_ending(tmp_path: Path, logs: str, folders: str, named: str) -> None:
    """SIGTERM ends the server in time, with exit code 1 and a line about the disk; acknowledged records are kept."""
    program = [sys.executable, "-c", HANGS.format(logs=logs, folders=folders), "serve", "--log-format", "json"]
    settings = ["--set", "group.initial.rebalance.delay.ms=0"]
    with serving(tmp_path, *settings, program=program) as (process, line):
        match = READY_LINE.fullmatch(line.rstrip("\n"))
        assert match is not None
        member = Member(int(match["listen"].partition(":")[2]), "g", "a", 5, instance="a")

        def joins() -> bool:
            member.send_join()
            return member.receive_join().error_code == 0

        wait_until(joins, "the group is loaded", WITHIN_S)
        member.send_sync({member.member_id: "a"})
        if named == "topics":
            assert member.connection.receive(WITHIN_S).error_code == 0
        wait_until(lambda: list(tmp_path.glob(f"data/{folders}-*/*")) or None, "something is written", WITHIN_S)
        process.terminate()
        assert process.wait(WITHIN_S) == 1
        hang_up()
    events = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [event["log"] for event in events if event["event"] == "disk_hangs"] == [named]
    assert "server_stopped" not in {event["event"] for event in events}
    with serving(tmp_path, *settings) as (_, line):
        match = READY_LINE.fullmatch(line.rstrip("\n"))
        assert match is not None
        with Client(match["listen"], WITHIN_S) as client:
            group = describe_groups(client, ["g"])["g"]
        assert isinstance(group, Group) or named == "groups"


HANGS_AT_START = """
import sys
from coordinator.cli.main import main
from coordinator.log import store
from threading import Event
class HangingDisk(store.Disk):
    def lock(self, descriptor):
        print("hangs", flush=True)
        Event().wait()
store.Disk = HangingDisk
main()
"""


@pytest.mark.parametrize("further", [[], ["--workers", "2"]])
def test_a_signal_ends_a_start_that_hangs(tmp_path: Path, further: list[str]) -> None:
    """SIGTERM ends a server whose start waits for a disk that doesn't answer, in time."""
    given = ["--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"), "--log-format", "json", *further]
    with subprocess.Popen(
        [sys.executable, "-c", HANGS_AT_START, "serve", *given],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "hangs\n"
        process.terminate()
        _, errors = process.communicate(timeout=WITHIN_S)
    if further:  # the supervisor has nobody to end in order
        assert process.returncode == -signal.SIGTERM
        return
    assert process.returncode == 1
    (line,) = [json.loads(line) for line in errors.splitlines()]
    assert (line["event"], line["store"]) == ("start_hangs", str(tmp_path / "data"))


NEEDED = {"coordinator", "protocol", "schemas", "uvloop"}
"""The installed packages that each server imports."""

OF_PYTHON = {"_distutils_hack"}
"""Python itself imports this where setuptools is installed."""

SELDOM = {"ctypes.util", "email", "http", "importlib.metadata", "multiprocessing", "unittest", "xml", "zipfile"}
"""Modules of Python's own that hardly any server needs."""


def test_a_started_server_has_imported_only_what_it_needs(tmp_path: Path) -> None:
    """A library that few servers need is imported by the first request that needs it, as is each API's handler."""
    with serving(tmp_path, environment={"PYTHONPROFILEIMPORTTIME": "1"}, start=subprocess.Popen) as (_, line):
        assert READY_LINE.fullmatch(line.rstrip("\n"))
        log = (tmp_path / "log").read_text()
    modules = set(re.findall(r"^import time: +\d+ \| +\d+ \| +(\S+)$", log, re.MULTILINE))
    packages = {module.partition(".")[0] for module in modules}
    assert packages & packages_distributions().keys() - OF_PYTHON == NEEDED
    assert not modules & SELDOM
    unwanted = ("coordinator.server.requests.", "coordinator.site", "coordinator.testing")
    assert not [module for module in modules if module.startswith(unwanted)]
    assert "coordinator.server.supervisor" not in modules


@pytest.mark.long
def test_a_node_without_its_etcd_says_where_it_looked(tmp_path: Path) -> None:
    """One line names the option, the address and the reason."""
    with refusing_port() as port:
        where = f"127.0.0.1:{port}"
        arguments = ["--store", f"etcd://{where}", "--set", "tenure.cluster=c", "--set", "node.id=1"]
        command = [*tenure_command(), "serve", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path), *arguments]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert ran.stderr == f"tenure: --store: etcd at {where}: UNAVAILABLE: no connection, Connection refused ({where})\n"
