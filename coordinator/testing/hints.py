"""Hints of an error about a wait in vain, where the mistake is usually another one than the wait's words suggest.

    no member in the group    a wrong group id, a client that asks another server
    a topic that isn't there  a client asked for it, so its consumer has nothing to read
    a time that stands still  no session ends, and no timer rings
    returns of members        dynamic members have none, and the first after a start of the server is a rejoin
    a loop that stood still   an async test that waited on the thread of its own consumers

House rule: facts of the server, no guesses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping

from coordinator.text import names_text

NAMES_SHOWN = 20
"""Topics, groups and clients that a line names."""

LOOP_HELD_UP = (
    "this wait held up the event loop of its thread: consumers on that loop stood still meanwhile; "
    "in an async test: await asyncio.to_thread(group.wait_until_stable)"
)

RETURNS = (
    "restarts, rejoins and takeovers count members with a group.instance.id only; a member's first return after a "
    "start of the server is a rejoin"
)


def of_server(
    address: str,
    topics: Mapping[str, int],
    other_groups: Iterable[str],
    requests: Mapping[str, Mapping[str, int]],
) -> list[str]:
    """The things that the server has besides a group without members. requests: see `Requests.by_client`."""
    groups = list(other_groups)
    clients = [
        f"{client_id!r} ({', '.join(f'{api} {number}' for api, number in apis.items())})"
        for client_id, apis in requests.items()
    ]
    return [
        f"topics: {_shown(topics)}" if topics else "the server has no topic",
        *([f"other groups: {_shown(groups)}"] if groups else []),
        f"requests came from {_shown(clients)}" if clients else f"no client sent a request to {address}",
    ]


def of_topics(topics: Collection[str], asked: Mapping[str, Collection[str]]) -> list[str]:
    """A line for each topic that clients asked for and that doesn't exist. asked: see `Requests.topics`."""
    missing = {topic: clients for topic, clients in asked.items() if topic not in topics}
    lines = [
        f"there is no topic {topic!r}, which {_shown(map(repr, clients))} asked for"
        for topic, clients in list(missing.items())[:NAMES_SHOWN]
    ]
    further = len(missing) - len(lines)
    return [*lines, *([f"there are {further} further topics like these"] if further else [])]


def of_time(*, is_frozen: bool) -> list[str]:
    """A line if the server's time stands still."""
    return ["time is frozen: until advance() or thaw() no session ends and no timer rings"] if is_frozen else []


def of_returns(wanted: Collection[str]) -> list[str]:
    """A line if a wait counts returns of members. wanted: the names of all that it waits for."""
    return [RETURNS] if {"restarts", "rejoins", "takeovers"}.intersection(wanted) else []


def of_loop() -> list[str]:
    """A line if this thread has a running event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return []
    return [LOOP_HELD_UP]


def _shown(names: Iterable[str]) -> str:
    return names_text(list(names), most=NAMES_SHOWN)
