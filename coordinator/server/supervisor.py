"""Several workers under one supervisor: more cores for one data folder.

Each worker is a node: a process with its own event loop, port, connections and log thread. It owns every n-th partition
of `__consumer_offsets` and `__transaction_state` (`log.store.node_in_turn`) and holds these partitions' locks. Clients
find the right worker by FindCoordinator, as in any Kafka cluster. Workers share no memory. In a
transaction, one asks another through the supervisor (relay.py).

The supervisor serves no client. It binds all addresses, locks the data folder, forks the workers, and keeps the list of
topics (shared_topics.py). When a worker dies or hangs (liveness.py), the supervisor forks another. Meanwhile it keeps
that worker's sockets open, so a client that connects waits and is not refused. A worker that dies repeatedly is started
after growing pauses.

The supervisor is one thread without an event loop, so that a fork copies nothing that is half done. Workers inherit the
lock on the folder. If the supervisor is killed, each worker stops as soon as its channel ends, and the folder is free
after the last of them. An Apache Kafka broker on the same folder respects the supervisor's lock, but doesn't see the
workers that a killed supervisor leaves.

House rule: only `select` waits, and the disk when the list of topics or a certificate has changed, which is short and
rare. Signals come as bytes on a socket.
"""

from __future__ import annotations

import asyncio
import gc
import os
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import uvloop
from msgspec import convert

from coordinator.config import HTTP, Config, ConfigError, configs_of_workers, tls_listeners
from coordinator.log.engine import EngineError
from coordinator.log.store import check_folder, lock_folder, read_folder, recover_journals
from coordinator.loop.clock import SystemClock
from coordinator.loop.lines import Lines
from coordinator.server.app import STOP_WITHIN_S, Bound, StartFailed, addresses_of, bind_all, certificates_of, reason
from coordinator.server.channel import Kind, LineReader, line
from coordinator.server.liveness import Liveness
from coordinator.server.nodes.discovery import node_addresses
from coordinator.server.nodes.topics import Change
from coordinator.server.relay import Relay
from coordinator.server.risks import warn_of_risks
from coordinator.server.shared_topics import SharedTopics
from coordinator.server.telemetry.log_reports import report
from coordinator.server.worker import work

if TYPE_CHECKING:
    from coordinator.server.wire.certificates import Certificates

STEADY_MS = 60_000
"""After a run of this length, a worker's count of failures starts again from one."""
PAUSE_MIN_MS, PAUSE_MAX_MS = 1_000, 30_000
"""The pause before the second start in a row, and the longest pause. Pauses double. The first start has no pause."""

STOPPED_WITHIN_MS = int(4 * STOP_WITHIN_S * 1000)
"""A worker that takes longer to stop is killed. The waits in `Server.stop` add up to less."""

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGHUP)
"""SIGHUP means that the workers read their certificates again. Without TLS it is not caught."""

OnReady = Callable[[Sequence[tuple[str, int]], Sequence[int]], None]
"""Gets the addresses of all listeners and the ids of all nodes, in the order of the workers."""


def pause_ms(failures: int) -> int:
    """The pause before the next start of a worker that failed this many times in a row."""
    return 0 if failures <= 1 else min(PAUSE_MIN_MS << min(failures - 2, 16), PAUSE_MAX_MS)


class Worker:
    """A worker, as its supervisor sees it.

    process_id, channel: None while it isn't running. failures: in a row. due_ms: when to start it; None while it runs.
    problem: why it can't start, as it said.
    """

    def __init__(self, config: Config, bound: Bound) -> None:
        self.config = config
        self.bound = bound
        self.process_id: int | None = None
        self.channel: socket.socket | None = None
        self.reader = LineReader()
        self.unsent = bytearray()
        self.is_ready = False
        self.failures = 0
        self.started_ms = 0
        self.ended_ms = 0
        self.due_ms: int | None = 0
        self.problem = ""

    @property
    def node_id(self) -> int:
        """The id of its node."""
        return self.config.node_id


def how_it_ended(code: int) -> str:
    """A text for people. code: the exit code of a process, or minus the number of the signal that ended it."""
    if code < 0:
        return f"was ended by signal {-code} ({signal.strsignal(-code)})"
    return f"ended with exit code {code}"


class Supervisor:
    """See the module. on_ready: called when all workers accept requests."""

    def __init__(self, config: Config, on_ready: OnReady) -> None:
        self._config = config
        self._on_ready = on_ready
        self._clock = SystemClock()
        self._lines = Lines(sys.stderr, config.log_format, None, self._clock)
        self._selector = selectors.DefaultSelector()
        self._signals, self._signals_in = socket.socketpair()
        self._workers: list[Worker] = []
        self._topics: SharedTopics[Worker]
        self._relay: Relay[Worker] = Relay(self._send)
        self._cluster_id = ""
        self._certificates: Certificates | None = None
        self._liveness: Liveness[Worker] = Liveness(config.worker_timeout_ms)
        self._silent_nodes: set[int] = set()
        self._was_ready = False
        self._failure = ""
        self._ending = False
        self._kill_at_ms: int | None = None

    def run(self, warnings: Sequence[str]) -> None:
        """Run config.workers workers until SIGTERM or SIGINT. Raises StartFailed.

        warnings: about the configuration, to be logged.
        """
        for warning in warnings:
            self._lines.warn("setting_ignored", warning)
        warn_of_risks(self._config, self._lines)
        self._open()
        self._catch_signals()
        while not self._ending or any(worker.process_id for worker in self._workers):
            self._start_due()
            self._kill_late()
            self._look_for_hung()
            for key, events in self._selector.select(self._wait_s()):
                key.data(events)
            self._reap()
        if self._failure:
            raise StartFailed(self._failure)

    def _open(self) -> None:
        """Bind the addresses, lock the data folder and read it."""
        config = self._config
        try:
            check_folder(config)
            self._workers.extend(Worker(each, bind_all(each)) for each in configs_of_workers(config))
            self._certificates = certificates_of(config)
            lock_folder(config)  # the lock holds until the last process has ended
            self._cluster_id, topics, file, notices = read_folder(config, uuid4)
            notices += recover_journals(config)  # another number of workers may have written them
        except (ConfigError, EngineError, OSError) as error:
            raise StartFailed(reason(error)) from error
        for name, fields in notices:
            report(self._lines, name, **fields)
        self._topics = SharedTopics(topics, file, Path(config.log_dirs), self._lines, self._send)
        self._nodes = [node_addresses(worker.config, addresses_of(worker.bound)) for worker in self._workers]

    # Processes.

    def _start_due(self) -> None:
        now_ms = self._clock.ms()
        for worker in self._workers:
            if worker.due_ms is not None and now_ms >= worker.due_ms and not self._ending:
                worker.due_ms, worker.started_ms = None, now_ms
                try:
                    self._start(worker)
                except OSError as error:  # out of memory, or at the limit of processes
                    self._failed(worker, f"could not be forked: {reason(error)}")

    def _start(self, worker: Worker) -> None:
        ours, theirs = socket.socketpair()
        # Without this, the child's garbage collector would write to, and so copy, pages that it shares with us.
        gc.freeze()
        # A signal to the child before it has handlers of its own would be written to our socket.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            process_id = os.fork()
            if process_id == 0:
                self._become(worker, ours, theirs, mask)
        except OSError:
            ours.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            theirs.close()
        ours.setblocking(False)
        worker.process_id, worker.channel = process_id, ours
        worker.reader, worker.unsent, worker.is_ready, worker.problem = LineReader(), bytearray(), False, ""
        self._selector.register(ours, selectors.EVENT_READ, partial(self._on_channel, worker))
        text = f"The worker of node {worker.node_id} is process {process_id}"
        self._lines.info("worker_started", text, node=worker.node_id, pid=process_id)

    def _become(
        self, worker: Worker, ours: socket.socket, theirs: socket.socket, mask: set[int | signal.Signals]
    ) -> None:
        """Run the worker in the child, to its end. Close all of the supervisor, except the lock on the folder."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            self._selector.close()
            for each in (ours, self._signals, self._signals_in):
                each.close()
            for other in self._workers:
                if other.channel is not None:
                    other.channel.close()
                if other is not worker:
                    close_all(other.bound)
            topics = self._topics.list.kept()
            known = self._nodes, self._cluster_id, topics, theirs, self._certificates
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                code = runner.run(work(worker.config, worker.bound, *known))
        except BaseException:  # noqa: BLE001 - the child must not go on with the parent's code
            traceback.print_exc()
        finally:
            os._exit(code)

    def _reap(self) -> None:
        for worker in self._workers:
            if worker.process_id is not None:
                process_id, status = os.waitpid(worker.process_id, os.WNOHANG)
                if process_id:
                    while worker.channel is not None and self._receive(worker):
                        pass  # read its last messages
                    self._hang_up(worker)
                    self._ended(worker, os.waitstatus_to_exitcode(status))

    def _ended(self, worker: Worker, code: int) -> None:
        """Handle the end of a worker's process."""
        process_id, worker.process_id = worker.process_id, None
        what = f"(process {process_id}) {how_it_ended(code)}"
        if not self._ending:
            self._failed(
                worker, f"{what}: {worker.problem}" if worker.problem else what, pid=process_id, exit_code=code
            )
        elif code:
            text = f"The worker of node {worker.node_id} {what}"
            self._lines.warn("worker_ended", text, node=worker.node_id, pid=process_id, exit_code=code)

    def _failed(self, worker: Worker, what: str, **fields: int | None) -> None:
        """Plan the next start of a failed worker; stop everything if the workers have never all been ready."""
        if not self._was_ready:
            self._failure = worker.problem or f"the worker of node {worker.node_id} {what}, before it was ready"
            self._stop()
            return
        now_ms = self._clock.ms()
        worker.failures = 1 if now_ms - worker.started_ms >= STEADY_MS else worker.failures + 1
        pause = pause_ms(worker.failures)
        worker.ended_ms, worker.due_ms = now_ms, now_ms + pause
        when = f"in {pause / 1000:g} s, after {worker.failures} in a row" if pause else "at once"
        text = f"The worker of node {worker.node_id} {what}; it is started again {when}"
        fields |= {"failures": worker.failures, "pause_ms": pause}
        self._lines.error("worker_ended", text, node=worker.node_id, **fields)

    def _ready(self, worker: Worker) -> None:
        worker.is_ready = True
        self._liveness.watch(worker, self._clock.ms())
        self._set_silent(worker, is_silent=False)
        if self._silent_nodes:
            self._send(worker, Kind.SILENT_NODES, {"nodes": sorted(self._silent_nodes)})
        if self._was_ready:
            took_ms = self._clock.ms() - worker.ended_ms
            text = f"The worker of node {worker.node_id} serves again, {took_ms} milliseconds after it had ended"
            self._lines.info("worker_back", text, node=worker.node_id, took_ms=took_ms)
        elif all(each.is_ready for each in self._workers):
            self._was_ready = True
            bound = [place for each in self._workers for place in each.bound if place[0].name != HTTP]
            addresses = [listening.getsockname()[:2] for _, listening in bound]
            self._on_ready(addresses, [each.node_id for each in self._workers])

    # Signals, and the end.

    def _catch_signals(self) -> None:
        for each in (self._signals, self._signals_in):
            each.setblocking(False)
        signal.set_wakeup_fd(self._signals_in.fileno(), warn_on_full_buffer=False)
        for number in SIGNALS if tls_listeners(self._config) else SIGNALS[:-1]:
            signal.signal(number, lambda _number, _frame: None)
        self._selector.register(self._signals, selectors.EVENT_READ, self._on_signal)

    def _on_signal(self, _: int) -> None:
        for number in self._signals.recv(4096):
            if number in {signal.SIGTERM, signal.SIGINT}:
                if self._ending:
                    self._kill_at_ms = self._clock.ms()
                else:
                    self._stop()
            elif number == signal.SIGHUP:
                if self._certificates is not None:
                    self._certificates.keep_up()
                for worker in self._workers:
                    if worker.process_id is not None:
                        os.kill(worker.process_id, signal.SIGHUP)

    def _stop(self) -> None:
        """Close the listening sockets and send SIGTERM to the workers."""
        self._ending = True
        self._kill_at_ms = self._clock.ms() + STOPPED_WITHIN_MS
        for worker in self._workers:
            close_all(worker.bound)
            if worker.process_id is not None:
                os.kill(worker.process_id, signal.SIGTERM)

    def _kill_late(self) -> None:
        """Kill the workers that take too long to stop."""
        if self._kill_at_ms is not None and self._clock.ms() >= self._kill_at_ms:
            self._kill_at_ms = None
            for worker in self._workers:
                if worker.process_id is not None:
                    os.kill(worker.process_id, signal.SIGKILL)

    def _look_for_hung(self) -> None:
        """Ask the workers whether they answer, and end those that have not answered for too long."""
        if self._ending:
            return
        now_ms = self._clock.ms()
        if (due_ms := self._liveness.due_ms()) is None or now_ms < due_ms:
            return
        found = self._liveness.look(now_ms)
        for worker in found.silent:
            self._set_silent(worker, is_silent=True)
        for worker in found.hung:
            assert worker.process_id is not None
            text = (
                f"The worker of node {worker.node_id} (process {worker.process_id}) has not answered for "
                f"{self._config.worker_timeout_ms} milliseconds: it is killed"
            )
            self._lines.error("worker_hung", text, node=worker.node_id, pid=worker.process_id)
            os.kill(worker.process_id, signal.SIGKILL)
        for worker in found.ask:
            self._send(worker, Kind.PING, {})

    def _set_silent(self, worker: Worker, *, is_silent: bool) -> None:
        """Let the other workers know that a worker doesn't answer, or answers again."""
        if (worker.node_id in self._silent_nodes) is is_silent:
            return
        if is_silent:
            self._silent_nodes.add(worker.node_id)
            text = f"The worker of node {worker.node_id} (process {worker.process_id}) does not answer"
            self._lines.warn("worker_silent", text, node=worker.node_id, pid=worker.process_id)
        else:
            self._silent_nodes.discard(worker.node_id)
        for each in self._workers:
            if each.channel is not None and each is not worker:
                self._send(each, Kind.SILENT_NODES, {"nodes": sorted(self._silent_nodes)})

    def _wait_s(self) -> float | None:
        """How long `select` may wait; None for no limit."""
        now_ms = self._clock.ms()
        if self._kill_at_ms is not None:
            return max(self._kill_at_ms - now_ms, 0) / 1000
        due = [worker.due_ms for worker in self._workers if worker.due_ms is not None]
        if (look_ms := self._liveness.due_ms()) is not None:
            due.append(look_ms)
        return max(min(due) - now_ms, 0) / 1000 if due and not self._ending else None

    # The channels.

    def _on_channel(self, worker: Worker, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._write(worker)
        if events & selectors.EVENT_READ:
            self._receive(worker)

    def _receive(self, worker: Worker) -> bool:
        """Read messages of a worker; returns whether there were any bytes."""
        assert worker.channel is not None
        try:
            data = worker.channel.recv(65_536)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            data = b""
        if not data:
            self._hang_up(worker)
            return False
        if self._liveness.hear(worker, self._clock.ms()):
            self._set_silent(worker, is_silent=False)
        for message in worker.reader.feed(data):
            self._take_message(worker, message)
        return True

    def _take_message(self, worker: Worker, message: dict[str, Any]) -> None:
        kind = message["kind"]
        if kind == Kind.READY:
            self._ready(worker)
        elif kind == Kind.START_FAILED:
            worker.problem = message["reason"]
        elif kind == Kind.CHANGE_REQUEST:
            peers = [each for each in self._workers if each.channel is not None]
            self._topics.change(worker, message["number"], convert(message["change"], Change), peers)
        elif kind == Kind.ASK:
            (asked,) = (each for each in self._workers if each.node_id == message["node"])
            self._relay.ask(worker, message["number"], asked, message["question"])
        elif kind == Kind.ANSWER:
            self._relay.answered(message["number"], message["answer"])
        elif kind == Kind.CERTIFICATES_READ:
            assert self._certificates is not None
            self._certificates.keep_up()
        elif kind != Kind.PONG:
            assert kind == Kind.APPLIED
            self._topics.applied(worker, message["number"])

    def _send(self, worker: Worker, kind: str, fields: Mapping[str, Any]) -> None:
        """Queue a message for a worker, and send what its channel takes."""
        worker.unsent += line(kind, **fields)
        self._write(worker)

    def _write(self, worker: Worker) -> None:
        """Send as much of the queue as a worker's channel takes."""
        assert worker.channel is not None
        try:
            del worker.unsent[: worker.channel.send(worker.unsent)]
        except BlockingIOError:
            pass
        except OSError:
            worker.unsent.clear()  # the worker has ended; the next read finds that out
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if worker.unsent else 0)
        self._selector.modify(worker.channel, events, self._selector.get_key(worker.channel).data)

    def _hang_up(self, worker: Worker) -> None:
        """Close a worker's channel."""
        if worker.channel is None:
            return
        self._liveness.forget(worker)
        self._selector.unregister(worker.channel)
        worker.channel.close()
        worker.channel = None
        self._topics.forget(worker)
        self._relay.forget(worker)


def close_all(bound: Bound) -> None:
    """Close listening sockets."""
    for _, listening in bound:
        listening.close()
