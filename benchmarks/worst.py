"""`python -m benchmarks.worst`: the worst that one request of each API does to the others.

A server is started for each API and size, and a victim joins a group there: a static member that sends a heartbeat
every few milliseconds. Another client sends each large request that the API has (tests/support/large.py), one after the
other. The table shows the victim's longest heartbeat, and how much memory the server took beside what it had before,
each for the request that was the worst.

The victim is a thread of this process, so its figures include a moment of this process's own work; only sockets are
used while it measures.

House rule: only the server that was started here is loaded.
"""

from __future__ import annotations

import gc
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich import box
from rich.table import Table

from benchmarks import frames, report, servers
from benchmarks.members import Group, accept
from benchmarks.meter import peak_bytes, resident_bytes
from benchmarks.stage import cpus, progress
from schemas.api_keys import API_KEYS
from tests.support.large import Shape, fitting, shapes

KB, MB = 1024, 1024 * 1024
SIZES = (64 * KB, MB, 10 * MB, 100 * MB)
ELEMENTS_MAX = 100_000
"""See tenure.request.max.elements."""

PAUSE_S = 0.003
"""Between two heartbeats of the victim."""

SWITCH_S = 0.0002
"""How long a thread of this process keeps Python's lock while the other wants it."""

ANSWERED_WITHIN_S = 120.0
QUIET_S = 0.02
"""How long the victim goes on behind an answer: the server may have to clean up."""

GOAL_MS, GOAL_FACTOR, GOAL_BYTES = 50.0, 4, 64 * MB
"""The limits of one request: the victim's longest heartbeat in ms; memory, as a multiple of its size plus bytes."""


class Cost(NamedTuple):
    """The cost of a request. size: of its frame. beside, behind: bytes at most meanwhile, and when it was over."""

    shape: Shape
    size: int
    longest_ms: float
    beside: int
    behind: int
    took_s: float

    @property
    def too_much(self) -> bool:
        """Whether it took more memory than the goal."""
        return self.beside > GOAL_FACTOR * self.size + GOAL_BYTES


class Victim:
    """A static member of a group of its own. longest_s: its longest heartbeat since `reset`."""

    def __init__(self, port: int) -> None:
        self.longest_s = 0.0
        self._socket = socket.create_connection(("127.0.0.1", port), ANSWERED_WITHIN_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        group = Group("victim", 1, static=True)
        (member,) = group.members
        error, member.generation, _, member.member_id = frames.joined(self._ask(group.join_frame(member)))
        accept(error, "JoinGroup")
        sync = frames.sync("victim", static=True, assignments={member.member_id: b""})
        accept(
            frames.error_of(self._ask(sync.fill(0, frames.generation(member.generation), *member.identity()))), "sync"
        )
        start, rest = group.heartbeat(member)
        self._beat = start + frames.pack_id(0) + rest
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.failure: Exception | None = None
        self._thread.start()

    def _ask(self, frame: bytes) -> bytes:
        self._socket.sendall(frame)
        head = self._socket.recv(frames.SIZE_BYTES, socket.MSG_WAITALL)
        if len(head) < frames.SIZE_BYTES:
            raise ConnectionResetError("the victim's connection was closed")
        return head + self._socket.recv(int.from_bytes(head), socket.MSG_WAITALL)

    def _run(self) -> None:
        try:
            while not self._ended.wait(PAUSE_S):
                began_s = time.perf_counter()
                accept(frames.error_of(self._ask(self._beat)), "Heartbeat")
                self.longest_s = max(self.longest_s, time.perf_counter() - began_s)
        except Exception as error:  # noqa: BLE001 - `close` raises it
            self.failure = error

    def reset(self) -> None:
        """Measure anew."""
        self.longest_s = 0.0

    def close(self) -> None:
        """Stop. Raises what ended the heartbeats, if anything did."""
        self._ended.set()
        self._thread.join()
        self._socket.close()
        if self.failure is not None:
            raise self.failure


@contextmanager
def collector_off() -> Iterator[None]:
    """This process doesn't stop for its own garbage meanwhile, and its threads alternate quickly."""
    gc.disable()
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(interval_s)
        gc.enable()


def costs(api: str, size: int) -> Iterator[Cost]:
    """Measure each large request of an API, in one server."""
    server_cpus, generator_cpus = cpus()
    settings = {"tenure.topics": "orders:3", "offsets.topic.num.partitions": "4"}
    with servers.tenure(settings, server_cpus) as server, servers.pinned(generator_cpus), collector_off():
        for shape in shapes(api):
            data = fitting(shape, size, ELEMENTS_MAX)
            victim = Victim(server.port)
            time.sleep(QUIET_S)
            Path(f"/proc/{server.pid}/clear_refs").write_text("5")
            before = resident_bytes(server.pid)
            victim.reset()
            began_s = time.perf_counter()
            answered(server.port, data)
            took_s = time.perf_counter() - began_s
            time.sleep(QUIET_S)
            while victim.longest_s == 0 and victim.failure is None:
                time.sleep(PAUSE_S)  # a busy machine gave the victim no turn
            victim.close()
            beside, behind = (found(server.pid) - before for found in (peak_bytes, resident_bytes))
            yield Cost(shape, len(data), victim.longest_s * 1000, beside, behind, took_s)


def answered(port: int, data: bytes) -> None:
    """Send a request, and return when it was answered, or its connection closed."""
    with socket.create_connection(("127.0.0.1", port), ANSWERED_WITHIN_S) as client:
        room = memoryview(bytearray(MB))
        try:
            client.sendall(data)
            left = int.from_bytes(client.recv(frames.SIZE_BYTES, socket.MSG_WAITALL))
            while left > 0 and (got := client.recv_into(room, min(left, MB))):
                left -= got
        except ConnectionError:
            return


def main(
    apis: Annotated[list[str] | None, typer.Argument(help="All, if none is given.")] = None,
    sizes: Annotated[str, typer.Option(help="Of the requests, in KB, with commas.")] = "64,1024,10240,102400",
    each: Annotated[bool, typer.Option(help="Also print each request.")] = False,  # noqa: FBT002 - an option, as typer has it
) -> None:
    """Show what the worst request of each API costs the other clients of a server."""
    for api in apis or ():
        if api not in API_KEYS:
            raise typer.BadParameter(f"{api}: of {', '.join(API_KEYS)}")
    wanted = [int(size) * KB for size in sizes.split(",")]
    rows: dict[tuple[str, int], list[Cost]] = {}
    for api in apis or API_KEYS:
        for size in wanted:
            found = rows[api, size] = []
            try:
                for cost in costs(api, size):
                    found.append(cost)
                    if each:
                        progress.print(line(cost), highlight=False)
            except (OSError, ChildProcessError) as error:
                progress.print(f"{api}, {size // KB} KB: {error}")
    report.console().print(table(wanted, rows))


def line(cost: Cost) -> str:
    """One request."""
    return (
        f"{cost.longest_ms:9.1f} ms {cost.beside / MB:8.1f} MB, {cost.behind / MB:8.1f} MB behind it, "
        f"{cost.took_s:6.2f} s  {cost.shape} {cost.size / KB:.0f} KB"
    )


def table(sizes: list[int], rows: dict[tuple[str, int], list[Cost]]) -> Table:
    """A line for each API: the longest heartbeat and the most memory, for each size."""
    shown = Table("API", *(f"{size // KB:,} KB" for size in sizes), box=box.SIMPLE, title_justify="left")
    shown.title = (
        f"The victim's longest heartbeat (goal: {GOAL_MS:g} ms), and memory beside the server's own "
        f"(goal: {GOAL_FACTOR} times the request and {GOAL_BYTES // MB} MB; ! if above)"
    )
    for api in dict.fromkeys(api for api, _ in rows):
        cells = []
        for size in sizes:
            found = rows[api, size]
            if not found:
                cells.append("failed")
                continue
            longest = max(cost.longest_ms for cost in found)
            most = max(cost.beside for cost in found)
            mark = "!" if any(cost.too_much for cost in found) else ""
            cells.append(f"{longest:,.0f} ms, {most / MB:,.0f} MB{mark}")
        shown.add_row(api, *cells)
    return shown


if __name__ == "__main__":
    typer.run(main)
