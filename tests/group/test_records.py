"""State becomes a record and comes back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.group import records
from coordinator.group.any_group import CommittedOffset
from coordinator.group.group import BLOCK_MEMBERS_MAX, Group, Member
from coordinator.group.replay import Replay
from coordinator.group.state import State
from protocol.errors import ProtocolError
from protocol.messages import GroupMetadataValue, OffsetCommitValue, encode
from protocol.records.batch import Record, encode_batch
from tests.group.harness import INITIAL_DELAY_MS, SESSION_MS, Bench, whole_value

TEXT = st.text(max_size=20)
BYTES = st.binary(max_size=50)
TIMEOUT = st.integers(0, 2**31 - 1)


@st.composite
def settled_groups(draw: st.DrawFn) -> Group:
    """A group that a record can hold."""
    group = Group(draw(TEXT), draw(st.none() | st.integers(0, 2**62)))
    group.generation = draw(TIMEOUT)
    group.protocol_type = draw(TEXT) or None
    group.protocol_name = "range"
    for number in range(draw(st.integers(0, 4))):
        instance_id = f"i{number}" if draw(st.booleans()) else None
        member = Member(f"m{number}", instance_id, draw(TEXT), draw(TEXT), draw(TIMEOUT), draw(TIMEOUT), [])
        member.protocols = [("range", draw(BYTES))]
        member.assignment = draw(BYTES)
        group.add(member)
    if group.members:
        group.state = State.STABLE
    else:
        group.protocol_name = None
    return group


@given(st.lists(st.builds(Record, st.binary(max_size=300), st.none() | BYTES, st.integers(0, 2**40)), min_size=1))
def test_a_batch_takes_no_more_than_its_size_says(written: list[Record]) -> None:
    """The size is the most that a batch takes, and at most RECORD_OVERHEAD more for each record."""
    room = records.batch_size(written) - len(encode_batch(written, 0, 0))
    assert 0 <= room <= records.RECORD_OVERHEAD * len(written)


def seats(group: Group) -> list[tuple[object, ...]]:
    """The fields of members that a record keeps."""
    return [
        (
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
            member.protocols,
            member.assignment,
        )
        for member in group.members.values()
    ]


@given(settled_groups())
def test_a_group_comes_back_as_it_was(group: Group) -> None:
    """Every field of a record survives encoding and decoding."""
    again = records.decode_group(group.group_id, records.group_value(group, group.state_since_ms))
    for name in ("state", "state_since_ms", "generation", "protocol_type", "protocol_name", "leader", "static_members"):
        assert getattr(again, name) == getattr(group, name), name
    assert seats(again) == seats(group)


@given(settled_groups(), st.data())
def test_a_value_put_together_is_the_value_encoded_whole(group: Group, data: st.DataObject) -> None:
    """The joined cached bytes of members equal the bytes of the schema, whichever members have cached bytes."""
    for member in group.members.values():
        if data.draw(st.booleans()):
            records.member_bytes(member, "range")
    assert records.group_value(group, group.state_since_ms) == whole_value(group)


@pytest.mark.parametrize("version", records.GROUP_VALUE_VERSIONS)
def test_every_version_of_a_group_is_read(version: int) -> None:
    """Older Kafka wrote versions 0 to 2, and version 4 is defined; a field that a version lacks gets a default."""
    member = GroupMetadataValue.MemberMetadata(
        member_id="m", client_id="c", client_host="/h", session_timeout=6_000, subscription=b"s", assignment=b"a"
    )
    value = GroupMetadataValue(protocol_type="consumer", generation=4, protocol="range", leader="m", members=[member])
    if version >= 1:
        member.rebalance_timeout = 9_000
    if version >= 2:
        value.current_state_timestamp = 5
    if version >= 3:
        member.group_instance_id = "i"
    group = records.decode_group("g", version.to_bytes(2) + encode(value, version))
    assert (group.generation, group.leader, group.state) == (4, "m", State.STABLE)
    assert group.state_since_ms == (5 if version >= 2 else None)
    assert group.members["m"].rebalance_timeout_ms == (9_000 if version >= 1 else 6_000)
    assert group.members["m"].group_instance_id == ("i" if version >= 3 else None)


@pytest.mark.parametrize("version", records.OFFSET_VALUE_VERSIONS)
def test_every_version_of_an_offset_is_read(version: int) -> None:
    """Only version 1 has an expiry time; versions from 3 on have a leader epoch."""
    value = OffsetCommitValue(offset=8, metadata="m", commit_timestamp=9)
    if version == 1:
        value.expire_timestamp = 10
    if version >= 3:
        value.leader_epoch = 2
    committed = records.decode_offset(version.to_bytes(2) + encode(value, version))
    expected = CommittedOffset(8, 2 if version >= 3 else -1, "m", 9, 10 if version == 1 else None)
    assert committed == expected


def test_an_offset_with_its_own_retention_is_version_1() -> None:
    """Kafka does the same; an offset without its own retention is version 3."""
    plain = CommittedOffset(1, -1, "", 5, None)
    assert records.offset_record("g", "t", 0, plain, 5).value[:2] == b"\x00\x03"  # type: ignore[index]
    assert records.offset_record("g", "t", 0, plain._replace(expire_ms=9), 5).value[:2] == b"\x00\x01"  # type: ignore[index]


def replayed(*log: Record) -> dict[str, Any]:
    """The groups of a log after its replay."""
    replay = Replay()
    replay.add(log)
    return {group.group_id: group for group in replay.groups()}


def test_offsets_without_a_group_record_are_a_simple_group() -> None:
    """If the log has a record of the group, the order of the two doesn't matter (KAFKA-17306)."""
    committed = CommittedOffset(1, -1, "", 5, None)
    offset = records.offset_record("g", "t", 3, committed, 5)
    group = Group("g", 5)
    group.generation = 2
    simple = replayed(offset)["g"]
    assert (simple.state, simple.protocol_type, simple.offsets) == (State.EMPTY, None, {"t": {3: committed}})
    for log in ([offset, records.group_record(group, 5, 5)], [records.group_record(group, 5, 5), offset]):
        assert (replayed(*log)["g"].generation, replayed(*log)["g"].offsets) == (2, {"t": {3: committed}})


def test_the_last_record_of_a_key_counts() -> None:
    """A tombstone deletes earlier records of its own key; without an earlier record it does nothing (KAFKA-4704)."""
    first, second = (CommittedOffset(number, -1, "", 5, None) for number in (1, 2))
    log = [
        records.offset_tombstone("g", "t", 0, 5),
        records.offset_record("g", "t", 0, first, 5),
        records.offset_record("g", "t", 1, first, 5),
        records.offset_tombstone("g", "t", 0, 5),
        records.group_tombstone("g", 5),
        records.offset_record("g", "t", 1, second, 5),
    ]
    assert replayed(*log)["g"].offsets == {"t": {1: second}}


def test_only_the_last_value_of_a_key_is_decoded() -> None:
    """A superseded value costs nothing, and may even be invalid."""
    group, committed = Group("g", 5), CommittedOffset(1, -1, "", 5, None)
    last = [records.group_record(group, 5, 5), records.offset_record("g", "t", 0, committed, 5)]
    gone = records.offset_record("g", "t", 1, committed, 5)
    odd = [record._replace(value=b"odd") for record in (*last, gone)]
    found = replayed(*odd, *last, gone._replace(value=None))["g"]
    assert (found.state, found.offsets) == (State.EMPTY, {"t": {0: committed}})
    with pytest.raises(ProtocolError):
        replayed(*last, odd[0])


@pytest.mark.parametrize("version", [9, 17, 999, -1])
def test_unknown_keys_are_skipped_and_counted(version: int) -> None:
    """Records of another kind of coordinator are left alone (KIP-915)."""
    replay = Replay()
    replay.add([Record(version.to_bytes(2, signed=True) + b"whatever", b"x", 5)] * 2)
    assert replay.skipped == {version: 2}
    assert list(replay.groups()) == []


@pytest.mark.parametrize(
    "record",
    [
        Record(b"\x00", b"", 0),
        Record(records.group_key("g"), b"\x00", 0),
        Record(records.group_key("g"), b"\x00\x09rest", 0),
        Record(records.group_key("g"), b"\x00\x03\x00", 0),
        Record(records.offset_key("g", "t", 0), b"", 0),
        Record(records.offset_key("g", "t", 0), b"\x00\x07", 0),
        Record(b"\x00\x02\x00", b"\x00\x03", 0),
    ],
)
def test_what_cannot_be_read_says_so(record: Record) -> None:
    """Bytes that break the format raise ProtocolError and no other exception."""
    with pytest.raises(ProtocolError):
        replayed(record)


@pytest.mark.parametrize(
    "changed",
    [{"members": ["m", "m"]}, {"members": ["m", "n"], "instance": "i"}, {"members": ["m"], "protocol": None}],
)
def test_a_group_that_cannot_be_is_not_read(changed: dict[str, object]) -> None:
    """No group has a member id or an instance id twice, or members without a protocol name."""
    names: list[str] = changed["members"]  # type: ignore[assignment]
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range" if "protocol" not in changed else None,
        leader="m",
        members=[
            GroupMetadataValue.MemberMetadata(
                member_id=name,
                group_instance_id=changed.get("instance"),  # type: ignore[arg-type]
                client_id="c",
                client_host="/h",
                subscription=b"",
                assignment=b"",
            )
            for name in names
        ],
    )
    with pytest.raises(ProtocolError):
        records.decode_group("g", b"\x00\x03" + encode(value, 3))


def test_a_restart_encodes_one_member(bench: Bench) -> None:
    """The other members keep their cached bytes."""
    peers = [bench.static(name) for name in "abc"]
    bench.settle(*peers)
    before = {member.group_instance_id: member.encoded for member in bench.group().members.values()}
    peers[1].restart()
    after = {member.group_instance_id: member.encoded for member in bench.group().members.values()}
    assert after["a"] is before["a"]
    assert after["c"] is before["c"]
    assert after["b"] is not before["b"]


def test_a_rebalance_encodes_only_who_says_something_new(bench: Bench) -> None:
    """Members with unchanged data keep their cached bytes; the record has the new assignments."""
    leader, *others = peers = [bench.static(name) for name in "abc"]
    bench.settle(*peers)
    group = bench.group()
    first = {member.member_id: member.encoded for member in group.members.values()}
    leader.join()
    for other in others:
        other.join()
    leader.sync(assignments={others[0].member_id: b"all"})
    assert all(member.encoded is first[member.member_id] for member in group.members.values())
    assert records.group_value(group, group.state_since_ms) == whole_value(group)
    leader.join(session_ms=SESSION_MS + 1)
    for other in others:
        other.join()
    bench.assign(*peers)
    assert [member.encoded is first[member.member_id] for member in group.members.values()] == [False, True, True]
    assert records.group_value(group, group.state_since_ms) == whole_value(group)


def test_another_protocol_encodes_everybody(bench: Bench) -> None:
    """The record has each member's metadata for the new protocol, also of a member that changed nothing."""
    peers = [bench.static(name, protocols=[("range", b"r"), ("roundrobin", b"rr")]) for name in "ab"]
    bench.settle(*peers)
    newcomer = bench.static("c", protocols=[("roundrobin", b"rr")])
    calls = [peer.join() for peer in (newcomer, *peers)]
    assert all(call.response.protocol_name == "roundrobin" for call in calls)
    bench.assign(*peers, newcomer)
    assert records.group_value(bench.group(), bench.group().state_since_ms) == whole_value(bench.group())


def test_members_that_wait_for_their_assignments_are_encoded_already(bench: Bench) -> None:
    """The leader's sync writes the group, and only has to add the assignments."""
    leader, follower = bench.static("a"), bench.static("b")
    leader.enter()
    follower.enter()
    bench.advance(2 * INITIAL_DELAY_MS)
    follower.sync()
    assert [member.encoded is not None for member in bench.group().members.values()] == [False, True]


def test_a_restart_joins_two_blocks_anew(bench: Bench) -> None:
    """Only the member's old block and its new one, the last, are encoded anew; the value equals one made afresh."""
    peers = [bench.static(f"{number:02}") for number in range(3 * BLOCK_MEMBERS_MAX + 1)]
    bench.settle(*peers)
    group = bench.group()
    before = [block.encoded for block in group.blocks]
    peers[BLOCK_MEMBERS_MAX].restart()
    after = [block.encoded for block in group.blocks]
    assert [old is new for old, new in zip(before, after, strict=True)] == [True, False, True, False]
    cached = records.group_value(group, 0)
    group.all_changed()
    assert records.group_value(group, 0) == cached


def test_a_block_of_one_member_keeps_no_bytes(bench: Bench) -> None:
    """The member's own bytes are all of it: a group of one has them once."""
    peer = bench.static("a")
    bench.settle(peer)
    (block,) = bench.group().blocks
    assert block.encoded is None
    assert block.members[0].encoded is not None
