"""Patched requests equal the codec's, and the fast readers of answers read the same as the codec."""

from __future__ import annotations

from benchmarks import frames
from protocol.header import encode_response
from protocol.messages import (
    API_KEYS,
    CreateTopicsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    SyncGroupRequest,
    SyncGroupResponse,
    encode,
)
from tests.support.decoded import decode_request

MEMBER = frames.string("a-member-of-another-length")
INSTANCE = frames.string("worker-1")


def test_a_filled_request_is_read_with_its_values() -> None:
    """Marks are replaced, the size fits, and the correlation id is where the header has it."""
    frame = frames.heartbeat("group", static=True).fill(77, frames.generation(5), MEMBER, INSTANCE)
    header, request = decode_request(frame[frames.SIZE_BYTES :])
    assert int.from_bytes(frame[: frames.SIZE_BYTES], "big") == len(frame) - frames.SIZE_BYTES
    assert (header.api_key, header.api_version, header.correlation_id) == (API_KEYS["Heartbeat"], 3, 77)
    assert request == HeartbeatRequest(
        group_id="group",
        generation_id=5,
        member_id="a-member-of-another-length",
        group_instance_id="worker-1",
    )


def test_a_dynamic_member_has_no_instance_id() -> None:
    """A dynamic member joins with version 4, which has no instance id."""
    header, request = decode_request(frames.join("group", static=False).fill(1, MEMBER)[frames.SIZE_BYTES :])
    assert header.api_version == frames.JOIN_DYNAMIC
    assert isinstance(request, JoinGroupRequest)
    assert request.member_id == "a-member-of-another-length"
    assert request.protocols[0].metadata == frames.subscription()


def test_a_leader_syncs_with_assignments() -> None:
    """The assignments are encoded once, behind the filled-in fields."""
    template = frames.sync("group", static=True, assignments={"a": b"A", "b": b"B"})
    _, request = decode_request(template.fill(1, frames.generation(3), MEMBER, INSTANCE)[frames.SIZE_BYTES :])
    assert isinstance(request, SyncGroupRequest)
    assert request.generation_id == 3
    assert [(each.member_id, each.assignment) for each in request.assignments] == [("a", b"A"), ("b", b"B")]


def test_a_commit_has_its_offset_filled_in() -> None:
    """The first partition's; the others keep theirs."""
    offset = (123).to_bytes(8, "big")
    frame = frames.commit("group", 2, static=True).fill(1, frames.generation(3), MEMBER, INSTANCE, offset)
    _, request = decode_request(frame[frames.SIZE_BYTES :])
    assert isinstance(request, OffsetCommitRequest)
    assert [each.committed_offset for each in request.topics[0].partitions] == [123, 1]


def test_an_answer_to_a_join_is_read() -> None:
    """In both versions, with members behind what is read."""
    members = [JoinGroupResponse.JoinGroupResponseMember(member_id="m", metadata=b"x")]
    response = JoinGroupResponse(
        error_code=79, generation_id=4, protocol_name="range", leader="l", member_id="m", members=members
    )
    for version in (frames.JOIN_DYNAMIC, frames.JOIN_STATIC):
        answer = encode_response(API_KEYS["JoinGroup"], version, 1, response)
        assert frames.joined(answer) == (79, 4, "l", "m")


def test_error_codes_are_found() -> None:
    """Behind the throttle time, or behind the topic's name."""
    sync = encode_response(API_KEYS["SyncGroup"], frames.SYNC, 1, SyncGroupResponse(error_code=27))
    assert frames.error_of(sync) == 27
    topic = CreateTopicsResponse.CreatableTopicResult(name="orders", error_code=36)
    created = encode_response(API_KEYS["CreateTopics"], frames.CREATE_TOPICS, 1, CreateTopicsResponse(topics=[topic]))
    assert frames.topic_error(created, "orders") == 36


def test_success_is_known_by_its_bytes() -> None:
    """The bytes that heartbeats' and commits' answers are compared with are the codec's for success."""
    topic = OffsetCommitResponse.OffsetCommitResponseTopic(
        name="orders",
        partitions=[OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=number) for number in (0, 1)],
    )
    assert frames.commit_done(2) == encode(OffsetCommitResponse(topics=[topic]), frames.COMMIT)
    assert encode(HeartbeatResponse(), frames.HEARTBEAT) == frames.HEARTBEAT_DONE
