"""Runs the tests in several processes: `pytest --at-once 4`.

The first process collects all tests and forks, which needs 10 s of CPU; pytest-xdist needs 30 s, for each of its
processes collects them. Each fork runs tests and sends its reports to the first process, which counts and prints them.
A fork begins with a share of the tests, in their order, so that the tests of a module share their fixtures; a fork
without tests takes half of the largest share that is left. A module with the marker `together` stays whole: its tests
share what takes seconds to make. A module with the marker `early` begins a share: its tests wait for many seconds, and
as the last ones they would be waited for.

House rule: a fork ends its fixtures. It shares with the others nothing but the list of tests, and the processes that
programs are forked from (tests/support/preloaded.py).
"""

from __future__ import annotations

import atexit
import gc
import multiprocessing
import os
import selectors
import shutil
import signal
import traceback
from bisect import bisect_left
from collections.abc import Sequence
from itertools import islice
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.support import preloaded

MEMORY, MEMORY_BYTES = Path("/dev/shm"), 4 << 30
"""Files of tests are kept in memory if it has that much room: else the tests wait for the disk, one for the other."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--at-once", type=int, default=1, metavar="N", help="run the tests in N processes")


def before_collection(session: pytest.Session) -> None:
    """Choose where files are kept, and start the processes that programs are forked from.

    These make their imports while this one collects the tests.
    """
    processes: int = session.config.getoption("--at-once")
    if processes == 1 or session.config.getoption("collectonly"):
        return
    if preloaded.IS_POSSIBLE:
        preloaded.share(processes)
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests, unless there is one process or pytest itself has more to say."""
    processes: int = session.config.getoption("--at-once")
    if processes == 1 or session.testsfailed or session.config.getoption("collectonly"):
        return None
    run_at_once(session, processes)
    return True


def edges_of(items: Sequence[pytest.Item]) -> list[int]:
    """The places, from 0 to the number of tests, at which a share may begin or end."""
    wholes = [item.path if item.get_closest_marker("together") else None for item in items]
    inner = (place for place in range(1, len(items)) if wholes[place] is None or wholes[place] != wholes[place - 1])
    return [0, *inner, len(items)]


def arranged(items: Sequence[pytest.Item], processes: int) -> list[pytest.Item]:
    """The tests of modules with the marker `early` begin a share each; all others keep their order."""
    modules: dict[Path, list[pytest.Item]] = {}
    others: list[pytest.Item] = []
    for item in items:
        (modules.setdefault(item.path, []) if item.get_closest_marker("early") else others).append(item)
    result: list[pytest.Item] = []
    left = iter(others)
    for number, module in enumerate(modules.values()):
        result += islice(left, max(0, len(items) * number // processes - len(result)))
        result += module
    return [*result, *left]


class Shares:
    """For each process, the range of the tests that it still has to run. edges: see edges_of."""

    def __init__(self, edges: Sequence[int], processes: int) -> None:
        self._edges = edges
        tests = edges[-1]
        edges = [edges[bisect_left(edges, tests * number // processes)] for number in range(processes + 1)]
        context = multiprocessing.get_context("fork")
        self._lock = context.Lock()
        self._begins = context.RawArray("l", edges[:-1])
        self._ends = context.RawArray("l", edges[1:])
        self.running = context.RawArray("l", processes)
        """The test that each process runs, or ran last."""

    def take(self, number: int) -> int | None:
        """The next test of a process; None if no test is left."""
        begins, ends = self._begins, self._ends
        with self._lock:
            if begins[number] == ends[number]:
                for other in sorted(range(len(begins)), key=lambda one: begins[one] - ends[one]):
                    middle = (begins[other] + ends[other]) // 2
                    edges = [edge for edge in self._edges if begins[other] <= edge < ends[other]]
                    if edges:
                        edge = min(edges, key=lambda one: abs(one - middle))
                        begins[number], ends[number], ends[other] = edge, ends[other], edge
                        break
            if begins[number] == ends[number]:
                return None
            taken: int = begins[number]
            begins[number] += 1
            return taken

    def clear(self) -> None:
        """Leave no test."""
        with self._lock:
            self._begins[:] = self._ends[:]


class Sender:
    """The hooks by which a fork sends to the first process what became of a test.

    A test is one message. The reports of a set-up and of an end that passed stay here, since pytest shows them with
    --durations only: most of the work of the first process is to wake up and to take reports.
    """

    def __init__(self, config: pytest.Config, connection: Connection[Any, Any]) -> None:
        self._config = config
        self._connection = connection
        self._wants_all = config.getoption("durations") is not None
        self._reports: list[Any] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a report."""
        if report.when == "call" or not report.passed or self._wants_all:
            self._reports.append(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))

    def pytest_runtest_logfinish(self, nodeid: str, location: Any) -> None:
        """Send that a test has ended, and its reports."""
        self._connection.send((nodeid, location, self._reports))
        self._reports = []


def run_at_once(session: pytest.Session, processes: int) -> None:
    """Run the tests of a session in `processes` forks."""
    session.config.pluginmanager.getplugin("terminalreporter").showfspath = False  # forks report of many files in turn
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined] # one folder, which all forks share
    session.items = arranged(session.items, processes)
    shares = Shares(edges_of(session.items), processes)
    forks = {}
    for number in range(processes):
        received, sent = Pipe(duplex=False)
        process_id = os.fork()
        if process_id == 0:
            _be_a_fork(session, shares, number, sent)
        sent.close()
        forks[received] = process_id
    try:
        _report(session, shares, list(forks))
    finally:
        shares.clear()
        for received, process_id in forks.items():
            received.close()
            os.waitpid(process_id, 0)


def _be_a_fork(session: pytest.Session, shares: Shares, number: int, connection: Connection[Any, Any]) -> NoReturn:
    """Run tests, and end this process."""
    config = session.config
    try:
        atexit._clear()  # of the first process
        for each in preloaded.PROCESSES.values():
            each.be_user(number)
        folders = config._tmp_path_factory  # type: ignore[attr-defined]
        folders._basetemp = folders.mktemp(f"process-{number}-", numbered=True)
        capture = config.pluginmanager.getplugin("capturemanager")
        capture.stop_global_capturing()
        capture.start_global_capturing()  # into files of its own
        config.pluginmanager.unregister(name="terminalreporter")
        config.pluginmanager.register(Sender(config, connection))
        try:
            _run(session, shares, number)
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            session._setupstate.teardown_exact(None)
            atexit._run_exitfuncs()
        connection.send(None)
    except (BrokenPipeError, KeyboardInterrupt):
        pass  # the first process ends too
    except BaseException:  # noqa: BLE001 - it is shown
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(0)


def _run(session: pytest.Session, shares: Shares, number: int) -> None:
    test = shares.take(number)
    while test is not None and not session.shouldfail and not session.shouldstop:
        following = shares.take(number)
        then = None if following is None else session.items[following]
        shares.running[number] = test
        session.config.hook.pytest_runtest_protocol(item=session.items[test], nextitem=then)
        if then is None or then.path != session.items[test].path:
            _forget()
        test = following


def _forget() -> None:
    """Keep Python's garbage collector from what stays of a module's tests: many tests ask it to look at all."""
    gc.collect()
    gc.freeze()


def _report(session: pytest.Session, shares: Shares, connections: Sequence[Connection[Any, Any]]) -> None:
    """Report what forks send, until each has ended."""
    hook = session.config.hook
    ready = selectors.DefaultSelector()
    for number, connection in enumerate(connections):
        ready.register(connection, selectors.EVENT_READ, number)
    while ready.get_map():
        for key, _ in ready.select():
            try:
                sent = connections[key.data].recv()
            except EOFError:
                ready.unregister(key.fileobj)
                item = session.items[shares.running[key.data]]
                lost = pytest.TestReport(
                    item.nodeid, item.location, {}, "failed", "the process that ran this test ended", "call"
                )
                hook.pytest_runtest_logreport(report=lost)
                continue
            if sent is None:
                ready.unregister(key.fileobj)
                continue
            nodeid, location, reports = sent
            hook.pytest_runtest_logstart(nodeid=nodeid, location=location)
            for written in reports:
                read = hook.pytest_report_from_serializable(config=session.config, data=written)
                hook.pytest_runtest_logreport(report=read)
            hook.pytest_runtest_logfinish(nodeid=nodeid, location=location)
        if session.shouldfail or session.shouldstop:
            shares.clear()
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
