"""The members of a benchmark's group of the consumer protocol, against the core in place of a server."""

from __future__ import annotations

from contextlib import suppress

import pytest

from benchmarks import frames
from benchmarks.consumers import STEADY, VERSION, ConsumerGroup
from benchmarks.driver import Script
from benchmarks.members import UnexpectedAnswer
from coordinator.group.events import ConsumerHeartbeat
from protocol.header import decode_request_header, encode_response
from protocol.messages import API_KEYS, ConsumerGroupHeartbeatRequest, decode
from tests.group.consumer.play import CLIENT, Play

ROUNDS = 50


def served(play: Play, frame: bytes) -> bytes:
    """The answer to a request."""
    header = decode_request_header(frame[frames.SIZE_BYTES :])
    body = decode(ConsumerGroupHeartbeatRequest, frame[frames.SIZE_BYTES :], VERSION, header.body_offset)
    answer = play.handle(ConsumerHeartbeat("r", VERSION, CLIENT, body, "fresh"))
    return encode_response(API_KEYS["ConsumerGroupHeartbeat"], VERSION, header.correlation_id, answer)


def run(play: Play, *scripts: Script) -> None:
    """Run scripts side by side to their ends; their waits take no time."""
    waiting: list[tuple[Script, bytes | float]] = [(script, next(script)) for script in scripts]
    for _ in range(ROUNDS):
        going = []
        for script, wish in waiting:
            with suppress(StopIteration):
                # A script that waits for a time gets no answer.
                going.append((script, script.send(served(play, wish)) if isinstance(wish, bytes) else next(script)))
        waiting = going
    assert not waiting


def complete(size: int, partitions: int) -> tuple[Play, ConsumerGroup]:
    """A group whose members have all come in."""
    play = Play({"t": partitions})
    group = ConsumerGroup("g", size, ["t"], partitions, static=True)
    run(play, *(group.seat(number) for number in range(size)))
    return play, group


def test_a_group_is_complete_when_all_have_their_share() -> None:
    """All members are at one epoch then, and no partition is left."""
    play, group = complete(3, 6)
    assert group.completed is not None
    assert play.state() == "Stable"
    assert [member.owned_count for member in group.members] == [2, 2, 2]
    assert {member.epoch for member in group.members} == {play.group.generation}


def test_a_steady_heartbeat_has_the_answer_that_it_had() -> None:
    """So the load generator can compare bytes; the echo's answer is as long."""
    play, group = complete(2, 2)
    for member in group.members:
        start, rest = group.heartbeat(member)
        answer = served(play, start + frames.pack_id(7) + rest)
        assert answer[8:] == member.steady
        assert len(answer[8:]) == len(STEADY)


def test_a_static_member_restarts_and_has_the_same() -> None:
    """It comes back under another member id, without an epoch for the others."""
    play, group = complete(2, 2)
    before = play.group.generation
    run(play, group.restart(group.members[0]))
    assert group.members[0].life == 1
    assert play.group.generation == before


def test_a_restart_that_moves_something_ends_the_work() -> None:
    """No figure counts it."""
    play, group = complete(2, 2)
    play.join("another")
    with pytest.raises(UnexpectedAnswer):
        run(play, group.restart(group.members[0]))


def test_a_refused_heartbeat_ends_the_work() -> None:
    """Its error is named."""
    play, group = complete(1, 1)
    assert group.completed is not None
    with pytest.raises(UnexpectedAnswer, match="UNRELEASED_INSTANCE_ID"):
        run(play, ConsumerGroup("g", 1, ["t"], 1, static=True).seat(0))
