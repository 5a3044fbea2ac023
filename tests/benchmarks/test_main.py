"""Each work runs for a moment against Tenure and an echo, and says something of each figure; how fast is not judged."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from benchmarks import servers
from benchmarks.__main__ import SECURITY, app, asked, chosen
from benchmarks.cases import CASES, ECHO, KAFKA, TENURE, Case
from benchmarks.report import Runs
from benchmarks.stage import (
    AGE_MAX_S,
    GROUPS_MAX,
    WARM_UP,
    WARM_UP_S,
    Kafka,
    Stage,
    cpus,
    is_warm,
    left_behind,
    measured,
    needed,
    turns,
)
from tests.cli.conftest import run_app
from tests.support.preloaded import popen, run

ROOT = Path(__file__).parent.parent.parent


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return run(command, cwd=ROOT)


@pytest.fixture
def refused() -> Iterator[Callable[..., str]]:
    """Runs the command in this process; returns what it said as it refused its arguments."""
    of_tests = signal.getsignal(signal.SIGTERM)

    def run(*arguments: str) -> str:
        ran = run_app(app, *arguments)
        assert ran.code == 2
        return unwrapped(ran.err)

    yield run
    signal.signal(signal.SIGTERM, of_tests)


def unwrapped(text: str) -> str:
    """Return the text of a box as one line."""
    return " ".join(text.replace("\N{BOX DRAWINGS LIGHT VERTICAL}", " ").split())


@pytest.fixture
def mute() -> Iterator[str]:
    """A server that hangs up on everybody, as --servers names it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def hang_up() -> None:
            with suppress(OSError):  # the end of it
                while True:
                    listening.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}:{os.getpid()}"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


ALIKE = {"heartbeat-1000", "storm-5000", "crowd-plain", "latency-crowd-plain"}
"""Others with larger numbers, and another mechanism."""
DIFFERENT = [case for case in CASES if case.name not in ALIKE]


@pytest.mark.long
@pytest.mark.parametrize("case", DIFFERENT, ids=lambda case: case.name)
def test_each_case_runs_and_has_its_figures(case: Case, tmp_path: Path) -> None:
    """Every figure is a number that can be, and every figure of the table is among them."""
    out = tmp_path / "bench.json"
    done = bench(case.name, "--quick", "--servers", f"{ECHO},{TENURE}", "--out", str(out))
    assert done.returncode == 0, done.stderr
    measured = json.loads(out.read_text())["figures"][case.name]
    assert set(measured) == {ECHO, TENURE} & set(case.servers), done.stderr
    for (figures,) in measured.values():
        assert all(math.isfinite(value) and value >= 0 for name, value in figures.items() if "resident" not in name)
        assert {row.figure for row in case.rows} <= set(figures)
        assert figures["wall_s"] > 0
    assert "Tenure" in done.stdout


def test_secured_servers_are_chosen_by_name() -> None:
    """Without a name, the cases are those of the page's table; with `security`, those of the other page's."""
    assert [case.listener for case in chosen([], {}, quick=True)].count("") == len(chosen([], {}, quick=True))
    secured = chosen([SECURITY], {}, quick=True)
    assert {case.listener for case in secured} == {"SSL", "SCRAM", "PLAIN"}
    assert len(secured) + len(chosen([], {}, quick=True)) == len(CASES)


@pytest.mark.long
def test_a_page_is_written_when_asked(tmp_path: Path) -> None:
    """Between its markers, with what was measured."""
    page = tmp_path / "page.md"
    page.write_text((ROOT / "benchmarks/results/requests.md").read_text())
    arguments = ("--quick", "--servers", TENURE, "--out", str(tmp_path / "out.json"), "--page", str(page))
    done = bench("storm", *arguments)
    assert done.returncode == 0, done.stderr
    assert "50 dynamic members at once" in page.read_text()


@pytest.mark.long
def test_a_page_stays_when_it_would_have_a_hole(tmp_path: Path, mute: str) -> None:
    """The other cases are shown and kept, and the exit code says that one is missing."""
    page, out = tmp_path / "page.md", tmp_path / "out.json"
    page.write_text(text := (ROOT / "benchmarks/results/requests.md").read_text())
    done = bench("storm", "--quick", "--servers", f"{TENURE},{mute}", "--out", str(out), "--page", str(page))
    assert done.returncode == 1
    assert "failed" in done.stderr
    assert "50 dynamic members at once" in done.stdout
    assert set(json.loads(out.read_text())["figures"]["storm"]) == {TENURE}
    assert page.read_text() == text


@pytest.mark.long
def test_a_page_says_which_repetitions_are_left_out(tmp_path: Path) -> None:
    """Where others of the same are there, a run of half an hour isn't lost for one."""
    page, out = tmp_path / "page.md", tmp_path / "out.json"
    page.write_text((ROOT / "benchmarks/results/requests.md").read_text())
    with servers.tenure({}, cpus()[0]) as server:
        name = f"127.0.0.1:{server.port}:{server.pid}"
        command = [sys.executable, "-m", "benchmarks", "heartbeat-64", "--repeat", "2", "--servers", name]
        command += ["--with", "connections=4", "--with", "seconds=0.2", "--out", str(out), "--page", str(page)]
        with popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as run:
            assert run.stderr is not None
            assert any("2 of 2" in line for line in run.stderr)
            os.kill(server.pid, signal.SIGKILL)
            run.stderr.read()
    assert run.returncode == 1
    assert f"Failed, and left out: heartbeat-64 with {name} (1)." in page.read_text()
    assert "| heartbeat, 4 connections: CPU, us |" in page.read_text()


def test_floors_are_for_a_case_as_it_stands() -> None:
    """With fewer members, say, it is another work, and nothing is said of how fast that is to be."""
    (case,) = (case for case in CASES if case.name == "storm")
    assert asked(case, {}) == case
    assert any(row.floor is not None for row in case.rows)
    fewer = asked(case, case.quick)
    assert fewer.parameters == {**case.parameters, **case.quick}
    assert [row.title for row in fewer.rows] == [row.title for row in case.rows]
    assert all(row.floor is None for row in fewer.rows)


def test_cases_that_are_compared_take_turns() -> None:
    """One repetition of both, then the next."""
    first, second = (case for case in CASES if case.name in {"latency-restarts", "latency-sinks"})
    order = [(case.name, repetition) for case, repetition, _ in turns([first, second], [TENURE], 2)]
    assert order == [(first.name, 0), (second.name, 0), (first.name, 1), (second.name, 1)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nothing",), "there are bounce"),
        (("sinks",), "no such work: sinks"),
        (("storm", "--with", "size=many"), "size=many: a number is wanted"),
        (("storm", "--with", "size=0"), "size=0: storm has 1000, for one"),
        (("storm", "--with", "size=-1"), "size=-1: storm has 1000, for one"),
        (("storm", "--with", 'size="x"'), "storm has 1000, for one"),
        (("groups", "--with", "steps=[]"), "groups has [10, 10000, 100000], for one"),
        (("idle", "--with", "seconds=0"), "idle has 2.0, for one"),
        (("storm", "--with", "bench=1"), "bench: no such parameter here; there are size"),
        (("storm", "--with", "members=5"), "no such parameter here; there are size"),
        (("storm", "--with", "size"), "NAME=VALUE is wanted"),
        (("storm", "--set", "no.such.setting=1"), "no.such.setting"),
        (("storm", "--set", "num.partitions=many"), "num.partitions"),
        (("workers", "--set", "tenure.workers=4"), "tenure.workers: workers compares servers that differ in it"),
        (("storm", "--servers", ECHO), "nothing to measure"),
        (("storm", "--servers", "localhost:1:1"), "127.0.0.1:PORT:PID"),
        (("storm", "--servers", "127.0.0.1:1:999999999"), "process 999999999 can't be looked at"),
        (("storm", "--out", "/dev/null/x.json"), "can't be written"),
        (("storm", "--page", "/dev/null"), "lost its markers"),
    ],
    ids=lambda value: None if isinstance(value, str) else " ".join(value),
)
def test_what_can_not_be_measured_is_refused_before_anything_is(
    refused: Callable[..., str], arguments: tuple[str, ...], said: str
) -> None:
    """The program refuses it in one line with the reason, before it measures anything."""
    assert said in refused(*arguments)


def test_a_process_that_is_no_server_is_not_measured(refused: Callable[..., str]) -> None:
    """The program refuses such a process, because its CPU time says nothing about the server."""
    assert "doesn't take connections on port 1" in refused("storm", "--servers", f"127.0.0.1:1:{os.getpid()}")


@pytest.mark.long
def test_a_given_server_has_the_figures_that_can_be_seen(tmp_path: Path) -> None:
    """Neither its start nor its log are."""
    out = tmp_path / "out.json"
    with servers.tenure({}, cpus()[0]) as server:
        name = f"127.0.0.1:{server.port}:{server.pid}"
        done = bench("start", "bounce", "--quick", "--servers", name, "--out", str(out))
    assert done.returncode == 0, done.stderr
    measured = json.loads(out.read_text())["figures"]
    assert measured["start"][name][0]["resident_mib"] > 0
    assert measured["bounce"][name][0]["cpu_us_per_restart"] > 0
    figures = {figure for case in measured.values() for each in case.values() for figure in each[0]}
    assert not figures & {"start_s", "log_bytes_per_restart", "bare_sync_us"}


@pytest.mark.long
@pytest.mark.parametrize(("at_once", "said"), [(3, ""), (5, "5 of 4 members can't restart at a time")])
def test_no_member_is_restarted_twice_at_a_time(tmp_path: Path, at_once: int, said: str) -> None:
    """However far one of those who restart them falls behind: the first of the two would be fenced."""
    parameters = ("--with", "size=4", "--with", "restarts=300", "--with", f"at_once={at_once}")
    done = bench("bounce-16", *parameters, "--repeat", "1", "--servers", TENURE, "--out", str(tmp_path / "out.json"))
    assert done.returncode == (1 if said else 0), done.stderr
    assert said in done.stderr


@pytest.mark.long
def test_a_setting_costs_what_it_takes_more_than_without(tmp_path: Path) -> None:
    """The ratio of one turn is that of its two figures, and it is the server with the setting that has two workers."""
    out = tmp_path / "out.json"
    done = bench("workers", "--quick", "--with", "turns=1", "--servers", TENURE, "--out", str(out))
    assert done.returncode == 0, done.stderr
    (figures,) = json.loads(out.read_text())["figures"]["workers"][TENURE]
    assert figures["ratio"] == figures["cpu_us_per_request"] / figures["cpu_us_per_request_without"]
    assert figures["busiest_to_least"] > 1


def test_a_given_server_is_not_compared_with_another_setting(refused: Callable[..., str], mute: str) -> None:
    """The program can leave a setting out only for a server that it starts itself."""
    assert "nothing to measure" in refused("metrics", "workers", "--servers", mute)


def test_a_given_server_that_goes_leaves_a_hole() -> None:
    """The rest of the run goes on, and what there is, nothing here, is kept from the beginning."""
    gone = f"127.0.0.1:1:{os.getpid()}"
    kept: list[Runs] = []
    with ExitStack() as stack:
        case = next(case for case in CASES if case.name == "start")
        runs, failed = measured(Stage({}, stack), [case], [gone], 1, kept.append)
    assert (runs, failed) == ({"start": {}}, [("start", gone)])
    assert kept == [runs]


@pytest.mark.long
def test_what_was_measured_is_kept_when_it_is_ended(tmp_path: Path) -> None:
    """After a signal the results of the finished cases are on disk."""
    out = tmp_path / "out.json"
    command = [sys.executable, "-m", "benchmarks", "storm", "--servers", TENURE, "--with", "size=5", "--out", str(out)]
    with popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any(line.startswith("storm 2 of") for line in process.stderr)
        process.terminate()
        process.stderr.read()
    assert process.returncode == 1
    assert json.loads(out.read_text())["figures"]["storm"][TENURE]


def test_groups_that_stay_behind_are_counted() -> None:
    """As many as there are when the work ends."""
    left = {case.name: left_behind(case.work, case.parameters) for case in CASES}
    assert {name: count for name, count in left.items() if count} == {
        "groups": 100_000,
        "groups-slow": 100_000,
        "connections": 10_000,
    }


def test_apache_kafka_is_warmed_up_for_each_work_that_it_is_compared_in() -> None:
    """But for works that need a new node, or that measure its start."""
    works = {work for case in CASES if KAFKA in case.servers and not case.fresh for work in needed(case)}
    assert works <= set(WARM_UP)


@pytest.mark.parametrize(("seconds", "cpu_s", "expected"), [(31, 121, True), (31, 119, False), (29, 121, False)])
def test_a_busy_machine_takes_longer_to_warm_a_node_up(seconds: float, cpu_s: float, expected: bool) -> None:
    """Its code is compiled by how often it ran, and not by the clock."""
    assert is_warm("transaction", seconds, cpu_s) is expected
    assert is_warm("heartbeat", seconds, 0.0) is (seconds > WARM_UP_S)


def test_apache_kafka_is_started_anew_before_it_is_too_old() -> None:
    """Or full; not while it is measured, and the new one has to be warmed up. An echo stands in: no matter for that."""
    now_s = [0.0]
    kafka = Kafka(lambda: servers.echo(bytes(4), cpus()[0]), lambda: now_s[0])
    try:
        kafka.age()
        first = kafka.running()
        kafka.warm.add(("storm", ""))
        now_s[0] = AGE_MAX_S
        kafka.age()
        assert kafka.running() is first
        now_s[0] += 1
        assert kafka.running() is first
        kafka.age()
        with pytest.raises(ProcessLookupError):
            os.kill(first.pid, 0)
        second = kafka.running()
        assert second.pid != first.pid
        assert not kafka.warm
        now_s[0] += AGE_MAX_S
        kafka.groups = GROUPS_MAX - 1
        kafka.age()
        assert kafka.running() is second
        kafka.groups += 1
        kafka.age()
        assert kafka.running().pid != second.pid
        assert kafka.groups == 0
    finally:
        kafka.close()
