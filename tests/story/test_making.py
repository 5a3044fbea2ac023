"""Events as records: their JSON, the partitions that moved, and the limits of a record's size."""

from __future__ import annotations

import json
from typing import Any

from coordinator.group import notes
from coordinator.group.causes import Cause, CauseKind, Change, Party, TopicChange
from coordinator.group.client import ANONYMOUS, Client
from coordinator.group.course import Outcome, Phase, Snapshot, Waited
from coordinator.story.making import MEMBERS_MAX, MOVES_MAX, TEXT_MAX, json_fields, moves, record_of
from coordinator.story.schema import Gap, TimedNote
from protocol.messages import ConsumerProtocolAssignment, encode


def assigned(**topics: list[int]) -> bytes:
    """The bytes of an assignment."""
    partitions = [
        ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=indexes) for topic, indexes in topics.items()
    ]
    body = ConsumerProtocolAssignment(assigned_partitions=partitions, user_data=None)
    return b"\x00\x00" + encode(body, 0)


def seat(name: str, assignment: bytes = b"", instance: str | None = None) -> Snapshot:
    """A member with this id."""
    return Snapshot(name, instance, "client", "/10.0.0.1", assignment)


def ended(before: list[Snapshot], after: list[Snapshot], **other: Any) -> notes.RebalanceEnded:
    """The note of a rebalance with these members before and after; a member that left caused it."""
    fields: dict[str, Any] = {
        "group": "g",
        "generation": 4,
        "outcome": Outcome.COMPLETED,
        "generation_before": 3,
        "state": "Stable",
        "causes": (Cause(CauseKind.MEMBER_LEFT, ("m-1",), "i-1", "client", "/10.0.0.1", "bye", None, 5),),
        "further_causes": 0,
        "began_ms": 1_000,
        "preparing_ms": 20,
        "completing_ms": 3,
        "waited_for": Waited("m-1", Phase.PREPARING, 20),
        "late": (),
        "lapsed": (),
        "leader": "m-1",
        "protocol_type": "consumer",
        "protocol_name": "range",
        "before": tuple(before),
        "after": tuple(after),
    }
    return notes.RebalanceEnded(**(fields | other))


def body_of(event: TimedNote | Gap) -> dict[str, Any]:
    """The JSON value of an event's record."""
    value = record_of(event, 7, 6_000).value
    assert value is not None
    body: dict[str, Any] = json.loads(value)
    return body


def test_a_record_has_all_that_the_note_has() -> None:
    """The record has the group as key, its own time, the schema's version, and the fields by the note's names."""
    event = TimedNote(5_000, notes.PendingExpired("g", 3, "m-1"))
    record = record_of(event, 7, 6_000)
    assert (record.key, record.timestamp_ms) == (b"g", 6_000)
    assert body_of(event) == {
        "version": 1,
        "type": "pending_expired",
        "at_ms": 5_000,
        "group": "g",
        "generation": 3,
        "node": 7,
        "member_id": "m-1",
        "left": False,
    }


def test_the_end_of_a_rebalance_is_json_like_any_other_note() -> None:
    """Other code writes this note's JSON, so every field must equal `plain`'s, also with unusual names."""
    odd = 'm"\\\n\x00\u2028\N{SNOWMAN}'
    cause = Cause(CauseKind.MEMBER_JOINED, (odd, "b"), odd, odd, odd, odd, 1, 9)
    causes = (
        cause,
        Cause(CauseKind.SYNC_TIMED_OUT),
        Cause(CauseKind.SYNC_TIMED_OUT, (odd, "b"), members=(Party(odd, odd, odd, odd), Party("b", None, "", ""))),
        Cause(CauseKind.MEMBER_LEFT, reason="the consumer is being closed"),
    )
    odd_seat = Snapshot(odd, odd, odd, odd, assigned(**{odd: [3]}))
    other: dict[str, Any] = {
        "group": odd, "state": odd, "causes": causes, "late": (odd, "a"), "lapsed": (odd,), "leader": odd,
        "protocol_name": odd, "waited_for": Waited(odd, Phase.COMPLETING, 3),
    }  # fmt: skip
    nothing = dict.fromkeys(("completing_ms", "waited_for", "leader", "protocol_type", "protocol_name")) | {
        "causes": ()
    }
    for note in (ended([seat(odd, assigned(t=[1]))], [odd_seat], **other), ended([], [], **nothing)):
        body = body_of(TimedNote(5_000, note))
        for name in note.FIELDS[2:-4]:
            assert body[name] == json_fields(note, [name])[name], name
        assert (body["version"], body["type"], body["at_ms"], body["node"]) == (1, "rebalance_ended", 5_000, 7)
        assert (body["group"], body["generation"]) == (note.group, note.generation)
    body = body_of(TimedNote(5_000, ended([], [odd_seat], **other)))
    (member,) = body["after"]
    assert member == {
        "member_id": odd, "group_instance_id": odd, "client_id": odd, "client_host": odd, "partitions": 1,
    }  # fmt: skip
    assert body["moved"] == [{"topic": odd, "partition": 3, "from": None, "to": odd}]


def test_a_cause_names_the_topics_that_changed() -> None:
    """The record has the topics with their changes, and how many others changed."""
    changes = (TopicChange("t", Change.ADDED), TopicChange("u", Change.REMOVED))
    cause = Cause(CauseKind.SUBSCRIPTION_CHANGED, ("m-1",), topics=changes, further_topics=3)
    body = body_of(TimedNote(1, notes.RebalanceCause("g", 3, cause)))
    assert body["cause"]["topics"] == [{"topic": "t", "change": "added"}, {"topic": "u", "change": "removed"}]
    assert body["cause"]["further_topics"] == 3


def test_what_the_server_knows_is_beside_it() -> None:
    """One such field is the kind of a fencing."""
    note = notes.MemberFenced("g", 3, "m-1", "m-2", "i", "heartbeat")
    assert body_of(TimedNote(1, note, {"kind": "conflict"}))["kind"] == "conflict"


def test_a_client_has_a_principal_once_it_has_authenticated() -> None:
    """Without authentication each client would have the same one."""
    named, nobody = Client("c", "/h", "User:ann"), Client("c", "/h", ANONYMOUS)
    body = body_of(
        TimedNote(1, notes.MemberFenced("g", 3, "m-1", "m-2", "i", "Heartbeat", named, nobody), {"kind": "self"})
    )
    assert body["client"] == {"client_id": "c", "client_host": "/h", "principal": "User:ann"}
    assert body["current_client"] == {"client_id": "c", "client_host": "/h"}


def test_a_gap_says_how_much_is_missing() -> None:
    """A gap belongs to no group."""
    body = body_of(Gap(3, 10, 20))
    assert (body["type"], body["group"], body["events"], body["first_ms"], body["last_ms"]) == (
        "events_dropped",
        None,
        3,
        10,
        20,
    )


def test_a_rebalance_has_its_members_before_and_after() -> None:
    """Members have names, and afterwards the number of their topic partitions; the record has no assignment bytes."""
    before = [seat("m-1", assigned(t=[0, 1])), seat("m-2", assigned(t=[2]))]
    body = body_of(TimedNote(1, ended(before, [seat("m-2", assigned(t=[0, 1, 2]))])))
    assert (body["members_before"], body["members_after"]) == (2, 1)
    assert body["before"] == ["m-1", "m-2"]
    assert [(each["member_id"], each["partitions"]) for each in body["after"]] == [("m-2", 3)]
    assert body["waited_for"] == {"member_id": "m-1", "phase": "preparing", "ms": 20}
    assert (body["causes"][0]["kind"], body["causes"][0]["source"]) == ("member_left", "client")
    assert body["moved_partitions"] == 2
    assert body["moved"] == [
        {"topic": "t", "partition": 0, "from": "m-1", "to": "m-2"},
        {"topic": "t", "partition": 1, "from": "m-1", "to": "m-2"},
    ]


def test_a_static_member_is_the_same_under_another_id() -> None:
    """No partition moved from the member to itself."""
    note = ended([seat("a-1", assigned(t=[0]), "a")], [seat("a-2", assigned(t=[0]), "a")])
    assert moves(note) == []


def test_members_come_and_go_with_their_partitions() -> None:
    """Partitions that moved come first, then those that had no member, at last those that have none now."""
    note = ended([seat("a", assigned(t=[0], v=[2]))], [seat("b", assigned(u=[1], v=[2]))])
    assert moves(note) == [("v", 2, "a", "b"), ("u", 1, None, "b"), ("t", 0, "a", None)]
    body = body_of(TimedNote(1, note))
    assert [body[f"{what}_partitions"] for what in ("moved", "assigned", "freed")] == [1, 1, 1]
    body = body_of(TimedNote(1, ended([], [seat("b", assigned(u=[1], v=[2]))])))
    assert [body[f"{what}_partitions"] for what in ("moved", "assigned", "freed")] == [0, 2, 0]


def test_what_only_the_clients_can_read_is_not_guessed() -> None:
    """This holds for groups of other protocol types and for bytes that are no assignment."""
    connect = ended([seat("a", b"x")], [seat("a", b"y")], protocol_type="connect")
    broken = ended([seat("a", b"\x00")], [seat("a", assigned(t=[0]))])
    for note in (connect, broken):
        body = body_of(TimedNote(1, note))
        assert (body["moved"], body["moved_partitions"]) == (None, None)
    assert body_of(TimedNote(1, connect))["after"][0]["partitions"] is None


def test_a_rebalance_without_assignments_moves_nothing_yet() -> None:
    """A superseded rebalance has no assignments to compare."""
    note = ended([seat("a", assigned(t=[0]))], [], outcome=Outcome.SUPERSEDED)
    assert body_of(TimedNote(1, note))["moved"] is None


def test_a_record_has_room_for_so_much() -> None:
    """A record with thousands of members with long names fits a batch; the counts cover all members."""
    places = range(2 * MEMBERS_MAX)
    before = [seat(f"{number:05}{'x' * 30_000}", assigned(t=[number])) for number in places]
    after = [seat(f"other{each.member_id}", assigned(t=[number])) for number, each in zip(places, before, strict=True)]
    record = record_of(TimedNote(1, ended(before, after)), 7, 1)
    assert record.value is not None
    assert len(record.value) < 1_000_000
    body = json.loads(record.value)
    assert (body["members_before"], len(body["before"]), len(body["moved"])) == (
        2 * MEMBERS_MAX,
        MEMBERS_MAX,
        MOVES_MAX,
    )
    assert body["moved_partitions"] == 2 * MEMBERS_MAX
    assert len(body["before"][0]) == TEXT_MAX + 3
