"""A refusal that ends a client has one note, whichever rule refuses: which client, why, and until when."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.group.client import Client
from coordinator.group.consumer.heartbeat import TOPICS_MAX
from coordinator.group.coordinator import PROTOCOLS_MAX
from coordinator.group.notes import ClientRefused
from schemas.errors import ErrorCode
from tests.group.consumer.play import Play
from tests.group.harness import Bench

FATAL = {
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.INVALID_REGULAR_EXPRESSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.INVALID_SESSION_TIMEOUT,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.UNSUPPORTED_ASSIGNOR,
    ErrorCode.UNSUPPORTED_VERSION,
}
"""The errors with which a client that wants to join ends, and that no other note names."""

JOINS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"group": ""}, {}),
    ({"session_ms": 1}, {}),
    ({"client": Client("c" * 32_767, "/h"), "version": 4}, {}),
    ({"protocols": [(f"p{number}", b"") for number in range(PROTOCOLS_MAX + 1)]}, {}),
    ({"protocol_type": "connect"}, {}),
    ({"protocols": [("another", b"")], "instance": "b"}, {}),
    ({"instance": "b"}, {"group_max_size": 1}),
]
"""JoinGroups that a group refuses; settings of the coordinator."""


@pytest.mark.parametrize(("says", "settings"), JOINS)
def test_a_refused_join_has_one_note(says: dict[str, Any], settings: dict[str, Any]) -> None:
    """Whoever looks after a client that ends finds out which one it was, why, and until when."""
    bench = Bench(**settings)
    bench.seated("a")
    refused = bench.join(**says)
    (note,) = bench.said(ClientRefused)
    assert refused.error in FATAL
    assert (note.error, note.group_instance_id) == (refused.error.name, says.get("instance"))
    assert note.why
    assert note.until


HEARTBEATS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"topics": ["t"], "timeout_ms": -1}, {}),
    ({"topics": [f"t{number}" for number in range(TOPICS_MAX + 1)]}, {}),
    ({"assignor": "none"}, {}),
    ({"regex": "(", "regex_error": "missing )", "topics": None}, {}),
    ({"epoch": 3}, {}),
    ({}, {"group_consumer_max_size": 1}),
    ({}, {"group_coordinator_rebalance_protocols": ("classic",)}),
]
"""Heartbeats that a group refuses; settings of the coordinator."""


@pytest.mark.parametrize(("says", "settings"), HEARTBEATS)
def test_a_refused_heartbeat_has_one_note(play: Play, says: dict[str, Any], settings: dict[str, Any]) -> None:
    """The same in the consumer protocol. A client that leaves doesn't end because of the answer."""
    play.join("a")
    play.configure(**settings)
    if "epoch" in says:
        answer = play.beat("b", says["epoch"], group="absent")
        assert play.beat("b", -1, group="absent").error_code == answer.error_code
    else:
        answer = play.join("b", **says)
    (note,) = [note for note in play.notes if isinstance(note, ClientRefused)]
    assert answer.error_code in FATAL
    assert (note.error, note.member_id) == (ErrorCode(answer.error_code).name, "b")
    assert note.why
    assert note.until


def test_a_refused_join_of_a_consumer_group_has_one_note() -> None:
    """The same for classic members there; an error after which the client goes on has none."""
    for settings, says, error in (
        ({}, {"metadata": b"no"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"group_consumer_migration_policy": "disabled"}, {}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({}, {"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"group_consumer_max_size": 1}, {}, ErrorCode.GROUP_MAX_SIZE_REACHED),
        ({}, {"instance_id": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        play = Play()
        play.join("a")
        play.configure(**settings)
        assert play.classic_join("m", **says).error_code == error
        noted = [note.error for note in play.notes if isinstance(note, ClientRefused)]
        assert noted == ([error.name] if error in FATAL else [])
