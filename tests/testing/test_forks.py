"""A process that a test forks has nothing of the server: no port, no connection, no lock, no file.

The forked process stays until the end of its test, as a worker does that outlives a kill of the server.
"""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from coordinator.testing import NotRunning, Tenure
from coordinator.testing.forks import FORKED, _forking
from tests.support.forked import forked
from tests.support.patience import WITHIN_S
from tests.support.tenure import wait_until
from tests.testing.conftest import port_of


def sockets(ports: set[int]) -> list[int]:
    """The descriptors of sockets that have one of these ports at one of their ends."""
    found = []
    for name in [path.name for path in Path("/dev/fd").iterdir()]:
        with suppress(OSError):
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            each = socket.socket(fileno=os.dup(int(name)))
            ends = [each.getsockname()]
            with suppress(OSError):
                ends.append(each.getpeername())
            each.close()
            if any(isinstance(end, tuple) and end[1] in ports for end in ends):
                found.append(int(name))
    return found


def files(folder: Path) -> list[str]:
    """The open files below a folder."""
    found = []
    for path in list(Path("/dev/fd").iterdir()):
        with suppress(OSError):
            found.append(str(path.readlink()))
    return [path for path in found if path.startswith(str(folder))]


@pytest.mark.parametrize("options", [{"nodes": 1}, {"nodes": 3}, {"settings": {"tenure.http": "127.0.0.1:0"}}])
def test_a_forked_process_has_no_socket_of_the_kit(options: dict[str, Any]) -> None:
    """It has no listener, no accepted connection and no connection of a scripted member; a client's own stays."""
    with Tenure(topics={"t": 3}, timeout=WITHIN_S, **options) as tenure:
        members = tenure.group("g").fill(3, topics=["t"])
        members.wait_until_seated(within_s=WITHIN_S)
        ports = {port for control in tenure._controls for port in control.server.ports}
        with socket.create_connection(("127.0.0.1", tenure.addresses[0][1])) as client:
            wait_until(lambda: sum(len(each.server.connections) for each in tenure._controls) >= 4, "accepts", WITHIN_S)
            assert len(sockets(ports)) >= 9
            with forked(lambda: sockets(ports)) as found:
                assert found == [client.fileno()]
                assert members.wait_until_seated(within_s=WITHIN_S) == 1
        assert tenure.group("g").wait_until_stable(members=3).generation == 1


def test_a_forked_process_has_no_file_of_the_kit(tmp_path: Path) -> None:
    """It has no lock, no journal and no segment."""
    with Tenure(topics={"t": 3}, data_dir=tmp_path, timeout=WITHIN_S) as tenure:
        tenure.group("g").fill(1, topics=["t"]).wait_until_seated(within_s=WITHIN_S)
        assert str(tmp_path / ".lock") in files(tmp_path)
        with forked(lambda: files(tmp_path)) as found:
            assert found == []


def test_the_server_does_not_run_in_a_forked_process(tmp_path: Path) -> None:
    """There each call says so at once, a stop does nothing, and in the test all goes on."""

    def use(tenure: Tenure) -> list[Any]:
        calls: list[Callable[[], object]] = [
            tenure.start,
            tenure.kill,
            tenure.flush,
            tenure.client,
            tenure.reset,
            tenure.wait_until_killed,
            tenure.group("g").wait_until_stable,
            lambda: tenure.topics,
            lambda: tenure.groups,
            lambda: tenure.group("g").members,
            lambda: tenure.group("g").restarts,
            lambda: tenure.group("g").explain(),
            lambda: tenure.group("g").fill(1, topics=["t"]),
            lambda: tenure.faults.add("Heartbeat -> delay 5"),
            lambda: members.restart(0),
        ]
        members.stop()
        tenure.stop()
        tenure.end_test()
        found = []
        for call in calls:
            try:
                call()
            except (NotRunning, RuntimeError) as error:
                found.append(str(error))
        return [tenure.is_running, tenure.bootstrap_servers, len(calls), *found]

    with Tenure(topics={"t": 3}, data_dir=tmp_path, timeout=WITHIN_S) as tenure:
        members = tenure.group("g").fill(1, topics=["t"])
        members.wait_until_seated(within_s=WITHIN_S)
        with forked(lambda: use(tenure)) as found:
            assert found[:2] == [False, tenure.bootstrap_servers]
            assert found[3:] == [FORKED] * found[2]
            members.restart(0)
            tenure.group("g").wait_until(restarts=1)


def test_a_kill_and_a_start_beside_a_forked_process(tmp_path: Path) -> None:
    """The server has its port and its folder again, and a client of the killed one hears of the end."""
    with Tenure(topics={"t": 3}, data_dir=tmp_path, timeout=WITHIN_S) as tenure:
        port = port_of(tenure)
        with socket.create_connection(("127.0.0.1", port), WITHIN_S) as client:
            client.sendall(b"\0\0\0\x0e\0\x12\0\0\0\0\0\x01\0\0\0\0\0\0")  # an ApiVersions: the connection is accepted
            assert client.recv(1)
            with forked(os.getpid):
                tenure.kill()
                while client.recv(65_536):
                    pass
                tenure.start()
                assert port_of(tenure) == port
                tenure.group("g").fill(1, topics=["t"]).wait_until_seated(within_s=WITHIN_S)


def test_a_process_that_dies_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork returns in the test if the forked process dies before it has let go, too; forks of threads take turns."""
    with Tenure() as tenure:
        monkeypatch.setattr(tenure, "let_go", lambda: os._exit(1), raising=True)
        processes = []

        def fork() -> None:
            process_id = os.fork()
            if process_id == 0:
                os._exit(0)
            processes.append(process_id)

        threads = [threading.Thread(target=fork) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WITHIN_S)
        assert len(processes) == 3
        assert {os.waitstatus_to_exitcode(os.waitpid(process_id, 0)[1]) for process_id in processes} == {1}
        assert not _forking._turn.locked()
