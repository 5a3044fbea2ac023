"""`python -m benchmarks.cost`: measures the cost of events in a rebalance, also on a busy machine.

Two servers in this process, one of them without events, do the same rebalances in turn: the leader of a group of static
members joins again, the others follow, all sync. There are no sockets, so that nearly all of the CPU is Tenure's. The
log and the topic of events are files in memory where the system has such files. A turn counts the CPU of the whole
process until the events are written. The program compares each turn with the turn of the other server beside it. Turns
are short because a shared machine changes its speed for seconds at a time. After some turns the program makes both
servers anew in the other order, because the place of objects in memory alone makes one of two equal servers faster by a
few percent.

House rule: the servers differ in `tenure.events.enable` and in nothing else.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles
from time import process_time
from typing import Annotated, Any, NamedTuple, TextIO

import typer
import uvloop

from benchmarks import frames
from benchmarks.members import Group, accept
from coordinator.config import load
from coordinator.server.app import Server
from coordinator.server.nodes.events_topic import LINGER_MS
from coordinator.server.wire.connection import Connection

MEMORY = "/dev/shm"  # noqa: S108 - where Linux has files in memory; in a folder of their own there
INITIAL_DELAY_MS = 300
WARM_UP = 20
MEMBERS_PER_TURN = 1_000
"""Rebalances in a turn, times members: a tenth to a fifth of a second, about as long as events linger."""
TURN_MIN = 10
PAIRS_OF_SERVERS = 5
"""Turns of two servers before the program makes them anew."""
WRITTEN_S = 2 * LINGER_MS / 1000
"""After this time all events of a turn are written."""


class Due:
    """The number of answers that a group waits for; `there` is set when none is missing."""

    def __init__(self) -> None:
        self.count = 0
        self.there = asyncio.Event()


class Wire(asyncio.Transport):
    """A connection's other end: sends requests, and takes the answer."""

    def __init__(self, server: Server, due: Due) -> None:
        super().__init__()
        self._due = due
        self.answer = b""
        self._connection = Connection(server.connections, "PLAINTEXT")
        self._connection.connection_made(self)

    def send(self, request: bytes) -> None:
        """Pass a request to the server."""
        self._connection.data_received(request)

    def write(self, data: Any) -> None:
        """Take the answer; see asyncio.Transport."""
        self.answer = data
        self._due.count -= 1
        if self._due.count == 0:
            self._due.there.set()

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ARG002 - as a transport's
        """See asyncio.Transport."""
        return ("127.0.0.1", 0)

    def is_closing(self) -> bool:
        """See asyncio.Transport."""
        return False

    def close(self) -> None:
        """See asyncio.Transport."""
        asyncio.get_running_loop().call_soon(self._connection.connection_lost, None)

    def abort(self) -> None:
        """See asyncio.Transport."""

    def pause_reading(self) -> None:
        """See asyncio.Transport."""

    def resume_reading(self) -> None:
        """See asyncio.Transport."""


class Compared(NamedTuple):
    """The CPU of a rebalance in us for each turn, and the ratios of neighbouring turns."""

    size: int
    without: Sequence[float]
    with_events: Sequence[float]

    def __str__(self) -> str:
        ratios = [dear / cheap for cheap, dear in zip(self.without, self.with_events, strict=True)]
        low, _, high = quantiles(ratios, n=4)
        return (
            f"{self.size:4} members: {median(self.without):7.0f} us without, {median(self.with_events):7.0f} with; "
            f"ratio {median(ratios):.3f} ({low:.3f} to {high:.3f})"
        )


class Side:
    """A group on one of the servers, each member on a connection of its own."""

    def __init__(self, server: Server, size: int) -> None:
        self._group = Group(f"cost-{size}", size, static=True)
        self._sync = frames.sync(self._group.group_id, static=True, assignments={})
        self._given = [frames.assignment(number) for number in range(size)]
        self._due = Due()
        self._wires = [Wire(server, self._due) for _ in range(size)]
        self._leader = 0

    async def rebalance(self) -> float:
        """Do one rebalance; returns its CPU in seconds, without that of later writes."""
        members = self._group.members
        took = await self._ask([self._group.join_frame(member) for member in members], first=self._leader)
        leader_id = ""
        for member, wire in zip(members, self._wires, strict=True):
            error, member.generation, leader_id, member.member_id = frames.joined(wire.answer)
            accept(error, "JoinGroup")
        ids = [member.member_id for member in members]
        self._leader = ids.index(leader_id)
        assign = frames.sync(self._group.group_id, static=True, assignments=dict(zip(ids, self._given, strict=True)))
        syncs = [
            (assign if number == self._leader else self._sync).fill(
                0, frames.generation(member.generation), *member.identity()
            )
            for number, member in enumerate(members)
        ]
        took += await self._ask(syncs, first=self._leader)
        for wire in self._wires:
            accept(frames.error_of(wire.answer), "SyncGroup")
        return took

    async def _ask(self, requests: Sequence[bytes], first: int) -> float:
        self._due.count = len(requests)
        self._due.there.clear()
        order = [first, *(number for number in range(len(requests)) if number != first)]
        began = process_time()
        for number in order:
            self._wires[number].send(requests[number])
        await self._due.there.wait()
        return process_time() - began

    async def turn(self) -> float:
        """Do many rebalances and wait for their events; returns the CPU of one rebalance in us."""
        count = max(TURN_MIN, MEMBERS_PER_TURN // self._group.size)
        gc.collect()
        took = 0.0
        for _ in range(count):
            took += await self.rebalance()
        began = process_time()
        await asyncio.sleep(WRITTEN_S)
        return (took + process_time() - began) / count * 1e6


async def server_with(folder: Path, events: str, log: TextIO) -> Server:
    """Make a server with events, or without ("true", "false")."""
    config, _ = load(
        sets=[
            f"log.dirs={folder / events}",
            "listeners=PLAINTEXT://127.0.0.1:0",
            f"group.initial.rebalance.delay.ms={INITIAL_DELAY_MS}",
            f"tenure.events.enable={events}",
        ]
    )
    server = Server(config, log=log)
    await server.start()
    await server.loaded.wait()
    return server


async def turns_of(folder: Path, log: TextIO, size: int, pairs: int, *, is_first: bool) -> list[tuple[float, float]]:
    """Return the CPU of turns of two new servers, without and with events. is_first: make the one without first."""
    order = ("false", "true") if is_first else ("true", "false")
    servers = {events: await server_with(folder, events, log) for events in order}
    sides = {events: Side(server, size) for events, server in servers.items()}
    for side in sides.values():
        for _ in range(WARM_UP):
            await side.rebalance()
    found = []
    for _ in range(pairs):
        order = order[::-1]
        took = {events: await sides[events].turn() for events in order}
        found.append((took["false"], took["true"]))
    for server in servers.values():
        await server.stop()
    return found


async def compared(folder: Path, log: TextIO, sizes: Sequence[int], pairs: int) -> None:
    """Print a line for each size of group."""
    for size in sizes:
        found: list[tuple[float, float]] = []
        while len(found) < pairs:
            with tempfile.TemporaryDirectory(dir=folder) as own:
                count = min(PAIRS_OF_SERVERS, pairs - len(found))
                is_first = len(found) // PAIRS_OF_SERVERS % 2 == 0
                found += await turns_of(Path(own), log, size, count, is_first=is_first)
            print(f"group of {size}: {len(found)} of {pairs} pairs", file=sys.stderr)
        without, with_events = zip(*found, strict=True)
        print(Compared(size, without, with_events), flush=True)


def main(
    sizes: Annotated[list[int] | None, typer.Argument(help="Members of a group.")] = None,
    pairs: Annotated[int, typer.Option(min=2, help="Turns of each server.")] = 100,
) -> None:
    """Compare rebalances with and without events."""
    with (
        tempfile.TemporaryDirectory(dir=MEMORY if Path(MEMORY).is_dir() else None) as folder,
        Path(os.devnull).open("w") as log,
    ):
        uvloop.run(compared(Path(folder), log, sizes or [1, 5, 20, 100], pairs))


if __name__ == "__main__":
    typer.run(main)
