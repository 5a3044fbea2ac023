"""Random histories of producers, zombies, crashes and timeouts, against a model that knows what each of them wrote.

Two transactional ids write to one topic partition and commit offsets of one group; somebody commits without a
transaction too. The coordinators of both ids, the group's and the log's view are the real ones. Markers come in any
order and late; a crash loses those that are under way, and answers get lost.

Each transaction writes its number and commits it as an offset. So the model is: what was written, in its order, and
what its producer heard of the end.

House rule: a seed decides everything, and each planted fault is found by some seed.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import pytest

from coordinator.group import pending
from coordinator.group.any_group import AnyGroup
from coordinator.group.client import Now
from coordinator.group.effects import Effects, Response
from coordinator.group.events import Load
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.transactions import COMMIT, Transactions
from coordinator.log.segments.view import View
from coordinator.log.topics.producers import Producers
from coordinator.transaction.coordinator import COMPLETE, Coordinator
from coordinator.transaction.events import (
    AddPartitions,
    EndTxn,
    Granted,
    InitProducerId,
    Markers,
    MarkersWritten,
    Outcome,
)
from coordinator.transaction.state import V2, Status, TopicPartition, TransactionalId
from protocol.records.batch import CONTROL, TRANSACTIONAL, Header, Record
from schemas.errors import ErrorCode
from tests.group.test_transactions import UNSTABLE
from tests.group.test_transactions import Bench as Groups
from tests.support.length import rounds
from tests.transaction.harness import ORDERS, Bench

SEEDS = rounds(100, 1_000, 5_000)
FAULT_SEEDS = 500
STEPS = 100
OFFSETS = TopicPartition("__consumer_offsets", 0)
PLAIN = -1


class Violation(AssertionError):
    """An invariant doesn't hold; the text names it."""


def hold(name: str, *, that: bool) -> None:
    """Raise Violation unless the invariant holds."""
    if not that:
        raise Violation(name)


class Written(NamedTuple):
    """A record or an offset in its log. number: of its transaction; of a plain commit: its offset."""

    number: int
    producer_id: int


class Topic:
    """One topic partition: the rules of the real one, without its bytes."""

    def __init__(self) -> None:
        self.log: list[tuple[Header, int]] = []
        self.written: dict[int, Written] = {}
        self.read_anew()

    def read_anew(self) -> None:
        """A restart."""
        self.view, self.producers = View(Disk()), Producers()
        for offset, (header, marker) in enumerate(self.log):
            self._take(offset, header, marker)

    def append(self, producer: Granted, number: int, sequence: int) -> bool:
        """A record of a transaction; False if it is refused."""
        header = _header(producer.producer_id, producer.epoch, TRANSACTIONAL, sequence)
        if self.producers.check(header) is not ErrorCode.NONE:
            return False
        self.written[len(self.log)] = Written(number, producer.producer_id)
        self._append(header, -1)
        return True

    def end(self, asked: Markers) -> None:
        """A marker."""
        header = _header(asked.producer_id, asked.epoch, TRANSACTIONAL | CONTROL, -1)
        self._append(header, COMMIT if asked.is_commit else 0)

    def _append(self, header: Header, marker: int) -> None:
        self.log.append((header, marker))
        self._take(len(self.log) - 1, header, marker)

    def _take(self, offset: int, header: Header, marker: int) -> None:
        self.producers.take(header, offset)
        self.view.take_transaction(header, offset, marker if header.is_control else None)
        self.view.end = offset + 1

    def committed(self) -> list[int]:
        """The numbers that a reader of committed records gets."""
        return [
            each.number
            for offset, each in self.written.items()
            if offset < self.view.ends().stable
            and not any(
                gone.producer_id == each.producer_id and gone.first_offset <= offset < gone.marker_offset
                for gone in self.view.aborted
            )
        ]


def _header(producer_id: int, epoch: int, attributes: int, sequence: int) -> Header:
    return Header(0, 0, 0, 2, 0, attributes, 0, 0, 0, producer_id, epoch, sequence, 1)


class Program:
    """A program with a transactional id, which may have been replaced by a later one without knowing it."""

    def __init__(self, bench: Bench, producer: Granted, version: int) -> None:
        self.bench = bench
        self.producer = producer
        self.version = version
        self.number: int | None = None
        self.sequence = 0
        self.ends: bool | None = None
        self.has_written = False


class World:
    """All of it. acked, aborted: the transactions whose producers heard how they ended."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.benches = [Bench(), Bench()]
        self.benches[1].fresh = 100_000
        self.groups = Groups()
        self.topic = Topic()
        self.programs: list[Program] = []
        self.numbers = 0
        self.acked: set[int] = set()
        self.aborted: set[int] = set()
        self.commits: list[int] = []
        self.plain: set[int] = set()
        self.writers: dict[tuple[int, int], Program] = {}
        self.left: list[tuple[Bench, Markers, set[TopicPartition]]] = []
        self.stable = 0

    def step(self) -> None:
        """Something happens."""
        steps: list[tuple[Callable[[], None], int]] = [
            (self.start, 2), (self.go_on, 12), (self.write_marker, 8), (self.commit_plain, 1), (self.crash, 1),
            (self.time_out, 1),
        ]  # fmt: skip
        self.chance.choices([each for each, _ in steps], [weight for _, weight in steps])[0]()
        self.check()

    def check(self) -> None:
        """What holds at any time."""
        stable = self.topic.view.ends().stable
        hold("the last stable offset never goes back", that=stable >= self.stable)
        self.stable = stable

    def start(self) -> None:
        """A program starts; one that has the id may live on."""
        bench = self.chance.choice(self.benches)
        granted = bench.init(timeout_ms=1_000)
        if granted.error is ErrorCode.NONE:
            self.programs.append(Program(bench, granted, self.chance.choice([0, V2])))

    def go_on(self) -> None:
        """A program does its next step; more often the latest."""
        if not self.programs:
            return
        program = self.programs[-1] if self.chance.random() < 0.7 else self.chance.choice(self.programs)
        if program.ends is not None or (program.number is not None and self.chance.random() < 0.4):
            self._end(program)
        else:
            self._write(program)

    def _write(self, program: Program) -> None:
        """A record, then the offset with it: both or neither count."""
        if program.number is None:
            program.number, program.has_written = self.numbers, False
            self.numbers += 1
        where = OFFSETS if program.has_written else ORDERS
        bench, producer = program.bench, program.producer
        if bench.add(producer, where, version=program.version) != {ErrorCode.NONE}:
            self._gives_up(program)
            return
        if not program.has_written:
            if not self.topic.append(producer, program.number, program.sequence):
                self._gives_up(program)
                return
            program.sequence += 1
            program.has_written = True
        elif self.groups.commit(producer.producer_id, program.number) is ErrorCode.NONE:
            self.commits.append(program.number)
        writer = self.writers.setdefault((producer.producer_id, producer.epoch), program)
        hold("an epoch has one writer", that=writer is program)

    def _end(self, program: Program) -> None:
        """EndTxn; its answer may get lost, and the program asks again later."""
        if program.ends is None:
            program.ends = self.chance.random() < 0.7
        answer = program.bench.end(program.producer, commit=program.ends, version=program.version)
        self._find_markers(program.bench)
        if self.chance.random() < 0.2 or answer.error is ErrorCode.CONCURRENT_TRANSACTIONS:
            return
        if answer.error is not ErrorCode.NONE:
            self._gives_up(program)
            return
        assert program.number is not None
        if program.has_written:
            (self.acked if program.ends else self.aborted).add(program.number)
        if program.version == V2:
            program.producer, program.sequence = answer, 0
        program.number = program.ends = None

    def _gives_up(self, program: Program) -> None:
        """It never learns how its transaction ended."""
        program.number = program.ends = None
        if self.chance.random() < 0.5:
            self.programs.remove(program)

    def commit_plain(self) -> None:
        """A commit outside of transactions."""
        self.groups.plain(self.numbers)
        self.commits.append(self.numbers)
        self.plain.add(self.numbers)
        self.numbers += 1

    def time_out(self) -> None:
        """The time of a transaction is over."""
        for bench in self.benches:
            if any(at_ms is not None for at_ms in bench.timers.values()):
                bench.time_out()

    def _find_markers(self, bench: Bench) -> None:
        while bench.markers:
            asked = bench.markers.pop(0)
            self.left.append((bench, asked, set(asked.partitions)))

    def write_marker(self) -> None:
        """One marker reaches its partition."""
        for bench in self.benches:
            self._find_markers(bench)
        if not self.left:
            return
        bench, asked, partitions = each = self.chance.choice(self.left)
        if partitions:
            where = self.chance.choice(sorted(partitions))
            partitions.remove(where)
            if where == ORDERS:
                self.topic.end(asked)
            else:
                self.groups.end(asked.producer_id, commit=asked.is_commit)
        if not partitions:
            self.left.remove(each)
            bench.handle(MarkersWritten(asked))

    def crash(self) -> None:
        """The server dies and reads its logs anew."""
        self.left.clear()
        for bench in self.benches:
            bench.timers.clear()
            bench.restart()
        self.groups.start()
        self.topic.read_anew()

    def end(self) -> None:
        """All programs are gone; what they left ends, and nothing is lost, doubled, or half there."""
        if self.chance.random() < 0.5:
            self.crash()
        for _ in range(2):
            self.time_out()
            for bench in self.benches:
                self._find_markers(bench)
            while self.left:
                self.write_marker()
                self.check()
        states = {each.status for bench in self.benches for each in bench.core.groups.values()}
        hold("every transaction ends", that=not states & {Status.ONGOING, *COMPLETE})
        hold("nothing is open", that=not self.topic.view.open and self.groups.fetch(stable=True) != UNSTABLE)
        read = self.topic.committed()
        hold("a record comes once", that=len(read) == len(set(read)))
        hold("no committed record is lost", that=self.acked <= set(read))
        hold("none comes from an aborted transaction", that=not self.aborted & set(read))
        counting = [number for number in self.commits if number in self.plain or number in set(read)]
        hold("the last committed offset counts", that=self.groups.fetch() == (counting[-1] if counting else PLAIN))


def run(seed: int) -> World:
    """One history. Raises Violation."""
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.end()
    return world


@pytest.mark.rounds
def test_random_histories() -> None:
    """Every invariant holds in each history, and the histories have all kinds of ends."""
    worlds = [run(seed) for seed in range(SEEDS)]
    assert sum(len(world.acked) for world in worlds) > SEEDS
    assert sum(len(world.aborted) for world in worlds) > SEEDS / 3
    assert sum(bool(world.topic.view.aborted) for world in worlds) > SEEDS / 3


HANDLERS = Coordinator._HANDLERS


def of_any_epoch(kind: type) -> Callable[..., None]:
    """A handler that takes an event of any epoch of its producer."""

    def handle(core: Coordinator, effects: Effects, event: Any, now: Now) -> None:
        known = core.groups.get(event.transactional_id)
        if known is not None:
            event.epoch = known.epoch
        HANDLERS[kind](core, effects, event, now)

    return handle


def only_load(core: Coordinator, _effects: Effects, event: Load, _now: Now) -> None:
    """Load without markers and timeouts."""
    core.groups |= event.groups  # type: ignore[arg-type]


def init_at_once(core: Coordinator, effects: Effects, event: InitProducerId, now: Now) -> None:
    """InitProducerId that ends no transaction."""
    known = core.groups.get(event.transactional_id)
    if known is not None and known.status is Status.ONGOING:
        known.status = Status.EMPTY
    HANDLERS[InitProducerId](core, effects, event, now)


def abort_without_fence(
    core: Coordinator, effects: Effects, known: TransactionalId, outcome: Outcome, now: Now
) -> None:
    """A transaction times out, and its producer keeps its epoch."""
    core._prepare(effects, known, Status.PREPARE_ABORT, now)
    core._ask_for_markers(effects, known, outcome)


def ask_to_commit(
    core: Coordinator, effects: Effects, known: TransactionalId, aborted: Outcome = Outcome.ABORTED
) -> None:
    """Each marker is a commit."""
    del aborted
    if known.status.is_ending:
        asked = Markers(
            known.group_id, known.producer_id, known.epoch, Outcome.COMMITTED, frozenset(known.partitions or ())
        )
        effects.responses.append(Response(core.markers, asked))


def settle_all(group: AnyGroup, producer_id: int, *, is_commit: bool) -> None:
    """Offsets of an aborted transaction count."""
    del is_commit
    SETTLE(group, producer_id, is_commit=True)


def end_all(transactions: Transactions, producer_id: int, marker: int) -> list[Record]:
    """They count in a replay."""
    del marker
    return END(transactions, producer_id, COMMIT)


def list_none(view: View, header: Header, offset: int, marker: int | None) -> None:
    """No aborted transaction is listed."""
    TAKE(view, header, offset, None if marker is None else COMMIT)


SETTLE, END, TAKE = pending.settle, Transactions.end, View.take_transaction


@pytest.mark.parametrize(
    ("where", "name", "fault"),
    [
        (HANDLERS, Load, only_load),
        (HANDLERS, InitProducerId, init_at_once),
        (HANDLERS, AddPartitions, of_any_epoch(AddPartitions)),
        (HANDLERS, EndTxn, of_any_epoch(EndTxn)),
        (Coordinator, "_abort", abort_without_fence),
        (Coordinator, "_ask_for_markers", ask_to_commit),
        (pending, "settle", settle_all),
        (pending, "supersede", lambda *_: None),
        (Transactions, "end", end_all),
        (Transactions, "_supersede", lambda *_, **__: None),
        (Transactions, "open", lambda _: iter(())),
        (View, "take_transaction", list_none),
    ],
)
def test_planted_faults_are_found(monkeypatch: pytest.MonkeyPatch, where: Any, name: Any, fault: object) -> None:
    """Some history finds each fault, by the invariant that it breaks."""
    if isinstance(where, dict):
        monkeypatch.setattr(Coordinator, "_HANDLERS", HANDLERS | {name: fault})
    else:
        monkeypatch.setattr(where, name, fault)
    with pytest.raises(Violation):
        list(map(run, range(FAULT_SEEDS)))
