"""The queue of events and their topic.

The queue decides which notes become events, also when the disk is slow, full or dead. Consumers read the topic, also
after writes that failed; no answer waits for it.
"""

from __future__ import annotations

import errno
import io
import json
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from coordinator.group import notes
from coordinator.group.causes import Cause, CauseKind
from coordinator.group.client import Client
from coordinator.group.course import Outcome, Snapshot
from coordinator.log.engine import Unavailable
from coordinator.loop.lines import Lines
from coordinator.server.nodes.events_topic import (
    AGAIN_MS,
    LINGER_MS,
    LIVE_CAUSES_MAX,
    LIVE_STEPS_MAX,
    LOADED_MAX,
    WEIGHT_MAX,
    Events,
    WriteDone,
)
from coordinator.story.diagnosis import NOT_KEPT
from coordinator.story.entries import Timeline
from coordinator.story.schema import Gap, TimedNote
from protocol.messages import MetadataRequest
from protocol.records.walk import decode_batches
from schemas.errors import ErrorCode
from tests.server.harness import (
    ManualClock,
    Peer,
    Serving,
    connected,
    heartbeat_request,
    join_request,
    seat,
    serving,
    sync_request,
)
from tests.support.batches import batch
from tests.support.memory import ManualEngine
from tests.support.patience import WITHIN_S
from tests.support.requests import fetch_request, produce_request
from tests.support.told import shown
from tests.support.told import told as told_of

CAUSE = Cause(CauseKind.MEMBER_JOINED, ("m",))
STARTED = notes.RebalanceStarted("g", 1, "Stable", CAUSE)
STUCK = notes.RebalanceStuck("g", 1)


class Disk:
    """The place of events: each write waits until `land` ends it."""

    def __init__(self) -> None:
        self.writings: list[tuple[list[TimedNote | Gap], WriteDone]] = []

    def write(self, events: Sequence[TimedNote | Gap], written: WriteDone) -> None:
        """Keep the write; see WriteEvents."""
        self.writings.append((list(events), written))

    def land(self, failed: int = 0, problem: Exception | None = None) -> list[TimedNote | Gap]:
        """End the oldest write; returns its events."""
        events, written = self.writings.pop(0)
        written(failed, problem)
        return events

    def notes(self) -> list[notes.Note]:
        """End the oldest write with success; returns its notes."""
        return [event.note for event in self.land() if isinstance(event, TimedNote)]


class Bench:
    """A queue of events whose time and disk the test controls. open: clients whose connection is open."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.log = io.StringIO()
        self.disk = Disk()
        self.open: list[Client] = []
        self.events = Events(self.clock, Lines(self.log, "json", 1, self.clock))
        self.events.start(self.disk.write, lambda client: any(client is each for each in self.open))

    def take(self, *happened: notes.Note) -> None:
        """Pass these notes to the queue, as the core does."""
        self.events.take([notes.Noted(0, self.clock.wall_ms(), happened)])

    def written(self, *happened: notes.Note) -> list[notes.Note]:
        """Return the notes that the queue writes when these notes come."""
        self.take(*happened)
        self.clock.advance(LINGER_MS)
        return self.disk.notes() if self.disk.writings else []


@pytest.fixture
def bench() -> Bench:
    """Return a queue that serves."""
    return Bench()


def ended(members: int) -> notes.RebalanceEnded:
    """Return the end of a rebalance with that many members."""
    one = Snapshot("m", None, "c", "/h", b"")
    return notes.RebalanceEnded(
        "g",
        2,
        Outcome.COMPLETED,
        1,
        "Stable",
        (CAUSE,),
        0,
        0,
        0,
        0,
        None,
        (),
        (),
        "m",
        "consumer",
        "range",
        (),
        (one,) * members,
    )


def test_events_are_written_together_a_little_later(bench: Bench) -> None:
    """The queue writes events a little later and together, after the code that passed the notes is done."""
    deleted = notes.GroupDeleted("g", 1, 0)
    bench.take(STUCK)
    bench.take(deleted)
    assert not bench.disk.writings
    bench.clock.advance(LINGER_MS)
    assert bench.disk.notes() == [STUCK, deleted]


def test_one_writing_at_a_time(bench: Bench) -> None:
    """Events that come during a write go with the next write."""
    bench.take(STARTED)
    bench.clock.advance(LINGER_MS)
    bench.take(STUCK)
    bench.clock.advance(10 * LINGER_MS)
    assert len(bench.disk.writings) == 1
    bench.disk.land()
    bench.clock.advance(LINGER_MS)
    assert bench.disk.notes() == [STUCK]


def test_notes_that_nobody_asks_for_are_no_events() -> None:
    """Notes that only log lines need don't become events."""
    assert not Bench().written(notes.GroupEmptied("g", 1), notes.MemberJoined("g", 1, "m", None, "c", "/h"))


def test_loads_of_groups_that_have_members_are_events_up_to_a_number(bench: Bench) -> None:
    """A load makes events of a limited number of groups with members; a group without members makes none."""
    loaded = notes.GroupLoaded("g", 1, "Stable", 2)
    assert bench.written(notes.GroupLoaded("h", 1, "Empty", 0), loaded) == [loaded]
    assert len(bench.written(*[loaded] * (2 * LOADED_MAX))) == LOADED_MAX - 1
    assert not bench.written(loaded)
    assert bench.events.dropped == 0


def test_a_load_in_a_cluster_says_so(bench: Bench) -> None:
    """There a node loads groups also when none starts; a server by itself loads them at its start."""
    for in_cluster, extra in ((False, {}), (True, {"in_cluster": True})):
        bench.events.in_cluster = in_cluster
        bench.take(notes.GroupLoaded("g", 1, "Stable", 2))
        bench.clock.advance(LINGER_MS)
        (event,) = bench.disk.land()
        assert isinstance(event, TimedNote)
        assert event.extra == extra


def test_a_load_after_a_failed_write_is_an_event_for_any_group() -> None:
    """After a failed write each load is an event, of any group, and an unload never is one."""
    again, gone = notes.GroupLoaded("g", 2, "Empty", 0, True), notes.GroupLoaded("h", 0, "Dead", 0, True)
    assert Bench().written(notes.GroupUnloaded("h", 1), again, gone) == [again, gone]


def test_a_member_id_that_is_used_at_once_is_no_event(bench: Bench) -> None:
    """Every dynamic member gets an id; only an unused id, and its end, become events."""
    used, unused = (notes.MemberPending("g", 1, name, "c", "/h", 5) for name in ("used", "unused"))
    joined = notes.MemberJoined("g", 1, "used", None, "c", "/h")
    assert bench.written(used, unused, joined) == [unused]
    expired = notes.PendingExpired("g", 1, "unused")
    assert bench.written(expired) == [expired]


def test_a_member_id_that_lapses_at_once_is_none_either() -> None:
    """An id that expires at once makes no event at its beginning and none at its end."""
    assert not Bench().written(
        notes.MemberPending("g", 1, "m", "c", "/h", 5), notes.PendingExpired("g", 1, "m", left=True)
    )


def test_a_rebalance_that_is_over_at_once_is_one_event(bench: Bench) -> None:
    """The end event of a short rebalance has its start and all causes; a longer rebalance has further events."""
    cause, end = notes.RebalanceCause("g", 1, CAUSE), ended(2)
    assert bench.written(STARTED, cause, end) == [end]
    assert bench.written(STARTED, cause) == [STARTED, cause]
    assert bench.written(end, STARTED) == [end, STARTED], "the next one has begun"
    assert bench.written(STARTED, cause, STARTED) == [STARTED, cause, STARTED], "the end of the first is no event"
    other = notes.RebalanceStarted("h", 1, "Stable", CAUSE)
    assert bench.written(other, end) == [end, other], "of another group"


def test_further_causes_are_events_up_to_a_number(bench: Bench) -> None:
    """Each rebalance makes a limited number of events about further causes; its end event has all causes."""
    causes = [notes.RebalanceCause("g", 1, CAUSE)] * (LIVE_CAUSES_MAX + 5)
    assert len(bench.written(STARTED, *causes)) == 1 + LIVE_CAUSES_MAX
    assert len(bench.written(STARTED, *causes)) == 1 + LIVE_CAUSES_MAX


# Fencing.


def kind_of(bench: Bench, note: notes.MemberFenced) -> str:
    """Return the kind of conflict in the note's one event."""
    bench.take(note)
    bench.clock.advance(LINGER_MS)
    (event,) = bench.disk.land()
    assert isinstance(event, TimedNote)
    kind: str = event.extra["kind"]
    return kind


def fenced(client: Client | None, current: Client | None, *, waited: bool = False) -> notes.MemberFenced:
    """Return the note that the client `current` fenced the client `client`."""
    return notes.MemberFenced("g", 1, "m-1", "m-2", "i", "heartbeat", client, current, waited)


def test_two_programs_with_one_instance_id_are_a_conflict() -> None:
    """A program that uses a fenced id is another program than the new member, although both look alike."""
    one, other = Client("c", "/h"), Client("c", "/h")
    assert one is not other
    assert kind_of(Bench(), fenced(one, other)) == "conflict"
    assert kind_of(Bench(), fenced(one, None)) == "conflict"


def test_a_client_that_meets_itself_is_no_conflict() -> None:
    """If both ids came through one connection, there is no conflict."""
    one = Client("c", "/h")
    assert kind_of(Bench(), fenced(one, one)) == "self"
    assert kind_of(Bench(), fenced(one, one, waited=True)) == "self"


def test_a_request_without_a_member_id_is_no_conflict() -> None:
    """A client that lost its member id, after failed writes for example, is no second program."""
    note = notes.MemberFenced("g", 1, "", "m-2", "i", "offset-commit", Client("c", "/h"), Client("c", "/h"))
    assert kind_of(Bench(), note) == "self"


def test_a_request_that_waited_is_a_conflict_if_somebody_waits_for_its_answer(bench: Bench) -> None:
    """A waiting request is a conflict only if its connection is open.

    A process that ended, or a client that gave up, has closed its connection.
    """
    one, other = Client("c", "/h"), Client("c", "/h")
    assert kind_of(bench, fenced(one, other, waited=True)) == "self"
    bench = Bench()
    bench.open.append(one)
    assert kind_of(bench, fenced(one, other, waited=True)) == "conflict"


def test_a_fenced_member_is_one_event(bench: Bench) -> None:
    """The fencing of one member is one event, although the client repeats its request without end."""
    note = fenced(Client("c", "/h"), None)
    assert bench.written(note, note) == [note]
    assert not bench.written(note)


# The disk.


@pytest.fixture
def weight_max(monkeypatch: pytest.MonkeyPatch) -> int:
    """A limit that is soon reached."""
    monkeypatch.setattr("coordinator.server.nodes.events_topic.WEIGHT_MAX", 1_000)
    return 1_000


def test_whatever_waits_has_its_limit(bench: Bench, weight_max: int) -> None:
    """Notes that may become no event count against the limit too; as soon as that is decided, others have room."""
    bench.take(STUCK)
    bench.clock.advance(LINGER_MS)
    for number in range(weight_max - 2):
        bench.take(notes.MemberPending("g", 1, f"m-{number}", "c", "/h", 5))
    bench.take(STARTED)
    bench.take(STARTED)
    assert bench.events.dropped == 1
    bench.take(notes.MemberJoined("g", 1, "m-0", None, "c", "/h"), notes.PendingExpired("g", 1, "m-1"))
    bench.take(STUCK, STUCK)
    assert bench.events.dropped == 1
    bench.take(STUCK)
    assert bench.events.dropped == 2


def gap_of(events: Sequence[TimedNote | Gap]) -> Gap:
    """Return the gap among the written events."""
    (gap,) = [event for event in events if isinstance(event, Gap)]
    return gap


def test_a_disk_that_hangs_costs_events_and_leaves_a_gap(bench: Bench, weight_max: int) -> None:
    """If the disk hangs, the queue fills up, counts the further events, and writes a gap when it has room."""
    bench.take(STUCK)
    bench.clock.advance(LINGER_MS)
    for _ in range(weight_max - 1):
        bench.take(STUCK)
    first_ms = bench.clock.wall_ms()
    bench.take(STUCK)
    bench.clock.advance(7)
    bench.take(STUCK)
    assert bench.events.dropped == 2
    bench.disk.land()
    bench.clock.advance(LINGER_MS)
    written = bench.disk.land()
    assert len(written) == weight_max
    assert gap_of(written) == Gap(2, first_ms, first_ms + 7)
    assert written[-1] is gap_of(written)
    assert bench.log.getvalue().count("events_dropped") == 1


def test_members_weigh_as_events_do(bench: Bench) -> None:
    """An event with many members takes as much of the queue as many small events."""
    bench.take(ended(WEIGHT_MAX - 1))
    bench.take(STUCK)
    assert bench.events.dropped == 1


def test_a_write_that_fails_is_a_gap(bench: Bench) -> None:
    """A failed write becomes a gap of all events that weren't written, with the gap that they may contain."""
    bench.take(STUCK, STUCK, STUCK)
    bench.clock.advance(LINGER_MS)
    bench.disk.land(2, OSError(errno.ENOSPC, "no space left"))
    bench.clock.advance(LINGER_MS)
    assert gap_of(bench.disk.land(1, OSError("no space left"))).events == 2
    bench.take(STUCK)
    bench.clock.advance(LINGER_MS)
    bench.disk.land(2, OSError("no space left"))
    bench.clock.advance(LINGER_MS)
    assert gap_of(bench.disk.land()).events == 3
    (line,) = [json.loads(line) for line in bench.log.getvalue().splitlines()]
    assert (line["event"], line["reason"]) == ("events_dropped", "no space left")
    assert NOT_KEPT.split('"')[1] in line["message"], "the doctor names the line by these words"


def test_what_was_dropped_adds_up(bench: Bench) -> None:
    """The total of dropped events since the start grows without the gap's own record; each drop has a log line."""
    for lost in (1, 2):
        bench.take(*[STUCK] * lost)
        bench.clock.advance(LINGER_MS)
        bench.disk.land(lost, OSError("no space left"))
        bench.clock.advance(LINGER_MS)
        bench.disk.land(1, OSError("no space left"))
        bench.clock.advance(LINGER_MS)
        assert gap_of(bench.disk.land()).events == lost
    assert bench.events.dropped == 3
    assert bench.log.getvalue().count("events_dropped") == 2


def test_nothing_is_written_of_nothing(bench: Bench) -> None:
    """Without events the queue writes nothing and arms no alarm."""
    bench.events.flush()
    bench.clock.advance(10 * LINGER_MS)
    assert not bench.disk.writings


def test_the_end_waits_for_what_is_to_be_written(bench: Bench) -> None:
    """The end of the queue waits for all events, also those that come during a write, but not for a failing disk."""
    ends: list[str] = []
    bench.take(STUCK)
    bench.clock.advance(LINGER_MS)
    bench.take(STARTED)
    bench.events.stop(lambda: ends.append("first"))
    bench.disk.land()
    assert not ends
    assert bench.disk.notes() == [STARTED]
    assert ends == ["first"]
    bench.take(STUCK)
    bench.events.stop(lambda: ends.append("second"))
    bench.disk.land(1, OSError("no space left"))
    assert ends == ["first", "second"]
    assert not bench.disk.writings
    Events(bench.clock, Lines(bench.log, "json", 1, bench.clock)).stop(lambda: ends.append("never started"))
    assert ends[-1] == "never started"


def test_steps_of_a_rebalance_are_written_if_it_takes_long() -> None:
    """Targets and revocations of a rebalance that is over soon are left out; a long one has a limited number."""
    target = notes.TargetAssigned("g", 2, "uniform", 1, 3, 0)
    asked = notes.MemberRevoking("g", 2, "m", None, "c", "/h", 3, 60_000)
    end = ended(1)
    assert Bench().written(STARTED, target, asked, end) == [end]
    assert not Bench().written(target, asked)
    bench = Bench()
    assert bench.written(STARTED, target, asked) == [STARTED, target, asked]
    bench.take(*[asked] * LIVE_STEPS_MAX)
    bench.clock.advance(LINGER_MS)
    assert bench.disk.notes() == [asked] * (LIVE_STEPS_MAX - 2)


NO_SEAT = notes.InstanceIdUnreleased("g", 2, "new", "m", "i", 5, Client("c", "/h"), Client("d", "/h"))
NO_ROOM, NO_ROOM_AGAIN, NO_ROOM_FOR_OTHER = (
    notes.ClientRefused(
        "g", 2, member_id, None, "GROUP_MAX_SIZE_REACHED", "it is full", "it has room", Client(name, "")
    )
    for member_id, name in (("m", "c"), ("m2", "c"), ("m3", "d"))
)


@pytest.mark.parametrize("refused", [NO_SEAT, NO_ROOM])
def test_a_refused_client_is_an_event(bench: Bench, refused: notes.InstanceIdUnreleased | notes.ClientRefused) -> None:
    """One event in a minute for each client that was refused, however often it tries."""
    assert bench.written(refused, refused) == [refused]
    bench.clock.advance(AGAIN_MS - 2 * LINGER_MS)
    assert not bench.written(refused)
    bench.clock.advance(LINGER_MS)
    assert bench.written(refused) == [refused]


def test_a_refused_client_counts_by_its_name() -> None:
    """A client that tries with another member id each time makes one event; another client makes its own."""
    assert Bench().written(NO_ROOM, NO_ROOM_AGAIN, NO_ROOM_FOR_OTHER) == [NO_ROOM, NO_ROOM_FOR_OTHER]


def test_a_hold_its_end_and_a_change_of_protocol_are_events() -> None:
    """The log has both ends of a hold at once: it can last for minutes."""
    converted = notes.GroupConverted("g", 2, "consumer", 1)
    assert Bench().written(converted) == [converted]
    held = notes.RebalanceHeld("g", 2, ("i-2",), 1, 5_000)
    over = notes.HoldEnded("g", 2, 3)
    assert Bench().written(held, over) == [held, over]


async def records_of(peer: Peer, version: int = 12) -> list[dict[str, Any]]:
    """The records that a consumer reads from partition 0."""
    answer = await peer.ask(fetch_request({("__rebalance_events", 0): 0}), version)
    (partition,) = answer.responses[0].partitions
    assert partition.error_code == ErrorCode.NONE
    return [
        json.loads(record.value) | {"key": record.key.decode()}
        for found in decode_batches(partition.records or b"")
        for record in found.records
        if record.value is not None
    ]


async def test_any_consumer_reads_what_happened() -> None:
    """The internal topic exists before the first event; each record has the group's id as key."""
    async with connected("tenure.events.enable=true") as (server, peer):
        everything = await peer.ask(MetadataRequest(topics=None), 12)
        (topic,) = [each for each in everything.topics if each.name == "__rebalance_events"]
        assert (topic.is_internal, len(topic.partitions)) == (True, 1)
        assert await records_of(peer) == []
        await seat(peer, "g", "i")
        await server.advance(LINGER_MS)
        found = await records_of(peer)
        assert [(each["key"], each["type"]) for each in found] == [("g", "rebalance_ended")]
        assert [each["group_instance_id"] for each in found[-1]["after"]] == ["i"]


async def test_an_event_wakes_those_who_wait_for_it() -> None:
    """A Fetch that waits at the end of the topic is answered when an event is written."""
    async with serving("tenure.events.enable=true") as server:
        reader, peer = await server.peer(), await server.peer()
        await reader.send(fetch_request({("__rebalance_events", 0): 0}, max_wait_ms=2**31 - 1), 11)
        await server.barrier()
        assert reader.is_silent()
        await seat(peer, "g", "i")
        await server.advance(LINGER_MS)
        assert (await reader.receive()).responses[0].partitions[0].high_watermark == 1


async def told(server: Serving, peer: Peer) -> list[dict[str, Any]]:
    """The timeline of group g."""
    await server.advance(LINGER_MS)
    events = [told_of(each["type"], **each) for each in await records_of(peer)]
    return shown(Timeline("g").add_all(events))


async def test_a_rebalance_that_could_not_be_written_is_told_as_that() -> None:
    """Its members are refused, and the group is as in its log: the timeline has neither an end nor a new start."""
    engine = ManualEngine(4, 1)
    async with connected("tenure.events.enable=true", "offsets.topic.num.partitions=4", engine=engine) as (
        server,
        peer,
    ):
        joined = await seat(peer, "g", "i")
        await server.advance(10)
        again = await peer.ask(join_request("g", instance="i", member_id=joined.member_id), 5)
        engine.fail_next(Unavailable("No space left on device"))
        synced = await peer.ask(sync_request("g", again, "i"), 5)
        assert synced.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        entries = await told(server, peer)
        assert [(entry["type"], entry["generation"], entry.get("outcome")) for entry in entries] == [
            ("rebalance", 1, "completed"),
            ("rebalance", 1, "unloaded"),
            ("loaded", 1, None),
        ]
        assert entries[-1]["write_failed"]


async def test_a_restart_that_could_not_be_written_is_told_as_that() -> None:
    """The timeline has no restart but the one before."""
    engine = ManualEngine(4, 1)
    async with connected("tenure.events.enable=true", "offsets.topic.num.partitions=4", engine=engine) as (
        server,
        peer,
    ):
        await seat(peer, "g", "i")
        await server.advance(10)
        assert (await peer.join("g", instance="i")).error_code == ErrorCode.NONE
        await server.advance(10)
        engine.fail_next(Unavailable("No space left on device"))
        assert (await peer.join("g", instance="i")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        entries = await told(server, peer)
        assert [entry["type"] for entry in entries] == ["rebalance", "static_restart", "loaded"]


async def test_a_disk_that_hangs_holds_up_nobody() -> None:
    """Heartbeats and joins are answered while the thread that writes events hangs; the events come later."""
    async with connected("tenure.events.enable=true") as (server, peer):
        joined = await seat(peer, "g", "i")
        stuck = threading.Event()
        assert server.server.data is not None
        server.server.data.write(lambda _: stuck.wait(WITHIN_S), lambda _: None)
        for _ in range(3):
            server.clock.advance(LINGER_MS)
            beat = await peer.ask(heartbeat_request("g", joined, "i"), 4)
            assert beat.error_code == ErrorCode.NONE
            joined = await peer.join("g", instance="i")
            assert joined.error_code == ErrorCode.NONE
        assert not stuck.is_set()
        stuck.set()
        await server.advance(LINGER_MS)
        found = await records_of(peer)
        assert [each["type"] for each in found] == ["rebalance_ended"] + ["member_replaced"] * 3


async def test_nobody_else_writes_to_it() -> None:
    """Clients can't write to it, create it or delete it."""
    async with connected("tenure.events.enable=true") as (_, peer):
        answer = await peer.ask(produce_request({("__rebalance_events", 0): batch([(b"g", b"{}", 0)])}), 9)
        (partition,) = answer.responses[0].partition_responses
        assert partition.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
