"""Plays clients of a server, and checks that the next server has everything that this one acknowledged.

A Player plays all members of some groups, with one connection a member: it lets them join and sync, restarts static
members, commits and deletes offsets, lets all leave, deletes groups, creates topics and transactional ids. It notes
each change when the request goes out, and again when the answer confirms it. A server that is killed in between may
have made the change or not. If several changes of one group are under way, the server makes none before the changes
that precede it. So the next server has to have the acknowledged state with none, some or all of these changes, counted
from the first.

Sessions are long and no member falls silent, so nothing changes by itself.

House rule: a player knows only the answers that it got; only `check` reads anything back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from typing import Any, NamedTuple, cast

from protocol.messages import (
    ConsumerProtocolSubscription,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    ListTransactionsRequest,
    Message,
    MetadataRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
    encode,
)
from schemas.errors import ErrorCode
from tests.support.raw import Connection
from tests.support.requests import (
    commit_request,
    delete_offsets_request,
    heartbeat_request,
    join_request,
    leave_request,
    sync_request,
    topics_request,
)

SESSION_MS = 1_000_000
MEMBERS_MAX = 3
PARTITIONS = 4
TOPICS = f"a:{PARTITIONS},b:{PARTITIONS}"
"""The topics that the server has to have, as tenure.topics."""

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

GROUPS = 4
"""A player has this many groups, unless a test says otherwise."""


class Seat(NamedTuple):
    """A member; its id is "" from a static restart until the answer, which brings a new one."""

    member_id: str
    instance_id: str | None
    assignment: bytes


class Found(NamedTuple):
    """A group as the server shows it."""

    state: str
    seats: tuple[Seat, ...]
    offsets: dict[tuple[str, int], int]


@dataclass(frozen=True)
class Kept:
    """A group's expected state: its last synced generation, 0 if it never had one, its seats, its offsets."""

    generation: int = 0
    seats: tuple[Seat, ...] = ()
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)

    def settle(self, found: Found) -> Kept | None:
        """Return the state that fits `found`, None if `found` contradicts this one."""
        expected = "Stable" if self.seats else "Empty" if self.generation or self.offsets else "Dead"
        if (found.state, found.offsets) != (expected, self.offsets):
            return None
        fresh = {seat.instance_id: seat.member_id for seat in found.seats}
        seats = [
            seat if seat.member_id else seat._replace(member_id=fresh.get(seat.instance_id, "")) for seat in self.seats
        ]
        return replace(self, seats=found.seats) if sorted(seats) == sorted(found.seats) else None


class Promises:
    """A group's promises: kept[0] is acknowledged; each of the others has one more change that is under way."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.kept = [Kept()]

    @property
    def now(self) -> Kept:
        """Return the acknowledged state; no change may be under way."""
        (kept,) = self.kept
        return kept

    def attempt(self, **changes: Any) -> None:
        """Note the changes of a request that goes out."""
        self.kept.append(replace(self.kept[-1], **changes))

    def acknowledged(self, **learned: Any) -> None:
        """Note the answer to the first change that is under way."""
        del self.kept[0]
        if learned:
            self.kept[0] = replace(self.kept[0], **learned)


class Player:
    """Plays so many groups; `name` sets its groups and topics apart from other players'.

    answered: called after each answer.
    """

    def __init__(self, name: str, chance: Random, answered: Callable[[], None], groups: int = GROUPS) -> None:
        self.groups = [Promises(f"{name}-{number}") for number in range(groups)]
        self.topics: set[str] = set()
        self._topic_under_way: str | None = None
        self.transactional_ids: set[str] = set()
        self._name = name
        self._chance = chance
        self._answered = answered
        self._number = count(1)
        self._connections: list[Connection] = []

    def play(self, port: int) -> None:
        """Change the groups by chance, for ever; raise Closed or OSError once the server is gone."""
        self._connections = []
        try:
            for _ in range(MEMBERS_MAX):  # one by one: the server may go meanwhile
                self._connections.append(Connection(port))
            while True:
                self._turn(self._chance.choice(self.groups))
        finally:
            for connection in self._connections:
                connection.close()

    def check(self, connection: Connection) -> None:
        """Check that everything acknowledged holds; take the changes that were under way as the server shows them."""
        for group in self.groups:
            found = _read(connection, group.group_id)
            settled = [known for kept in group.kept if (known := kept.settle(found)) is not None]
            assert settled, f"{group.group_id}: found {found}, not one of {group.kept}"
            group.kept = settled[-1:]
            for seat in settled[-1].seats:
                beat = heartbeat_request(group.group_id, settled[-1].generation, seat.member_id, seat.instance_id)
                assert _ask(connection, beat, 4).error_code == ErrorCode.NONE
        found_topics = {
            topic.name
            for topic in _ask(connection, MetadataRequest(topics=None), 12).topics
            if topic.name.startswith(f"{self._name}-")
        }
        assert self.topics <= found_topics <= self.topics | {self._topic_under_way}
        self.topics = found_topics
        self._topic_under_way = None
        while (listed := _ask(connection, ListTransactionsRequest(), 0)).error_code == LOADING:
            pass
        assert self.transactional_ids <= {each.transactional_id for each in listed.transaction_states}

    def _turn(self, group: Promises) -> None:
        kept = group.now
        step = self._chance.random()
        if step < 0.3 or not (kept.generation or kept.offsets):
            self._rebalance(group)
        elif step < 0.5 and any(seat.instance_id for seat in kept.seats):
            self._restart(group)
        elif step < 0.6 and len(kept.offsets) > 1:
            self._delete_offset(group)
        elif step < 0.65 and kept.seats:
            self._leave(group)
        elif step < 0.67 and not kept.seats:
            self._delete(group)
        elif step < 0.68:
            self._create_topic()
        elif step < 0.685:
            self._create_transactional_id()
        else:
            self._commit(group)

    def _ask(self, request: Message, version: int) -> Any:
        answer = self._connections[0].ask(request, version)
        self._answered()
        return answer

    def _rebalance(self, group: Promises) -> None:
        """All members rejoin, perhaps with a new one, and the leader hands out new assignments."""
        kept = group.now
        members = [(seat.member_id, seat.instance_id) for seat in kept.seats]
        is_larger = not members or (len(members) < MEMBERS_MAX and self._chance.random() < 0.5)
        if is_larger:
            members.append(("", f"i{next(self._number)}" if self._chance.random() < 0.7 else None))
        at = list(zip(self._connections, members, strict=False))
        # Each join has a new subscription, so any member's join is a reason to rebalance.
        requests = [_join(group.group_id, *member, b"%d" % next(self._number)) for member in members]
        if is_larger:
            # The new member joins first: the others could complete the rebalance among themselves.
            newcomer, request = self._connections[len(members) - 1], requests.pop()
            if request.group_instance_id is None:
                pending: Any = newcomer.ask(request, 9)
                assert pending.error_code == ErrorCode.MEMBER_ID_REQUIRED
                request.member_id = pending.member_id
            newcomer.send(request, 9)
            while kept.seats and _read(self._connections[0], group.group_id).state != "PreparingRebalance":
                pass
        for (connection, _), request in zip(at, requests, strict=False):
            connection.send(request, 9)
        joined: list[Any] = [connection.receive() for connection, _ in at]
        assert {answer.error_code for answer in joined} == {ErrorCode.NONE}
        (generation,) = {answer.generation_id for answer in joined}
        assert generation > kept.generation
        seats = []
        for answer, (_, instance_id) in zip(joined, members, strict=True):
            content = self._chance.randbytes(self._chance.choice([10, 300, 2_000]))
            seats.append(Seat(answer.member_id, instance_id, b"%d:" % next(self._number) + content))
        group.attempt(generation=generation, seats=tuple(seats))
        for connection, seat, answer in zip(self._connections, seats, joined, strict=False):
            leads = answer.leader == answer.member_id
            connection.send(_sync(group.group_id, generation, seat, seats if leads else []), 5)
        synced: list[Any] = [connection.receive() for connection, _ in at]
        assert [answer.assignment for answer in synced] == [seat.assignment for seat in seats]
        group.acknowledged()
        self._answered()

    def _restart(self, group: Promises) -> None:
        """A static member joins without its id; the answer gives it a new one with the assignment that it has."""
        kept = group.now
        seat = self._chance.choice([seat for seat in kept.seats if seat.instance_id])
        others = tuple(other for other in kept.seats if other is not seat)
        group.attempt(seats=(*others, seat._replace(member_id="")))
        joined = self._ask(_join(group.group_id, "", seat.instance_id, b""), 9)
        assert (joined.error_code, joined.generation_id) == (ErrorCode.NONE, kept.generation)
        assert joined.member_id != seat.member_id
        seat = seat._replace(member_id=joined.member_id)
        group.acknowledged(seats=(*others, seat))
        synced = self._ask(_sync(group.group_id, kept.generation, seat, []), 5)
        assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, seat.assignment)

    def _commit(self, group: Promises) -> None:
        """Send up to eight commits, one behind the other, without waiting for the answers."""
        kept = group.now
        seat = self._chance.choice(kept.seats) if kept.seats else Seat("", None, b"")
        connection = self._connections[0]
        commits = self._chance.randint(1, 8)
        for _ in range(commits):
            offsets = {
                (self._chance.choice("ab"), self._chance.randrange(PARTITIONS)): next(self._number) for _ in range(2)
            }
            group.attempt(offsets=group.kept[-1].offsets | offsets)
            who = (kept.generation if kept.seats else -1, seat.member_id, seat.instance_id)
            connection.send(commit_request(group.group_id, offsets, *who, metadata="m"), 8)
        for _ in range(commits):
            answer = cast("Any", connection.receive())
            codes = {partition.error_code for topic in answer.topics for partition in topic.partitions}
            assert codes == {ErrorCode.NONE}
            group.acknowledged()
            self._answered()

    def _delete_offset(self, group: Promises) -> None:
        kept = group.now
        topic, partition = self._chance.choice(sorted(kept.offsets))
        group.attempt(offsets={at: offset for at, offset in kept.offsets.items() if at != (topic, partition)})
        answer = self._ask(delete_offsets_request(group.group_id, {topic: [partition]}), 0)
        assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (ErrorCode.NONE, ErrorCode.NONE)
        group.acknowledged()

    def _leave(self, group: Promises) -> None:
        """All members leave at once."""
        group.attempt(seats=())
        members = [(seat.member_id, seat.instance_id) for seat in group.kept[0].seats]
        answer = self._ask(leave_request(group.group_id, *members), 5)
        assert (answer.error_code, {member.error_code for member in answer.members}) == (0, {ErrorCode.NONE})
        group.acknowledged()

    def _delete(self, group: Promises) -> None:
        group.attempt(generation=0, offsets={})
        answer = self._ask(DeleteGroupsRequest(groups_names=[group.group_id]), 2)
        assert answer.results[0].error_code == ErrorCode.NONE
        group.acknowledged()

    def _create_topic(self) -> None:
        self._topic_under_way = name = f"{self._name}-{next(self._number)}"
        answer = self._ask(topics_request({name: 1}), 5)
        assert answer.topics[0].error_code == ErrorCode.NONE
        self.topics.add(name)

    def _create_transactional_id(self) -> None:
        """The first one opens another log, beside that of the groups."""
        name = f"{self._name}-{next(self._number)}"
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        while (answer := self._ask(request, 4)).error_code == LOADING:
            pass
        assert answer.error_code == ErrorCode.NONE
        self.transactional_ids.add(name)


def _join(group_id: str, member_id: str, instance_id: str | None, user_data: bytes) -> JoinGroupRequest:
    metadata = b"\0\0" + encode(ConsumerProtocolSubscription(topics=["orders"], user_data=user_data), 0)
    protocols = [("range", metadata)]
    return join_request(
        group_id, member_id, instance_id, session_ms=SESSION_MS, rebalance_ms=SESSION_MS, protocols=protocols
    )


def _sync(group_id: str, generation: int, seat: Seat, seats: Sequence[Seat]) -> SyncGroupRequest:
    """Build the SyncGroup of the member on `seat`; a leader's carries the assignments of all `seats`."""
    given = {each.member_id: each.assignment for each in seats}
    return sync_request(group_id, generation, seat.member_id, seat.instance_id, given)


def _ask(connection: Connection, request: Message, version: int) -> Any:
    """Send a request until the partition is loaded; return the answer."""
    while True:
        answer: Any = connection.ask(request, version)
        told = answer.groups[0] if isinstance(request, DescribeGroupsRequest) else answer
        if getattr(told, "error_code", 0) != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return answer


def _read(connection: Connection, group_id: str) -> Found:
    group = _ask(connection, DescribeGroupsRequest(groups=[group_id]), 5).groups[0]
    fetched = _ask(connection, OffsetFetchRequest(group_id=group_id, topics=None), 7)
    assert (group.error_code, fetched.error_code) == (ErrorCode.NONE, ErrorCode.NONE)
    seats = tuple(
        Seat(member.member_id, member.group_instance_id, bytes(member.member_assignment)) for member in group.members
    )
    offsets = {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in fetched.topics
        for partition in topic.partitions
    }
    return Found(group.group_state, seats, offsets)
