"""Judges what happened in races: no member that lives was removed, and none whose pod the set always wanted.

It has three histories: the programs of pods, which the stand-in for a kubelet ran; the changes of sets, as the API
server took them; the removals, from the log of the group's server. All have the machine's clock.

House rule: a problem is certain. What may have been in either order is taken for right.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Ran(NamedTuple):
    """The program of a pod. member_id: "" if it never learned it. ended: infinite while it lives."""

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
    """A member was removed by an admin's request."""

    instance_id: str
    member_id: str
    at: float


def problems(programs: Iterable[Ran], changes: list[Change], removals: Iterable[Removal]) -> list[str]:
    """The faults of one group."""
    ran = list(programs)
    found = []
    for removal in removals:
        name, at = removal.instance_id, removal.at
        same = [each for each in ran if each.instance_id == name]
        owners = [each for each in same if each.member_id == removal.member_id]
        owners = owners or [each for each in same if not each.member_id and each.began < at]
        if not owners:
            found.append(f"{name}: {removal.member_id}, of no program, was removed")
        elif any(each.ended > at for each in owners):
            found.append(f"{name}: a member that lives was removed")
        elif not any(may_have_wanted(each.ordinal, changes, each.ended, at, wants=False) for each in owners):
            found.append(f"{name}: a member was removed whose pod comes back")
    return found


def may_have_wanted(ordinal: int, changes: list[Change], since: float, until: float, *, wants: bool) -> bool:
    """Whether a set may have wanted an ordinal for a moment of that time, or not have wanted it."""
    ends = [*(change.answered for change in changes[1:]), float("inf")]
    return any(
        (ordinal in change.ordinals) == wants and change.sent <= until and end >= since
        for change, end in zip(changes, ends, strict=True)
    )
