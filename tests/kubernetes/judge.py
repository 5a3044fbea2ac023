"""Judges what happened in races: no member that lives was removed, and none whose pod the set always wanted.

It has three histories: the programs of pods, which the stand-in for a kubelet ran; the changes of sets, as the API
server took them; the removals, from the log of the group's server. All have the machine's clock.

House rule: a problem is certain. What may have been in either order is taken for right.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Ran(NamedTuple):
    """The program of a pod. member_id: the last one that it learned, or "". ended: infinite while it lives."""

    instance_id: str
    member_id: str
    ordinal: int
    began: float
    ended: float


class Change(NamedTuple):
    """A set wants other ordinals: from a moment between `sent` and `answered` on."""

    ordinals: range
    sent: float
    answered: float


class Removal(NamedTuple):
    """A member was removed by an admin's request.

    joined: when it got its member id; None if the log lacks that line, because the server was killed.
    """

    instance_id: str
    member_id: str
    joined: float | None
    at: float


def problems(programs: Iterable[Ran], changes: list[Change], removals: Iterable[Removal]) -> list[str]:
    """The faults of one group."""
    ran = list(programs)
    found = []
    for removal in removals:
        name, at = removal.instance_id, removal.at
        owners = _owners([each for each in ran if each.instance_id == name], removal)
        if not owners:
            found.append(f"{name}: {removal.member_id}, of no program, was removed")
        elif all(each.ended > at for each in owners):
            found.append(f"{name}: a member that lives was removed")
        elif not any(may_have_wanted(each.ordinal, changes, each.ended, at, wants=False) for each in owners):
            found.append(f"{name}: a member was removed whose pod comes back")
    return found


def _owners(same: list[Ran], removal: Removal) -> list[Ran]:
    """The programs of one instance id of which one had the member that was removed.

    A program that joins again has another member id, and one that ends while it joins never learns its own. A server
    that stood still takes the JoinGroup of a program that has ended.
    """
    known = [each for each in same if each.member_id == removal.member_id]
    joined = removal.joined
    if joined is None:
        return known or [each for each in same if each.began <= removal.at]
    begun = [each for each in same if each.began <= joined]
    return known or [each for each in begun if each.ended >= joined] or begun


def may_have_wanted(ordinal: int, changes: list[Change], since: float, until: float, *, wants: bool) -> bool:
    """Whether a set may have wanted an ordinal for a moment of that time, or not have wanted it."""
    ends = [*(change.answered for change in changes[1:]), float("inf")]
    return any(
        (ordinal in change.ordinals) == wants and change.sent <= until and end >= since
        for change, end in zip(changes, ends, strict=True)
    )
