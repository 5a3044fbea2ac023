"""The demo starts, watches and ends its processes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from coordinator.client.client import Client
from coordinator.client.topics import create_topic
from examples.demo.processes import DemoFailed, Process, Server, Worker, wait_until
from tests.examples.demo.test_command import alive
from tests.support.patience import WITHIN_S
from tests.support.tenure import wait_until as wait

SLEEPER = "import signal, sys; print('up', flush=True); signal.pause()"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEPER}"


def process(folder: Path, code: str, name: str = "sleeper") -> Process:
    """A Python process."""
    return Process(name, [sys.executable, "-c", code], folder / "out", folder / "err")


def pid_of(running: Process) -> int:
    """The process id, once the process has begun its work."""
    assert running._process is not None
    wait(lambda: "up" in running._output.read_text() or None, "process is up", WITHIN_S)
    return running._process.pid


def test_process_is_started_and_stopped(tmp_path: Path) -> None:
    """`stop` sends SIGTERM and waits for the end; then the process can start again."""
    with process(tmp_path, SLEEPER) as running:
        running.start()
        first = pid_of(running)
        running.require_alive()
        running.stop()
        assert not alive(first)
        running.stop()
        running.start()
        second = pid_of(running)
    assert not alive(second)


def test_leaving_the_block_ends_the_process(tmp_path: Path) -> None:
    """The end of the block ends the process, even one that ignores SIGTERM."""
    pids = []

    def interrupted() -> None:
        with process(tmp_path, STUBBORN) as running:
            running.start()
            pids.append(pid_of(running))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not alive(*pids)


def test_process_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo kills a process that doesn't end in time, and reports it."""
    monkeypatch.setattr("examples.demo.processes.STOPPED_WITHIN_S", 0.1)
    with process(tmp_path, STUBBORN) as running:
        running.start()
        pid = pid_of(running)
        with pytest.raises(DemoFailed, match=r"sleeper did not end within 0.1 s"):
            running.stop()
        assert not alive(pid)


def test_process_that_ended_by_itself_is_reported(tmp_path: Path) -> None:
    """The error has the last line that the process printed."""
    with process(tmp_path, "raise SystemExit('out of luck')", "worker-1") as running:
        running.start()

        def reported() -> str | None:
            try:
                running.require_alive()
            except DemoFailed as error:
                return str(error)
            return None

        assert wait(reported, "process ended", WITHIN_S) == "worker-1 ended by itself: out of luck"


def test_waiting_has_a_deadline() -> None:
    """`wait_until` returns the first result; after its deadline it names what it waited for."""
    results = iter([None, None, 0])
    assert wait_until(lambda: next(results), "zero", WITHIN_S) == 0
    with pytest.raises(DemoFailed, match=r"rain: not within 0 s"):
        wait_until(lambda: None, "rain", 0)


def test_server_comes_back_on_its_port_and_data(tmp_path: Path) -> None:
    """After SIGKILL the server starts again at the same address, and its log goes on."""
    with Server(tmp_path, {"group.initial.rebalance.delay.ms": "0"}) as server:
        server.start()
        bootstrap, written = server.bootstrap, server.log.path.stat().st_size
        with Client(bootstrap, WITHIN_S) as client:
            before = client.nodes()
            server.kill()
            server.start()
            assert client.nodes() == before
        assert server.bootstrap == bootstrap
        assert server.log.path.stat().st_size > written


def test_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    """The error for a wrong setting is the server's own line, not a timeout."""
    server = Server(tmp_path, {"group.max.size": "many"})
    with server, pytest.raises(DemoFailed, match=r"coordinator ended by itself: .*group\.max\.size"):
        server.start()


def test_worker_has_no_member_id_before_it_says_so(tmp_path: Path) -> None:
    """A worker has no member id until its consumer prints one, even after a restart."""
    with Server(tmp_path, {"group.initial.rebalance.delay.ms": "0"}) as server:
        server.start()
        with Client(server.bootstrap, WITHIN_S) as client:
            create_topic(client, "t", 1)
        worker = Worker("worker-1", server, "g", "t", tmp_path, "classic", static=True)
        worker._said.write_text("worker-1-old\n")
        with worker:
            worker.start()
            assert worker.member_id is None
            assert wait(lambda: worker.member_id, "worker has joined", WITHIN_S).startswith("worker-1-")
            worker.stop()


def whole_line(path: Path) -> list[str] | None:
    """The words of a line, once it has its end."""
    text = path.read_text()
    return text.split() if text.endswith("\n") else None


def test_settings_of_the_environment_are_not_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator has only the settings that the demo shows, whatever the environment holds."""
    monkeypatch.setenv("TENURE_GROUP_MAX_SIZE", "2")
    monkeypatch.setenv("KAFKA_GROUP_MAX_SIZE", "2")
    monkeypatch.setenv("STAYS", "here")
    command = [sys.executable, "-c", "import os; print(*os.environ)"]
    with Process("printer", command, tmp_path / "out", tmp_path / "err") as process:
        process.start()
        names = wait_until(lambda: whole_line(tmp_path / "out"), "all names", WITHIN_S)
    assert "STAYS" in names
    assert not [name for name in names if name.startswith(("TENURE_", "KAFKA_"))]
