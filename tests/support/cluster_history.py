"""The history of a cluster: the requests of a probe as values, and rules that find what was wrong with them.

A probe (`cluster_probe`) notes each request with the time it was sent and the time of its answer, on one clock. Each
group has one writer of committed offsets, which writes 1, 2, 3, ... and never writes a number twice. So a few
comparisons find each history that can't be right:

    stale read      an answer older than a commit that was acknowledged before the read was sent
    backward read   a read that began after another had ended, with an older answer than that one
    unwritten read  a number that nobody had sent yet
    late yes        a node said yes to a request although another node had served the group both before the request and
                    after the answer: it wasn't the coordinator any more. A frozen node finds the request when it wakes
                    up

House rule: pure; nothing in here knows sockets, processes or a kind of server.
"""

from __future__ import annotations

import bisect
import itertools
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

OK = 0
SANDWICH_S = 3.0
"""Two answers of another node that are that close, on both sides of a yes, prove a late yes. Between answers further
apart, the group may have moved there and back.
"""
UNANSWERED_S = 1.0
"""A member gives a request up after that time. So its node may have ended at any moment of it."""


class Asked(NamedTuple):
    """A request of a group, and what came of it.

    kind: heartbeat, commit, fetch, join; `stood_still` makes one more. member: its number in the group; -1 for an
    anchor, which keeps asking the node that was the coordinator once. node: the number of the node that was asked. got:
    None where no answer came, and so it may have been done or not. error: Kafka's code. value: the offset that was
    written or read, -1 without any.
    """

    group: str
    kind: str
    member: int
    node: int
    sent: float
    got: float | None
    error: int | None
    value: int = -1

    @property
    def is_yes(self) -> bool:
        """Whether it was answered without an error."""
        return self.error == OK


def stood_still(node: int, began: float, ended: float) -> Asked:
    """A node was frozen between two moments: no thread of it ran. It's part of the history, and no request."""
    return Asked("", "stood still", -1, node, began, ended, None)


class Wrong(NamedTuple):
    """Something that must not be. request: the one that shows it; against: what it contradicts."""

    what: str
    request: Asked
    against: Asked | None

    def __str__(self) -> str:
        return f"{self.what}: {self.request}, against {self.against}"


def wrongs(history: Sequence[Asked]) -> list[Wrong]:
    """All that was wrong, group by group."""
    groups = by_group(history)
    return [
        wrong
        for each in groups.values()
        for wrong in (*stale_reads(each), *backward_reads(each), *unwritten_reads(each))
    ] + late_yeses(history)


def by_group(history: Iterable[Asked]) -> dict[str, list[Asked]]:
    """The requests of each group."""
    groups: dict[str, list[Asked]] = defaultdict(list)
    for each in history:
        groups[each.group].append(each)
    return groups


def _reads(requests: Sequence[Asked]) -> list[Asked]:
    return sorted((each for each in requests if each.kind == "fetch" and each.is_yes), key=lambda each: each.sent)


def _highest_before(ended: Sequence[Asked]) -> tuple[list[float], list[Asked]]:
    """Times at which the highest value grew, and the request that made it grow; by the time of the answer."""
    times: list[float] = []
    highest: list[Asked] = []
    for each in sorted(ended, key=lambda each: each.got or 0.0):
        if not highest or each.value > highest[-1].value:
            times.append(each.got or 0.0)
            highest.append(each)
    return times, highest


def _older_than(reads: Sequence[Asked], ended: Sequence[Asked], what: str) -> list[Wrong]:
    """The reads that were sent after one of `ended` was answered, and have a lower value."""
    times, highest = _highest_before(ended)
    found = []
    for read in reads:
        place = bisect.bisect_left(times, read.sent)
        if place and highest[place - 1].value > read.value:
            found.append(Wrong(what, read, highest[place - 1]))
    return found


def stale_reads(requests: Sequence[Asked]) -> list[Wrong]:
    """Reads older than a commit that was acknowledged before they were sent; of one group."""
    commits = [each for each in requests if each.kind == "commit" and each.is_yes and each.member >= 0]
    return _older_than(_reads(requests), commits, "stale read")


def backward_reads(requests: Sequence[Asked]) -> list[Wrong]:
    """Reads older than an earlier read; of one group."""
    reads = _reads(requests)
    return _older_than(reads, reads, "backward read")


def unwritten_reads(requests: Sequence[Asked]) -> list[Wrong]:
    """Reads of a number that had not been sent when the answer came; of one group."""
    sent = {each.value: each for each in requests if each.kind == "commit" and each.member >= 0}
    found = []
    for read in _reads(requests):
        write = sent.get(read.value)
        if read.value >= 0 and (write is None or (read.got is not None and write.sent > read.got)):
            found.append(Wrong("unwritten read", read, write))
    return found


def late_yeses(history: Sequence[Asked]) -> list[Wrong]:
    """Answers of a node that said yes while another node served the group.

    The other node had said yes before this one can have decided (`_decided_from`), and was asked again after the answer
    came, and said yes. If it may have said no, or nothing, in between, the group may have moved away from it and back.
    """
    stills: dict[int, list[tuple[float, float]]] = defaultdict(list)
    groups = by_group(history)
    for each in groups.pop("", []):
        stills[each.node].append((each.sent, each.got or math.inf))
    return [wrong for each in groups.values() for wrong in _late_yeses(each, stills)]


def _late_yeses(requests: Sequence[Asked], stills: Mapping[int, Sequence[tuple[float, float]]]) -> list[Wrong]:
    """Those of one group. stills: when each node stood still."""
    yeses = sorted((each for each in requests if each.is_yes), key=lambda each: each.got or 0.0)
    noes: dict[int, list[Asked]] = defaultdict(list)
    for each in requests:
        if not each.is_yes:
            noes[each.node].append(each)
    found = []
    for place, each in enumerate(yeses):
        decided_from = _decided_from(each, stills.get(each.node, ()))
        before = _other((yeses[earlier] for earlier in range(place - 1, -1, -1)), each, ended_before=decided_from)
        after = _other((yeses[later] for later in range(place + 1, len(yeses))), each, sent_after=each.got or math.inf)
        if before is None or after is None or before.node != after.node:
            continue
        is_short = (after.got or 0.0) - (before.got or 0.0) < SANDWICH_S
        if is_short and not any(_may_be_between(no, before, after) for no in noes[before.node]):
            found.append(Wrong("late yes", each, before))
    return found


def _decided_from(each: Asked, stills: Iterable[tuple[float, float]]) -> float:
    """The time before which the node can't have decided the answer; stills: when it stood still.

    That is the time at which it was sent. But a node that stood still then found the request when it went on. A request
    from before may have its answer from before: the last step of a node that stops may be to decide.
    """
    return next((ended for began, ended in stills if began <= each.sent < ended), each.sent)


def _may_be_between(no: Asked, before: Asked, after: Asked) -> bool:
    """Whether a node may have decided a no, or ended, between its answers to two other requests.

    Answers on several connections aren't noted in the order in which the node decided. So what counts is that a time
    between a request and its answer is such a time of the others.
    """
    ended = no.sent + UNANSWERED_S if no.got is None else no.got
    return ended > before.sent and no.sent < (after.got or math.inf)


def _other(
    yeses: Iterable[Asked], each: Asked, *, ended_before: float = math.inf, sent_after: float = -math.inf
) -> Asked | None:
    """The nearest of the answers that is another node's, within SANDWICH_S."""
    for other in yeses:
        if abs((other.got or 0.0) - (each.got or 0.0)) > SANDWICH_S:
            return None
        if other.node != each.node and (other.got or 0.0) < ended_before and other.sent > sent_after:
            return other
    return None


def lost_commits(history: Sequence[Asked], committed: dict[str, int]) -> list[str]:
    """The groups whose committed offset is below an acknowledged one; committed: read when all was over."""
    found = []
    for group, requests in by_group(history).items():
        acknowledged = max(
            (each.value for each in requests if each.kind == "commit" and each.is_yes and each.member >= 0), default=-1
        )
        if committed.get(group, -1) < acknowledged:
            found.append(f"{group}: {acknowledged} was acknowledged, {committed.get(group, -1)} is there")
    return found


def gaps(history: Iterable[Asked], began: float, ended: float, *, each_member: bool = False) -> dict[str, float]:
    """The longest time without any yes between two moments: of each group, or of each member. Anchors don't count."""
    yeses: dict[str, list[float]] = defaultdict(list)
    for each in history:
        name = f"{each.group}/{each.member}" if each_member else each.group
        times = yeses[name] if each.member >= 0 else []
        if each.is_yes and each.got is not None and began <= each.got <= ended:
            times.append(each.got)
    found = {}
    for name, times in yeses.items():
        edges = [began, *sorted(times), ended]
        found[name] = max(later - earlier for earlier, later in itertools.pairwise(edges))
    return found


def percentile(values: Iterable[float], share: float) -> float:
    """The value that `share` of all values don't exceed; 0 without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def write(history: Iterable[Asked], file: Path) -> None:
    """Write a history, a line of JSON for each request."""
    with file.open("w") as lines:
        for each in history:
            lines.write(json.dumps(each._asdict()) + "\n")


def read(file: Path) -> list[Asked]:
    """The history of a file."""
    return [Asked(**json.loads(line)) for line in file.read_text().splitlines()]
