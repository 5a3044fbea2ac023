"""The works: what is done to a server, and what is read off meanwhile.

A work is a function of a `Bench`, the server that it loads, and of its own parameters; it returns figures by name, in
the unit that the name ends with. It prepares (groups are formed, load runs until it is steady), reads the meter, works,
and reads again: what a figure counts begins with the first byte sent after the first reading and ends with the last
answer before the second.

House rule: an answer that isn't the expected one ends the work; no figure is made of refusals.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from benchmarks import frames
from benchmarks.driver import Driver, Script, clock
from benchmarks.members import Group, Refused
from benchmarks.meter import Meter, surroundings

US = 1e6

Figures = dict[str, float]
Item = TypeVar("Item")


class Bench(NamedTuple):
    """A server to load. tag: makes the names of this run's groups its own. plain: no Kafka, it only echoes."""

    host: str
    port: int
    meter: Meter
    tag: str
    plain: bool

    def driver(self) -> Driver:
        """Connections to it, none yet."""
        return Driver(self.host, self.port)


def form(bench: Bench, driver: Driver, size: int, *, static: bool = True, name: str = "") -> Group:
    """A group of `size` members, one on each of the first connections; stable, unless the server only echoes."""
    group = Group(f"{bench.tag}{name}", size, static=static)
    if bench.plain:
        for member in group.members:
            # As long as the ids that real servers give.
            member.member_id = f"{member.instance_id or frames.CLIENT_ID}-{'0' * 36}"
            member.generation = 1
        return group
    for number in range(size):
        driver.start(driver.links[number], group.seat(number))
    driver.run()
    return group


def heartbeats(members: list[tuple[bytes, bytes]], took: list[float]) -> Script:
    """Heartbeats without a pause, of these members in turn, for ever; how long each took goes to `took`, in seconds."""
    done = frames.HEARTBEAT_DONE
    for number, (start, rest) in enumerate(itertools.cycle(members)):
        correlation_id = frames.pack_id(number)
        began = clock()
        answer = yield start + correlation_id + rest
        took.append(clock() - began)
        if answer[8:] != done or answer[4:8] != correlation_id:
            raise Refused(f"Heartbeat: {answer.hex(' ')}")


def steady(bench: Bench, driver: Driver, seconds: float, took: list[float]) -> Figures:
    """Let the scripts run: a fifth of the time to get going, the rest measured."""
    driver.run(seconds / 5)
    took.clear()
    began = bench.meter.sample()
    driver.run(seconds)
    used = bench.meter.since(began)
    requests = len(took)
    took.sort()
    return {
        "requests": requests,
        "cpu_us_per_request": used.server_s / requests * US,
        "generator_us_per_request": used.generator_s / requests * US,
        "requests_per_s": requests / used.wall_s,
        "latency_p50_us": percentile(took, 0.5) * US,
        "latency_p99_us": percentile(took, 0.99) * US,
        **surroundings(used),
    }


def percentile(ordered: list[float], part: float) -> float:
    """The value that this part of the ordered values doesn't exceed."""
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]


def heartbeat(
    bench: Bench, *, connections: int = 64, members: int = 0, depth: int = 1, seconds: float = 2.0
) -> Figures:
    """Heartbeats of the members of one group, as fast as they are answered.

    members: as many as there are connections if 0; if there are more, they form several groups, and each connection
    sends for its members in turn. depth: requests under way on a connection.
    """
    with bench.driver() as driver:
        driver.connect(connections)
        members = members or connections
        halves: list[list[tuple[bytes, bytes]]] = [[] for _ in range(connections)]
        for first in range(0, members, connections):
            group = form(bench, driver, min(connections, members - first), name=f"-{first}")
            for number, member in enumerate(group.members):
                halves[number].append(group.heartbeat(member))
        took: list[float] = []
        for number, link in enumerate(driver.links):
            mine = halves[number] or halves[0]
            driver.start(link, *(heartbeats(mine, took) for _ in range(depth)))
        return steady(bench, driver, seconds, took)


def answer_bytes(work: str, parameters: dict[str, Any]) -> int:
    """How large an answer of the measured kind is: what the echo has to send."""
    if work == "commit":
        return 8 + len(frames.commit_errors(parameters.get("partitions", 1)))
    return 8 + len(frames.HEARTBEAT_DONE)


WORKS: dict[str, Callable[..., Figures]] = {"heartbeat": heartbeat}
