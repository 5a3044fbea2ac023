"""The reader of the groups' log follows it wherever it goes, and makes events of it."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from coordinator.client import offsets_log
from coordinator.client.client import Client
from coordinator.client.errors import Refused, Unreachable
from coordinator.client.events import EventReader
from coordinator.client.offsets_log import Cut, OffsetsReader, SessionTimeouts, TopicNames, cut_line, reader_of
from coordinator.client.topics import LATEST
from coordinator.story.events import RebalanceEnded
from protocol.messages import DescribeConfigsRequest, FetchRequest, ListOffsetsRequest, MetadataRequest
from protocol.records.batch import peek_header
from protocol.records.codecs import Codec
from schemas.errors import ErrorCode
from tests.audit.scenes import GROUP, Scene, compressed, consumer_member, group_on, member
from tests.support.reading import poll
from tests.support.requests import response

A, B = {"orders": [0]}, {"orders": [1]}
OTHER = group_on(1)


class Cluster(Client):
    """Kafka with two nodes, whose groups' log is made of scenes; node 1 leads all unless `leaders` says otherwise.

    firsts: first offsets. errors: the next error of a partition. away: nodes that don't answer. fetched: partitions by
    request, with their nodes. denied: topics and groups that the user may not see. epochs: of its batches: known; lost,
    so that each answer is wrong; or ignored, as by Tenure. looked_up: groups whose settings were asked for, by request.
    """

    def __init__(self, *scenes: Scene) -> None:
        super().__init__("127.0.0.1:1")
        self.scenes = list(scenes)
        self.leaders: dict[int, int] = {}
        self.firsts: dict[int, int] = {}
        self.errors: dict[int, ErrorCode] = {}
        self.away: set[int] = set()
        self.fetched: list[tuple[int, list[int]]] = []
        self.denied: set[str] = set()
        self.session_timeout = "45000"
        self.looked_up: list[list[str]] = []
        self.topic_id = UUID(int=7)
        self.per_fetch = 100
        self.no_offsets = False
        self.epochs = "known"

    def request(self, message: Any, node: Any = None, *, at_least: int = 0, at_most: int = 0) -> Any:
        """Answer as Kafka would."""
        if isinstance(message, MetadataRequest):
            return self._metadata(message)
        if isinstance(message, ListOffsetsRequest):
            if self.no_offsets:
                raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "offsets")
            (asked,) = message.topics[0].partitions
            at = asked.partition_index
            offset = self.scenes[at].next_offset if asked.timestamp == LATEST else self.firsts.get(at, 0)
            return response("ListOffsets", topics=[{"partitions": [{"offset": offset}]}])
        if isinstance(message, DescribeConfigsRequest):
            self.looked_up.append([wanted.resource_name for wanted in message.resources])
            if self.away:
                raise Unreachable("127.0.0.1:1: Connection refused")
            return response(
                "DescribeConfigs", results=[self._setting(each.resource_name) for each in message.resources]
            )
        assert isinstance(message, FetchRequest)
        assert message.topics[0].topic_id == self.topic_id
        self.fetched.append((node.node_id, [each.partition for each in message.topics[0].partitions]))
        if node.node_id in self.away:
            raise Unreachable("127.0.0.1:1: Connection refused")
        answers = [self._fetched(each, node.node_id) for each in message.topics[0].partitions]
        return response("Fetch", responses=[{"partitions": answers}])

    def _setting(self, group_id: str) -> Any:
        if group_id in self.denied:
            return {"resource_name": group_id, "error_code": ErrorCode.GROUP_AUTHORIZATION_FAILED}
        timeout = {"name": "consumer.session.timeout.ms", "value": self.session_timeout}
        return {"resource_name": group_id, "configs": [timeout]}

    def _fetched(self, asked: Any, node_id: int) -> Any:
        answer: dict[str, Any] = {"partition_index": asked.partition}
        scene = self.scenes[asked.partition]
        if asked.partition in self.errors:
            answer["error_code"] = self.errors.pop(asked.partition)
        elif self.leaders.get(asked.partition, 1) != node_id:
            answer["error_code"] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif self._diverges(scene, asked, answer):
            pass
        elif not self.firsts.get(asked.partition, 0) <= asked.fetch_offset <= scene.next_offset:
            answer["error_code"] = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            # Each batch of these scenes has one record.
            new = scene.batches[asked.fetch_offset - scene.base_offset :]
            answer["records"] = b"".join(new[: self.per_fetch])
            answer["high_watermark"] = scene.next_offset
        return answer

    def _diverges(self, scene: Scene, asked: Any, answer: Any) -> bool:
        """Whether the log has another history than the batch before the offset says; then the answer tells where."""
        if (
            self.epochs == "ignored"
            or asked.last_fetched_epoch < 0
            or asked.fetch_offset < self.firsts.get(asked.partition, 0)
        ):
            return False
        begins: dict[int, int] = {}
        for number, batch in enumerate(scene.batches):
            begins.setdefault(peek_header(batch).partition_leader_epoch, scene.base_offset + number)
        begins.setdefault(scene.epoch, scene.next_offset)
        newer = [begin for epoch, begin in begins.items() if epoch > asked.last_fetched_epoch]
        floor = max((epoch for epoch in begins if epoch <= asked.last_fetched_epoch), default=-1)
        if self.epochs == "lost":
            floor, newer = 0, [0]
        end = newer[0] if newer else scene.next_offset
        if floor == asked.last_fetched_epoch and end >= asked.fetch_offset:
            return False
        answer["diverging_epoch"] = {"epoch": floor, "end_offset": end}
        return True

    def _metadata(self, message: MetadataRequest) -> Any:
        topics: list[dict[str, Any]] = []
        for asked in message.topics or ():
            if asked.name in self.denied:
                topics.append({"name": asked.name, "error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED})
            elif asked.name != "__consumer_offsets" or not self.scenes:
                topics.append({"name": asked.name, "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
            else:
                led = [{"partition_index": at, "leader_id": self.leaders.get(at, 1)} for at in range(len(self.scenes))]
                topics.append({"name": asked.name, "topic_id": self.topic_id, "partitions": led})
        if message.topics is None:
            topics = [{"name": "orders", "topic_id": UUID(int=9)}]
        brokers = [{"node_id": node, "host": "127.0.0.1", "port": 1} for node in (1, 2)]
        return response("Metadata", brokers=brokers, topics=topics)


def formed(group_id: str = GROUP) -> Scene:
    """A group that one member made."""
    return Scene().group([member("a", A)], 1, group_id)


def grown(scene: Scene, group_id: str = GROUP) -> Scene:
    """A second member came."""
    return scene.group([member("a", A), member("b", B)], 2, group_id)


def told(events: list[Any]) -> list[tuple[str, int]]:
    """Groups and generations."""
    return [(event.group, event.generation) for event in events]


def soon(reader: OffsetsReader) -> OffsetsReader:
    """Let the reader look for leaders at its next poll."""
    reader._found_s = 0.0
    return reader


def test_all_partitions_are_read_in_order_of_time() -> None:
    """One Fetch asks a leader for all its partitions; what comes later is polled."""
    cluster = Cluster(formed(), Scene().tick(500).group([member("x", A)], 1, OTHER))
    cluster.leaders[1] = 2
    grown(cluster.scenes[0])
    cluster.per_fetch = 1
    reader = OffsetsReader(cluster)
    assert told(reader.read()) == [(GROUP, 1), (OTHER, 1), (GROUP, 2)]
    assert cluster.fetched[:2] == [(1, [0]), (2, [1])]
    assert reader.read() == poll(reader) == []
    grown(cluster.scenes[1], OTHER)
    assert told(poll(reader)) == [(OTHER, 2)]
    assert reader.reached == {0: 2, 1: 2}


def test_a_group_needs_one_partition() -> None:
    """Records of other groups there are passed over without being read."""
    scene = formed()
    scene.group([member("z", A)], 1, group_on(0, "else"))
    cluster = Cluster(scene, formed(OTHER), formed(), formed())
    reader = OffsetsReader(cluster, GROUP)
    assert told(reader.read()) == [(GROUP, 1)]
    assert {tuple(asked) for _, asked in cluster.fetched} == {(0,)}
    observed = reader.observed_of(GROUP)
    assert observed is not None
    assert observed.groups == [GROUP]


def test_what_is_skipped_is_read_all_the_same() -> None:
    """A record tells something only beside the one before it."""
    cluster = Cluster(formed())
    reader = OffsetsReader(cluster)
    reader.begin_with(0)
    grown(cluster.scenes[0])
    (event,) = poll(reader)
    assert isinstance(event, RebalanceEnded)
    assert event.generation_before == 1
    again = OffsetsReader(cluster)
    again.begin_with(1)
    assert told(poll(again)) == [(GROUP, 2)]
    late = OffsetsReader(cluster)
    late.begin_at(event.at_ms)
    assert list(late.read_back()) == [([event], 0)]


def test_a_leader_that_moved_is_found() -> None:
    """The poll that hears of it tells nothing, and the next one goes on where the reader was."""
    cluster = Cluster(formed())
    reader = OffsetsReader(cluster)
    assert len(reader.read()) == 1
    cluster.leaders[0] = 2
    grown(cluster.scenes[0])
    assert poll(reader) == []
    assert told(poll(reader)) == [(GROUP, 2)]


def test_a_node_that_is_away_stops_no_other() -> None:
    """Its error comes with the events of the others; later all is read."""
    cluster = Cluster(formed(), formed(OTHER))
    cluster.leaders[1] = 2
    cluster.away = {1}
    reader = OffsetsReader(cluster)
    events, problem = reader.poll_each(0)
    assert (told(events), isinstance(problem, Unreachable)) == ([(OTHER, 1)], True)
    with pytest.raises(Unreachable):
        poll(reader)
    cluster.away = set()
    assert told(poll(reader)) == [(GROUP, 1)]


def test_a_leader_that_keeps_requests_waiting_has_half_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen broker isn't asked for as long as it kept the others waiting; then it is read where it was."""
    cluster = Cluster(formed(), formed(OTHER))
    cluster.leaders[1] = 2
    reader = OffsetsReader(cluster)
    assert len(reader.read()) == 2
    clock = [time.monotonic()]
    monkeypatch.setattr(offsets_log, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    def ask(message: Any, node: Any = None, *, at_least: int = 0) -> Any:
        if isinstance(message, FetchRequest) and node.node_id in cluster.away:
            clock[0] += 5.0
        return Cluster.request(cluster, message, node, at_least=at_least)

    monkeypatch.setattr(cluster, "request", ask)
    cluster.away, cluster.fetched = {1}, []
    asked = []
    for _ in range(4):
        assert isinstance(reader.poll_each(0).problem, Unreachable)
        asked.append([node_id for node_id, _ in cluster.fetched])
        cluster.fetched.clear()
        clock[0] += 2.0
    assert [1 in each for each in asked] == [True, False, False, True]
    assert all(2 in each for each in asked)
    cluster.away = set()
    grown(cluster.scenes[0])
    clock[0] += 5.0
    assert told(poll(reader)) == [(GROUP, 2)]
    assert reader.poll_each(0).problem is None


def test_records_that_are_gone_are_a_gap() -> None:
    """The log begins later: the reader goes on there, and makes no rebalance of what it didn't see."""
    cluster = Cluster(formed())
    reader = OffsetsReader(cluster)
    reader.read()
    cluster.scenes[0] = Scene(base_offset=50).group([member("a", A)], 7)
    cluster.firsts[0] = 50
    assert poll(reader) == []
    (event,) = poll(reader)
    assert isinstance(event, RebalanceEnded)
    assert (event.generation, event.generations_unseen) == (7, 5)


def test_a_log_that_was_cut_is_read_anew() -> None:
    """An unclean election cut the log: what was read of the part that is gone leads to no event."""
    cluster = Cluster(grown(formed()).group([member("c", A)], 3))
    reader = OffsetsReader(cluster)
    assert told(reader.read()) == [(GROUP, 1), (GROUP, 2), (GROUP, 3)]
    cluster.scenes[0] = formed()
    assert poll(reader) == []
    assert reader.reached == {0: 0}
    assert poll(reader) == []  # generation 1 was told
    cluster.scenes[0].group([member("a", A), member("d", B)], 2)
    (event,) = poll(reader)
    assert isinstance(event, RebalanceEnded)
    assert event.generation == 2
    assert [cause.member_ids for cause in event.causes] == [["d"]]


def test_a_log_that_was_cut_and_went_on_tells_what_is_new() -> None:
    """The next leader wrote before the reader came back: its batches have a later epoch, so they are new."""
    cluster = Cluster(grown(formed()).group([member("c", A)], 3))
    reader = OffsetsReader(cluster)
    reader.read()
    cluster.scenes[0] = formed()
    cluster.scenes[0].epoch = 2
    cluster.scenes[0].group([member("a", A), member("d", B)], 2)
    assert poll(reader) == []
    assert told(poll(reader)) == [(GROUP, 2)]


def cuts_of(reader: OffsetsReader) -> list[Cut]:
    """The cuts that the reader finds from now on."""
    found: list[Cut] = []
    reader.on_cut = found.append
    return found


def test_a_log_that_was_cut_and_has_grown_past_the_reader_is_read_anew() -> None:
    """Its end says nothing; the leader knows that the reader's newest epoch ends sooner."""
    cluster = Cluster(grown(formed()).group([member("c", A)], 3))
    reader = OffsetsReader(cluster)
    cuts = cuts_of(reader)
    reader.read()
    cluster.scenes[0] = formed()
    cluster.scenes[0].epoch = 2
    cluster.scenes[0].group([member("a", A), member("d", B)], 2).group([member("a", A)], 3).group([], 4)
    assert poll(reader) == []
    assert told(poll(reader)) == [(GROUP, 2), (GROUP, 3), (GROUP, 4)]
    assert cuts == [Cut(0, 3, 1)]
    assert cut_line(cuts[0]).startswith("__consumer_offsets-0 was cut at offset 1, though records up to offset 3 ")
    assert poll(reader) == []
    assert len(cuts) == 1


def test_a_batch_of_an_old_epoch_that_was_never_read_is_new() -> None:
    """The log goes back to a leader that had written more in its epoch than the next leader had."""
    scene = formed()
    scene.epoch = 2
    cluster = Cluster(grown(scene))
    reader = OffsetsReader(cluster)
    reader.read()
    cluster.scenes[0] = formed().group([member("a", A), member("d", B)], 2)
    cluster.scenes[0].epoch = 3
    assert poll(reader) == []
    (event,) = poll(reader)
    assert isinstance(event, RebalanceEnded)
    assert [cause.member_ids for cause in event.causes] == [["d"]]


def test_a_restored_folder_is_read_anew() -> None:
    """A backup has the same epochs again, and perhaps as many records; the last record that was read is another one."""
    cluster = Cluster(grown(formed()).group([member("c", A)], 3))
    reader = OffsetsReader(cluster)
    cuts = cuts_of(reader)
    reader.read()
    cluster.away = {1}
    with pytest.raises(Unreachable):
        poll(reader)
    cluster.away, cluster.epochs = set(), "ignored"
    cluster.scenes[0] = formed().tick(60_000).group([member("a", A), member("d", B)], 2).group([member("d", A)], 3)
    cluster.scenes[0].group([member("d", A)], 4)
    assert poll(reader) == []
    assert told(poll(reader)) == [(GROUP, 2), (GROUP, 3), (GROUP, 4)]
    assert cuts == [Cut(0, 3, None)]
    assert cut_line(cuts[0]).startswith("__consumer_offsets-0 was cut, though ")


def test_a_restored_folder_that_lacks_one_record_is_read_anew_once_it_grows() -> None:
    """Until then nothing contradicts: the log ends where the reader's last record was."""
    cluster = Cluster(grown(formed()))
    reader = OffsetsReader(cluster)
    cuts = cuts_of(reader)
    reader.read()
    cluster.leaders[0] = 2
    cluster.scenes[0] = formed()
    cluster.epochs = "ignored"
    for _ in range(3):
        assert (poll(reader), cuts) == ([], [])
    cluster.scenes[0].tick(60_000).group([member("a", A), member("d", B)], 2)
    poll(reader)
    assert (told(poll(reader)), cuts) == ([(GROUP, 2)], [Cut(0, 2, None)])


def test_a_leader_that_comes_back_with_the_same_log_is_no_cut() -> None:
    """The last record comes once more, and tells nothing."""
    cluster = Cluster(grown(formed()))
    reader = OffsetsReader(cluster)
    cuts = cuts_of(reader)
    reader.read()
    cluster.away = {1}
    reader.poll_each(0)
    cluster.away = set()
    assert poll(reader) == []
    cluster.scenes[0].group([member("c", A)], 3)
    assert (told(poll(reader)), cuts, reader.reached) == ([(GROUP, 3)], [], {0: 3})


def test_a_leader_without_epochs_does_not_keep_the_reader_busy() -> None:
    """Its answer never fits, so the second one doesn't count."""
    cluster = Cluster(grown(formed()))
    cluster.epochs = "lost"
    cluster.per_fetch = 1
    reader = OffsetsReader(cluster)
    cuts = cuts_of(reader)
    events = [event for _ in range(8) for event in poll(reader)]
    assert (told(events)[-1], len(cuts), reader.reached) == ((GROUP, 2), 2, {0: 2})


def test_counts_of_what_cannot_be_read_never_fall() -> None:
    """A key that can't be read counts, and still counts once the log is another one."""
    cluster = Cluster(formed().append((b"\x00", b"")))
    reader = OffsetsReader(cluster)
    assert (told(reader.read()), reader.passed_over) == ([(GROUP, 1)], 1)
    cluster.topic_id, cluster.scenes[:] = UUID(int=8), [formed()]
    poll(soon(reader))
    assert reader.passed_over == 1


def test_no_event_is_lost_with_a_refusal() -> None:
    """One partition goes on elsewhere, and its leader doesn't say where; the events of the others come."""
    cluster = Cluster(formed(), formed(OTHER))
    reader = OffsetsReader(cluster)
    cluster.errors[1] = ErrorCode.OFFSET_OUT_OF_RANGE
    cluster.no_offsets = True
    events, problem = reader.poll_each(0)
    assert (told(events), problem is not None) == ([(GROUP, 1)], True)


def test_held_events_are_not_lost_with_a_refusal() -> None:
    """The newest events wait for the next poll that finds the leaders."""
    cluster = Cluster(formed())
    reader = OffsetsReader(cluster)
    reader.begin_with(1)
    cluster.denied.add("__consumer_offsets")
    with pytest.raises(Refused):
        poll(soon(reader))
    cluster.denied.clear()
    assert told(poll(reader)) == [(GROUP, 1)]


def test_each_partition_is_the_first_in_its_turn() -> None:
    """A server returns a batch above the limit of a partition only for the first one that has records."""
    cluster = Cluster(formed(), formed(OTHER))
    reader = OffsetsReader(cluster)
    for _ in range(4):
        poll(reader)
    assert cluster.fetched == [(1, [0, 1]), (1, [1, 0]), (1, [0, 1]), (1, [1, 0])]


def test_a_damaged_header_leads_no_further_than_the_end() -> None:
    """A header may announce any number of records."""
    scene = grown(formed())
    batch = bytearray(scene.batches[1])
    batch[23:27] = (2**31 - 1).to_bytes(4, "big")  # lastOffsetDelta
    scene.batches[1] = bytes(batch)
    reader = OffsetsReader(Cluster(scene))
    reader.read()
    assert reader.reached == {0: 2}


def test_partitions_and_topics_come() -> None:
    """A cluster without groups has no groups' log; a topic that was made anew is read anew."""
    cluster = Cluster()
    reader = OffsetsReader(cluster)
    assert reader.read() == poll(reader) == []
    cluster.scenes.append(formed())
    assert told(poll(soon(reader))) == [(GROUP, 1)]
    cluster.scenes.append(formed(OTHER))
    assert told(poll(soon(reader))) == [(OTHER, 1)]
    cluster.topic_id, cluster.scenes[:] = UUID(int=8), [formed()]
    assert told(poll(soon(reader))) == [(GROUP, 1)]


def test_a_broker_that_does_not_know_the_topic_yet_changes_nothing() -> None:
    """A broker of Kafka with ZooKeeper says so right after its start. No event comes twice."""
    cluster = Cluster(formed())
    reader = OffsetsReader(cluster)
    assert told(reader.read()) == [(GROUP, 1)]
    scenes, cluster.scenes = cluster.scenes, []
    assert (poll(soon(reader)), reader.absent) == ([], (0,))
    cluster.scenes = [grown(scenes[0])]
    assert (told(poll(soon(reader))), reader.absent) == ([(GROUP, 2)], ())


def test_a_partition_without_a_leader_is_absent() -> None:
    """It is read once it has one."""
    cluster = Cluster(formed(), formed(OTHER))
    cluster.leaders[0] = -1
    reader = OffsetsReader(cluster)
    assert (reader.absent, told(reader.read())) == ((0,), [(OTHER, 1)])
    cluster.leaders[0] = 1
    assert (told(poll(soon(reader))), reader.absent) == ([(GROUP, 1)], ())


def test_markers_and_compressed_batches() -> None:
    """The marker of an aborted transaction is no record and no gap."""
    scene = formed().transacted(5, 9).end_transaction(9, committed=False).group([member("a", A)], 2)
    scene.batches[-1] = compressed(scene.batches[-1], Codec.ZSTD)
    assert told(OffsetsReader(Cluster(scene)).read()) == [(GROUP, 1), (GROUP, 2)]


def test_a_damaged_batch_is_counted_and_passed() -> None:
    """Its header says where the next one begins."""
    scene = grown(formed()).group([member("a", A)], 3)
    scene.batches[1] = scene.batches[1][:-1] + bytes([scene.batches[1][-1] ^ 1])
    reader = OffsetsReader(Cluster(scene))
    assert told(reader.read()) == [(GROUP, 1), (GROUP, 3)]
    assert reader.passed_over == 1


def test_an_error_of_a_partition_is_told() -> None:
    """An error that no other leader would cure."""
    cluster = Cluster(formed())
    reader = OffsetsReader(cluster)
    cluster.errors[0] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(Refused, match="TOPIC_AUTHORIZATION_FAILED"):
        reader.read()


def test_a_reader_of_any_cluster() -> None:
    """Kafka has no topic of events, or hides it; a user who may read neither gets the first refusal."""
    cluster = Cluster(formed())
    assert isinstance(reader_of(cluster), OffsetsReader)
    cluster.denied = {"__rebalance_events"}
    assert isinstance(reader_of(cluster), OffsetsReader)
    cluster.denied.add("__consumer_offsets")
    with pytest.raises(Refused, match="__rebalance_events"):
        reader_of(cluster)
    assert not issubclass(EventReader, OffsetsReader)


def test_session_timeouts_are_asked_for_until_the_server_refuses() -> None:
    """Each group is asked for once; after a refusal none is."""
    cluster = Cluster()
    timeouts = SessionTimeouts(cluster, "consumer.session.timeout.ms")
    assert (timeouts["a"], timeouts.get("a"), list(timeouts), len(timeouts)) == (45_000, 45_000, ["a"], 1)
    cluster.session_timeout = "soon"
    assert timeouts.get("odd") is None
    cluster.denied = {"b"}
    assert timeouts.get("b") is None
    cluster.denied = set()
    assert timeouts.get("c") is None
    assert cluster.looked_up == [["a"], ["odd"], ["b"]]


def test_one_request_asks_for_many_session_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal of some is theirs alone; a cluster that is away may fail twice in a row; the oldest ones go first."""
    monkeypatch.setattr(offsets_log, "LOOKED_UP_AT_ONCE", 2)
    monkeypatch.setattr(offsets_log, "TIMEOUTS_MAX", 4)
    cluster = Cluster()
    cluster.denied = {"b"}
    timeouts = SessionTimeouts(cluster, "consumer.session.timeout.ms")
    timeouts.ask_for(["a", "b", "c", "a"])
    assert (cluster.looked_up, dict(timeouts)) == ([["a", "b"], ["c"]], {"a": 45_000, "c": 45_000})
    cluster.away = {1}
    timeouts.ask_for(["d", "e", "f"])
    cluster.away = set()
    assert (timeouts.get("g"), list(timeouts)) == (45_000, ["g"])
    cluster.away = {1}
    timeouts.ask_for("hijklm")
    cluster.away = set()
    assert (timeouts.get("n"), len(cluster.looked_up)) == (None, 8)


def test_the_groups_of_a_fetch_share_a_request() -> None:
    """Each group of the consumer protocol is looked up before its first record is taken, with all others."""
    scene = Scene()
    for number in range(3):
        scene.append(consumer_member(group_on(0, f"modern-{number}")))
    cluster = Cluster(scene, formed(OTHER), formed(), formed())
    OffsetsReader(cluster).read()
    assert cluster.looked_up == [[group_on(0, f"modern-{number}") for number in range(3)]]


def test_names_of_topics_are_asked_for_once_in_a_while() -> None:
    """An unknown id makes the reader ask, but not each time."""
    cluster = Cluster()
    names = TopicNames(cluster)
    assert UUID(int=9) in names
    assert names[UUID(int=9)] == "orders"
    assert UUID(int=1) not in names
    assert list(names) == [UUID(int=9)]
    assert len(names) == 1
