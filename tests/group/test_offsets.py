"""Committed offsets: which commits are accepted, what they store, and when offsets expire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from coordinator.config import STORED_MAX_BYTES
from coordinator.group.any_group import CommittedOffset
from coordinator.group.events import CommitOffsets, Remainder
from coordinator.group.notes import GroupDeleted, OffsetsRemoved
from coordinator.group.offsets import REMOVED_AT_ONCE, CommitTemplate, template_of
from coordinator.group.records import batch_size, offset_record
from protocol.primitives import STRING_SIZE_MAX
from protocol.records.packing import plain_bytes
from schemas.errors import ErrorCode
from tests.group.harness import SOMEBODY, WALL_MS, Bench, Peer, subscription
from tests.support.requests import commit_request

RETENTION_MS = 60_000


def at_work(**settings: object) -> tuple[Bench, Peer]:
    """A Stable group of one static consumer of topic t."""
    bench = Bench(offsets_retention_ms=RETENTION_MS, **settings)
    peer = bench.static("a")
    bench.settle(peer)
    return bench, peer


@pytest.mark.parametrize(
    ("member", "generation", "instance", "expected"),
    [
        ("real", 1, "a", ErrorCode.NONE),
        ("real", 1, None, ErrorCode.NONE),
        ("real", 0, "a", ErrorCode.ILLEGAL_GENERATION),
        ("real", -1, "a", ErrorCode.ILLEGAL_GENERATION),
        ("real", -1, None, ErrorCode.ILLEGAL_GENERATION),
        ("", -1, "a", ErrorCode.FENCED_INSTANCE_ID),
        ("", -1, "unknown", ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", 1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("ghost", 1, "a", ErrorCode.FENCED_INSTANCE_ID),
        ("ghost", 1, None, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_may_commit_to_a_group_at_work(
    member: str, generation: int, instance: str | None, expected: ErrorCode
) -> None:
    """Only a member may commit, in the current generation."""
    bench, peer = at_work()
    member_id = peer.member_id if member == "real" else member
    call = bench.commit(member=member_id, generation=generation, instance=instance, offsets={("t", 0): 5})
    assert call.errors == [expected]
    assert bench.committed("t", 0) == (5 if expected is ErrorCode.NONE else -1)


@pytest.mark.parametrize(("version", "error"), [(9, ErrorCode.ILLEGAL_GENERATION), (10, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_commit_of_a_generation_creates_no_group(bench: Bench, version: int, error: ErrorCode) -> None:
    """A client with a generation got it from a coordinator that has lost the group, so the commit is refused."""
    call = bench.commit(member="m", generation=3, offsets={("t", 0): 5}, version=version)
    assert call.errors == [error]
    assert bench.state() == "Dead"


@dataclass
class Repeated:
    """A repeated commit: the template of the first one, and other offsets."""

    template: CommitTemplate
    offsets: Sequence[int]


def test_a_commit_repeated_is_a_commit() -> None:
    """It leaves the same memory and the same records as a whole commit, and renews the member's session."""
    (whole, peer), (short, _) = at_work(), at_work()
    body = commit_request("g", {("t", 0): 0, ("u", 1): 0, ("u", 0): 0}, 1, peer.member_id, "a")
    first_part = body.topics[0].partitions[0]
    first_part.committed_leader_epoch, first_part.committed_metadata = 4, "Bär"
    template = template_of(body, short.config)
    assert template is not None
    for first in (5, 2**40):
        whole.advance(7)
        short.advance(7)
        offsets = list(range(first, first + 3))
        for each, offset in zip((each for topic in body.topics for each in topic.partitions), offsets, strict=True):
            each.committed_offset = offset
        effects = whole.coordinator.handle(CommitOffsets("commit", 7, SOMEBODY, body), whole.now)
        window = short.coordinator.commit_repeated([Repeated(template, offsets)], short.now)
        assert window.records == effects.records
        assert (len(window.commits), window.others, window.group_ids) == (1, [], {"g"})
        assert short.group().offsets == whole.group().offsets
        deadlines = {bench.group().members[peer.member_id].deadline_ms for bench in (whole, short)}
        assert len(deadlines) == 1


def test_a_template_has_the_size_of_its_batch() -> None:
    """A commit that is repeated counts with all its partitions; one that fits no batch has no template."""
    bench = Bench(message_max_bytes=1_000)
    template = template_of(commit_request("g", {("t", number): 1 for number in range(5)}), bench.config)
    assert template is not None
    assert template.size == batch_size([target.record(1, WALL_MS) for target in template.targets])
    assert template_of(commit_request("g", {("t", number): 1 for number in range(50)}), bench.config) is None


def test_commits_are_taken_together_up_to_the_size_of_a_batch() -> None:
    """Commits of several groups share one batch; a commit that doesn't fit or is refused becomes an event."""
    bench, peer = at_work(message_max_bytes=1_000)

    def repeated(offset: int, group: str, *who: Any) -> Repeated:
        template = template_of(commit_request(group, {("t", 0): 0}, *who), bench.config)
        assert template is not None
        return Repeated(template, [offset])

    bench.commit(group="simple", offsets={("t", 0): 1})
    member = ("g", 1, peer.member_id)
    taken = [repeated(5, *member), repeated(6, "simple")]
    others = [repeated(7, "g", 2, peer.member_id), repeated(8, "unknown")]
    count = (1_000 - sum(each.template.size for each in taken)) // repeated(0, *member).template.size
    taken += [repeated(6, *member)] * count
    too_many = [repeated(9, *member)] * 2
    window = bench.coordinator.commit_repeated([*others, *taken, *too_many], bench.now)
    assert (window.commits, window.others) == (taken, [*others, *too_many])
    assert window.group_ids == {"g", "simple"}
    assert batch_size(window.records) <= 1_000
    assert len(window.records) == len(taken)
    assert {group.offsets["t"][0].offset for group in bench.coordinator.groups.values()} == {6}


def test_a_commit_keeps_its_member_alive() -> None:
    """A commit renews the session, as a heartbeat does."""
    bench, peer = at_work()
    for _ in range(3):
        bench.advance(9_999)
        peer.commit(1)
    assert peer.heartbeat().error is ErrorCode.NONE


@pytest.mark.parametrize(
    ("metadata", "stored"),
    [("x" * 4_096, True), ("x" * 4_097, False), ("\U0001f600" * 2_048, True), ("\U0001f600" * 2_049, False)],
)
def test_metadata_is_measured_as_java_does(bench: Bench, metadata: str, *, stored: bool) -> None:
    """offset.metadata.max.bytes counts UTF-16 units, as Java does."""
    call = bench.commit(offsets={("t", 0): 5}, metadata=metadata)
    assert call.errors == [ErrorCode.NONE if stored else ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert bench.committed("t", 0) == (5 if stored else -1)


@pytest.mark.parametrize(("metadata", "stored"), [("\ufffd" * 10_922, True), ("\ufffd" * 10_923, False)])
def test_metadata_that_no_record_can_hold_is_too_large(metadata: str, *, stored: bool) -> None:
    """Whatever offset.metadata.max.bytes says, an offset's metadata fit a string, as UTF-8; its group goes on."""
    bench = Bench(offset_metadata_max_bytes=100_000)
    body = commit_request("g", {("t", 0): 5}, metadata=metadata)
    (response,) = bench.coordinator.handle(CommitOffsets("r", 7, SOMEBODY, body), bench.now).responses
    error = ErrorCode.NONE if stored else ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert response.body.topics[0].partitions[0].error_code == error
    assert bench.committed("t", 0) == (5 if stored else -1)


def test_the_largest_committed_offset_fits_the_store_of_a_cluster() -> None:
    """No string of a request has more bytes, so no setting makes a larger record."""
    longest = "x" * STRING_SIZE_MAX
    record = offset_record(longest, longest, 0, CommittedOffset(5, 0, longest, 0, None), 0)
    assert plain_bytes([record]) < STORED_MAX_BYTES // 10


def test_offsets_of_a_group_at_work_expire_only_where_nobody_reads() -> None:
    """Offsets of topics with a subscribed member stay; others expire after their retention (KIP-211)."""
    bench, peer = at_work()
    bench.commit(member=peer.member_id, generation=1, offsets={("t", 0): 1, ("other", 0): 2})
    for _ in range(RETENTION_MS // 5_000):
        bench.advance(5_000)
        peer.heartbeat()
    bench.remove_expired()
    assert (bench.committed("t", 0), bench.committed("other", 0)) == (1, -1)
    assert bench.said(OffsetsRemoved)[0].topic_partitions == (("other", 0),)


def test_an_emptied_groups_offsets_count_from_then() -> None:
    """Retention begins when the last member leaves, not at the commit."""
    bench, peer = at_work()
    peer.commit(1)
    for _ in range(20):
        bench.advance(5_000)
        peer.heartbeat()
    peer.leave()
    bench.advance(RETENTION_MS - 1)
    bench.remove_expired()
    assert bench.committed("t", 0) == 1
    bench.advance(1)
    bench.remove_expired()
    assert bench.committed("t", 0) == -1
    assert bench.state() == "Dead"
    assert bench.written()[-1] is None


def test_a_simple_groups_offsets_count_from_their_commit() -> None:
    """With its last offset the group is gone. Its tombstone ends it for Kafka 4 too, which makes a group of offsets."""
    bench = Bench(offsets_retention_ms=RETENTION_MS)
    bench.commit(offsets={("t", 0): 1})
    bench.advance(1)
    bench.commit(offsets={("t", 1): 2})
    bench.advance(RETENTION_MS - 1)
    bench.remove_expired()
    assert (bench.committed("t", 0), bench.committed("t", 1)) == (-1, 2)
    bench.advance(1)
    bench.remove_expired()
    assert bench.state() == "Dead"
    assert bench.written() == [None]


def test_a_retention_of_its_own_wins() -> None:
    """The retention of an OffsetCommit v2-4 counts, shorter or longer than the broker's."""
    bench = Bench(offsets_retention_ms=RETENTION_MS)
    bench.commit(version=4, retention_ms=5, offsets={("t", 0): 1})
    bench.commit(version=4, retention_ms=RETENTION_MS * 2, offsets={("t", 1): 1})
    assert bench.group().offsets["t"][0].expire_ms == WALL_MS + 5
    bench.advance(5)
    bench.remove_expired()
    assert (bench.committed("t", 0), bench.committed("t", 1)) == (-1, 1)
    bench.advance(RETENTION_MS)
    bench.remove_expired()
    assert bench.committed("t", 1) == 1


def test_an_empty_group_goes_with_its_last_offset(bench: Bench) -> None:
    """OffsetDelete of the last offset deletes the group at once, as in Kafka."""
    bench.commit(offsets={("t", 0): 1})
    assert bench.delete_offsets(topics={"t": [0]}).errors == [ErrorCode.NONE]
    assert bench.state() == "Dead"
    assert [note.expired for note in bench.said(GroupDeleted)] == [True]


def test_a_subscription_counts_as_of_its_generation() -> None:
    """A static restart in Stable does not change the subscriptions of the generation, as in Kafka."""
    bench, peer = at_work()
    again = peer.twin()
    assert not again.join(protocols=[("range", subscription("new"))]).waits
    again.commit(1)
    assert bench.delete_offsets(topics={"t": [0]}).errors == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
    assert bench.delete_offsets(topics={"new": [0]}).errors == [ErrorCode.NONE]


def test_a_commit_that_does_not_fit_a_batch_stores_nothing() -> None:
    """Every partition gets INVALID_COMMIT_OFFSET_SIZE, as in Kafka; the group exists all the same."""
    bench = Bench(message_max_bytes=1_000)
    call = bench.commit(offsets={("t", number): 1 for number in range(50)})
    assert set(call.errors) == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    assert (bench.records, bench.state(), bench.committed("t", 0)) == ([], "Empty", -1)


def test_metadata_too_large_spoils_only_its_partition() -> None:
    """Offsets of the other partitions are stored."""
    bench = Bench(offset_metadata_max_bytes=1)
    body = commit_request("g", {("t", 0): 5, ("t", 1): 5}, metadata="x")
    body.topics[0].partitions[1].committed_metadata = "xx"
    (response,) = bench.coordinator.handle(CommitOffsets("r", 7, SOMEBODY, body), bench.now).responses
    assert [row.error_code for row in response.body.topics[0].partitions] == [0, ErrorCode.OFFSET_METADATA_TOO_LARGE]


def test_a_retention_beyond_all_time_is_for_ever(bench: Bench) -> None:
    """The expiry time is limited to what a record can hold."""
    assert bench.commit(version=4, retention_ms=2**63 - 1, offsets={("t", 0): 1}).errors == [ErrorCode.NONE]
    bench.restart()
    assert bench.group().offsets["t"][0].expire_ms == 2**63 - 1


def remove(bench: Bench, *topics: str) -> list[int]:
    """Topics are deleted; returns how many offsets went in each event."""
    sizes = []
    for event in bench.coordinator.offsets_in(topics):
        if event is not None:
            bench.handle(event)
            sizes.append(sum(map(len, event.topic_partitions.values())))
    return sizes


def test_a_deleted_topic_loses_its_offsets_some_at_a_time(bench: Bench) -> None:
    """No event removes more than REMOVED_AT_ONCE offsets; together they remove all, of all deleted topics."""
    count = REMOVED_AT_ONCE + 5
    bench.commit(group="a", offsets={("t", index): 1 for index in range(count)})
    bench.commit(group="b", offsets={(topic, index): 1 for topic in "tuv" for index in range(count)})
    assert remove(bench, "t", "u") == [REMOVED_AT_ONCE] * 3 + [15]
    assert "a" not in bench.coordinator.groups
    assert bench.group("b").offsets.keys() == {"v"}
    removed = [each for note in bench.said(OffsetsRemoved) for each in note.topic_partitions]
    assert len(removed) == len(set(removed)) + count == 3 * count
    bench.restart()
    assert bench.group("b").offsets.keys() == {"v"}
    assert len(bench.group("b").offsets["v"]) == count


def test_expired_offsets_go_some_at_a_time() -> None:
    """No event looks at more than REMOVED_AT_ONCE offsets; together they remove all that expired."""
    bench = Bench(offsets_retention_ms=RETENTION_MS)
    count = REMOVED_AT_ONCE + 5
    bench.commit(offsets={("t", index): 1 for index in range(count)})
    bench.advance(RETENTION_MS)
    bench.commit(offsets={("t", 0): 2})
    seen = []
    for event in bench.coordinator.offsets_in(None):
        if event is not None:
            seen.append(sum(map(len, event.topic_partitions.values())))
            bench.handle(event)
    assert seen == [REMOVED_AT_ONCE, 5]
    assert bench.group().offsets["t"].keys() == {0}
    assert sum(len(note.topic_partitions) for note in bench.said(OffsetsRemoved) if note.expired) == count - 1


def test_a_group_with_many_offsets_is_deleted_and_its_offsets_go_some_at_a_time(bench: Bench) -> None:
    """The group is gone at once; nothing of it comes back when all its offsets were erased."""
    count = REMOVED_AT_ONCE + 5
    bench.commit(offsets={("t", index): 1 for index in range(count)})
    remainder: object = bench.delete().response
    assert isinstance(remainder, Remainder)
    assert len(remainder.offsets["t"]) == 5
    assert bench.state() == "Dead"
    bench.erase(remainder)
    assert sum(len(note.topic_partitions) for note in bench.said(OffsetsRemoved)) == REMOVED_AT_ONCE
    bench.restart()
    assert bench.coordinator.groups == {}


def test_erasing_spares_what_a_new_group_committed(bench: Bench) -> None:
    """A commit after the deletion stays, whatever the deleted group had committed."""
    bench.commit(offsets={("t", index): 1 for index in range(REMOVED_AT_ONCE + 5)})
    remainder: object = bench.delete().response
    assert isinstance(remainder, Remainder)
    bench.advance(1)
    bench.commit(offsets={("t", REMOVED_AT_ONCE): 1})
    bench.erase(remainder)
    bench.restart()
    assert bench.group().offsets["t"].keys() == {REMOVED_AT_ONCE}


def test_erasing_takes_offsets_that_a_load_brought_back(bench: Bench) -> None:
    """The log has them until they have tombstones: after a load they are offsets of a group again, and go with it."""
    bench.commit(offsets={("t", index): 1 for index in range(REMOVED_AT_ONCE + 5)})
    remainder: object = bench.delete().response
    assert isinstance(remainder, Remainder)
    bench.restart()
    assert len(bench.group().offsets["t"]) == 5
    bench.erase(remainder)
    assert bench.state() == "Dead"
    bench.restart()
    assert bench.coordinator.groups == {}


def test_an_offset_that_went_meanwhile_is_removed_once(bench: Bench) -> None:
    """Another event may come between two of the removal."""
    bench.commit(group="a", offsets={("t", index): 1 for index in range(2)} | {("u", 0): 1})
    first, second = ([event for event in bench.coordinator.offsets_in(["t"]) if event] for _ in range(2))
    for event in (*first, *second):
        bench.handle(event)
    assert len(bench.said(OffsetsRemoved)) == 1
    assert bench.group("a").offsets.keys() == {"u"}


def test_a_topic_that_is_deleted_takes_its_offsets_along() -> None:
    """Each offset of the topic gets a tombstone, in any state; a group without members and offsets goes too."""
    bench, peer = at_work()
    peer.commit(1)
    bench.commit(group="simple", offsets={("t", 1): 2, ("u", 0): 3})
    bench.commit(group="bare", offsets={("t", 0): 4})
    before = bench.group().generation
    remove(bench, "t")
    assert (bench.committed("t", 0), bench.group().generation, bench.state()) == (-1, before, "Stable")
    assert bench.group("simple").offsets.keys() == {"u"}
    assert "bare" not in bench.coordinator.groups
    assert {note.group for note in bench.said(OffsetsRemoved)} == {"g", "simple", "bare"}
    bench.restart()
    assert bench.group("simple").offsets.keys() == {"u"}
    assert "bare" not in bench.coordinator.groups
