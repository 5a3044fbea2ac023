"""The fields of a JoinGroup about its member; `join` and `static` share them."""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from operator import attrgetter

from coordinator.group.events import JoinGroup
from coordinator.group.group import Group, Member, Waiting
from coordinator.group.turn import Turn

SHARED_LISTS, SHARED_MAX, SHARED_BYTES_MAX = 1024, 16, 1024
"""How many lists of protocols members share, and how many protocols and bytes a list may have: about a megabyte. Most
members of a group send the same list.
"""

_NAME_AND_METADATA = attrgetter("name", "metadata")


def update(turn: Turn, group: Group, member: Member, event: JoinGroup, waiting: Waiting | None) -> None:
    """Take over a member's new data."""
    member.joined_by = event.client
    # The two functions below are called only where they have something to find out.
    protocols = event.protocols or protocols_of(event)
    body = event.body
    rebalance_timeout_ms = body.rebalance_timeout_ms if event.version else rebalance_timeout_of(event)
    group.update(member, protocols, rebalance_timeout_ms, body.session_timeout_ms, waiting)
    turn.watch(group, member)


def protocols_of(event: JoinGroup) -> list[tuple[str, bytes]]:
    """The protocols of a join, in its order of preference."""
    if event.protocols is None:
        protocols: list[tuple[str, bytes]] = list(map(_NAME_AND_METADATA, event.body.protocols))
        is_small = len(protocols) <= SHARED_MAX and sum(map(len, chain.from_iterable(protocols))) <= SHARED_BYTES_MAX
        event.protocols = _shared(tuple(protocols)) if is_small else protocols
    return event.protocols


@lru_cache(SHARED_LISTS)
def _shared(protocols: tuple[tuple[str, bytes], ...]) -> list[tuple[str, bytes]]:
    """One list for all members with these protocols: it takes a fifth of a member's memory, and nobody changes it."""
    return list(protocols)


def rebalance_timeout_of(event: JoinGroup) -> int:
    """The rebalance timeout of a join. Version 0 has none, so its session timeout counts."""
    return event.body.session_timeout_ms if event.version == 0 else event.body.rebalance_timeout_ms
