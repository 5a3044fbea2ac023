"""Random plays: members of both protocols come, change, restart, go away, fall silent and leave, in any order.

`Play` checks after each event that no partition has two holders, that epochs never fall, and that the log makes the
same group. At the end nothing changes any more, and every member reaches its target. Two plays of three make targets in
the smallest steps, with anything between two of them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import cycle
from typing import Any

import pytest

from coordinator.group.consumer import target
from coordinator.group.consumer.assignors import subscriber
from coordinator.group.state import Kind
from schemas.errors import ErrorCode
from tests.group.consumer.play import Owned, Play, assigned, given, read, subscribed
from tests.support.length import rounds

STEPS = 120
WANTED = frozenset({"t1"})
"""The topics of everybody in the end."""

ROUNDS = 40
"""Heartbeats of everybody within which a group must be stable once nothing changes."""

TOPICS = ("t1", "t2", "u1")


LOST = {
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    # A classic group in its first rebalance.
    ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""Errors after which a client starts anew."""


class Client:
    """A client that follows the protocol: it gives up what its assignment leaves out, and says so."""

    def __init__(self, play: Play, chance: random.Random, number: int) -> None:
        self.play = play
        self.chance = chance
        self.number = number
        self.life = 0
        self.instance_id = f"i{number}" if chance.random() < 0.5 else None
        self.epoch = 0
        self.owned: Owned = {}
        self.is_in = False
        self.loses = True

    @property
    def member_id(self) -> str:
        """A new id for each life."""
        return f"m{self.number}-{self.life}"

    def join(self) -> None:
        """Start."""
        self.life += 1
        self.owned, self.epoch = {}, 0
        self._take(self.play.join(self.member_id, **self._subscription(), instance_id=self.instance_id))

    def _subscription(self) -> dict[str, Any]:
        if self.chance.random() < 0.25:
            return {"regex": self.chance.choice(["t.*", "u.*"])}
        names = [name for name in TOPICS if self.chance.random() < 0.7]
        return {"topics": names, "assignor": self.chance.choice(["range", "uniform", None])}

    def beat(self, *, says: bool = True, **changed: Any) -> None:
        """Send a heartbeat."""
        owned = dict(self.owned) if says else None
        self._take(self.play.beat(self.member_id, self.epoch, owned, instance_id=self.instance_id, **changed))

    def _take(self, answer: Any) -> None:
        if answer.error_code in LOST:
            self.is_in = False
            return
        assert answer.error_code == ErrorCode.NONE, answer
        if self.loses and self.chance.random() < 0.1:
            return  # the answer is lost on its way
        self.is_in = True
        self.epoch = answer.member_epoch
        assignment = given(answer)
        if assignment is not None:
            self.owned = assignment

    def go_on(self) -> None:
        """Do what a client of t1 does that nobody disturbs."""
        if not self.is_in:
            self.join()
        else:
            self.beat(topics=["t1"], regex="", timeout_ms=10_000)

    def restarted(self) -> None:
        """The coordinator restarted; a member notices nothing."""

    def act(self) -> None:
        """Do something that a client may do."""
        if not self.is_in:
            self.join()
            return
        what = self.chance.random()
        if what < 0.6:
            self.beat(says=self.chance.random() < 0.7)
        elif what < 0.7:
            self.beat(**self._subscription())
        elif what < 0.8:
            self.is_in = False  # it dies
        elif what < 0.9 and self.instance_id is not None:
            self.play.beat(self.member_id, -2, instance_id=self.instance_id)
            self.is_in = False
        else:
            self.play.beat(self.member_id, -1, instance_id=self.instance_id)
            self.is_in = False


class ClassicClient:
    """A client of the classic protocol. It gives up what its assignment leaves out, and keeps the rest (KIP-429)."""

    def __init__(self, play: Play, chance: random.Random, number: int) -> None:
        self.play = play
        self.chance = chance
        self.instance_id = f"i{number}" if chance.random() < 0.5 else None
        self.number = number
        self.sent = 0
        self.topics = list(TOPICS)
        self.waits: str | None = None
        self.start_anew()

    def start_anew(self) -> None:
        """Forget everything."""
        self.member_id, self.generation = "", -1
        self.owned: Owned = {}
        self.is_in = False

    def restarted(self) -> None:
        """The coordinator restarted: what waits gets NOT_COORDINATOR."""
        if self.waits is not None:
            self.waits, self.is_in = None, False

    def join(self) -> None:
        """Join, or join again."""
        metadata = subscribed(*self.topics, owned=self.owned, generation=self.generation)
        self.is_in = False
        self.sent += 1
        request = self._name("join")
        self._take(
            "join", self.play.classic_join(self.member_id, metadata, instance_id=self.instance_id, request=request)
        )

    def _name(self, what: str) -> str:
        """The name of its last request."""
        return f"{what} {self.sent} of c{self.number}"

    def _take(self, what: str, answer: Any) -> None:
        """Take the answer of a JoinGroup or a SyncGroup."""
        self.waits = what if answer is None else None
        if answer is None:
            return
        self.play.answers.pop(self._name(what))
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self.join()
        elif answer.error_code == ErrorCode.NONE and what == "join":
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self._sync(answer.members if answer.leader == answer.member_id else [])
        elif answer.error_code == ErrorCode.NONE:
            self.owned = read(answer.assignment)
            self.is_in = True
        elif answer.error_code != ErrorCode.REBALANCE_IN_PROGRESS:
            self.start_anew()

    def _sync(self, members: Any) -> None:
        """Sync; a leader deals all partitions out in turn."""
        held: dict[str, Owned] = {member.member_id: {} for member in members}
        pairs = [(name, index) for name, count in self.play.topics.items() for index in range(count)]
        for (name, index), member in zip(pairs, cycle(members)):
            held[member.member_id].setdefault(name, []).append(index)
        given = {member_id: assigned(**each) for member_id, each in held.items()}
        self._take(
            "sync",
            self.play.classic_sync(
                self.member_id,
                self.generation,
                given,
                request=self._name("sync"),
                instance=self.instance_id,
            ),
        )

    def hear(self) -> bool:
        """Take an answer that came meanwhile; whether nothing is awaited."""
        if self.waits is not None:
            self._take(self.waits, self.play.answers.get(self._name(self.waits)))
        return self.waits is None

    def go_on(self) -> None:
        """Do what a client of t1 does that nobody disturbs."""
        if not self.hear():
            return
        if not self.is_in or self.topics != ["t1"]:
            self.topics = ["t1"]
            self.join()
            return
        error = self.play.classic_beat(self.member_id, self.generation, self.instance_id)
        if error == ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
        elif error != ErrorCode.NONE:
            self.start_anew()

    def act(self) -> None:
        """Do something that a client may do."""
        what = self.chance.random()
        if what < 0.1:
            # It dies, and starts again with nothing in memory.
            self.waits = None
            self.start_anew()
        elif not self.hear():
            return
        elif not self.is_in or what < 0.2:
            self.join()
        elif what < 0.7:
            error = self.play.classic_beat(self.member_id, self.generation, self.instance_id)
            if error == ErrorCode.REBALANCE_IN_PROGRESS and self.chance.random() < 0.8:
                self.join()
            elif error not in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
                self.start_anew()
        elif what < 0.8:
            self.topics = [name for name in TOPICS if self.chance.random() < 0.7]
            self.join()
        elif what < 0.9:
            # The answer is lost, and the client sends the request again.
            self.play.classic_sync(self.member_id, self.generation, instance=self.instance_id)
        else:
            self.play.remove(self.member_id, self.instance_id)
            self.start_anew()


def resolve(play: Play) -> None:
    """Bring the result of a resolution, if one was asked for."""
    if play.asked:
        play.resolve(
            **{"t.*": [name for name in play.topics if name[0] == "t"]},
            **{"u.*": [name for name in play.topics if name[0] == "u"]},
        )


def in_small_steps(chance: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make targets in the smallest steps, all or most of which are left to `Play.work`."""
    monkeypatch.setattr(subscriber, "UNITS_PER_PAUSE", 1)
    monkeypatch.setattr(target, "PAUSES_AT_ONCE", chance.choice([0, 0, 3, 10]))


@pytest.mark.rounds
@pytest.mark.parametrize("seed", range(rounds(45, 90, 90)))
def test_any_play_keeps_the_rules_and_settles(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """See the module."""
    chance = random.Random(seed)
    if seed % 3:
        in_small_steps(chance, monkeypatch)
    interval = chance.choice([0, 0, 1_000])
    play = Play({"t1": 3, "u1": 2}, group_consumer_assignment_interval_ms=interval)
    clients = [Client(play, chance, number) for number in range(5)]
    paused = 0
    for _ in range(STEPS):
        what = chance.random()
        if play.works:
            paused += 1
            play.work(chance.choice([0, 1, 1, 2, 5, 20, None]))
        if what < 0.75:
            chance.choice(clients).act()
        elif what < 0.85:
            play.wait(chance.choice([500, 5_000, 20_000, 50_000]))
        elif what < 0.9:
            resolve(play)
        elif what < 0.95:
            name = chance.choice(TOPICS)
            play.set_topics(**{name: play.topics.get(name, 0) + 1})
        else:
            play.restart()
            play.asked.clear()
    assert paused or not seed % 3
    assert settle(play, clients) == list(range(play.topics["t1"]))
    for client in clients * 2:
        client.beat(says=False)
    assert play.repeated >= len(clients)


@pytest.mark.rounds
@pytest.mark.parametrize("seed", range(rounds(30, 60, 60)))
def test_any_play_of_both_protocols_keeps_the_rules_and_settles(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Classic members play too: the group changes its kind whenever one kind of members is left."""
    chance = random.Random(f"both {seed}")
    if seed % 3:
        in_small_steps(chance, monkeypatch)
    interval = chance.choice([0, 0, 1_000])
    play = Play({"t1": 3, "u1": 2}, group_consumer_assignment_interval_ms=interval)
    # Some share instance ids, and so take each other's seats.
    ours = [Client(play, chance, number) for number in range(chance.choice([1, 3]))]
    theirs = [ClassicClient(play, chance, number) for number in range(3)]
    clients: list[Client | ClassicClient] = [*ours, *theirs]
    for step in range(STEPS):
        what = chance.random()
        if play.works:
            play.work(chance.choice([0, 1, 1, 2, 5, 20, None]))
        if what < 0.8:
            # In the first third, and in the last one, there are classic members only.
            chance.choice(clients if STEPS // 3 < step < 2 * STEPS // 3 else clients[-3:]).act()
        elif what < 0.88:
            play.wait(chance.choice([500, 5_000, 20_000, 50_000]))
        elif what < 0.91:
            resolve(play)
        elif what < 0.95:
            name = chance.choice(TOPICS)
            play.set_topics(**{name: play.topics.get(name, 0) + 1})
        else:
            play.restart()
            play.asked.clear()
            for client in clients:
                client.restarted()
    for number, client in enumerate(clients):
        client.instance_id = None if client.instance_id is None else f"own {number}"
    assert settle(play, clients) == list(range(play.topics["t1"]))


def settle(play: Play, clients: Sequence[Client | ClassicClient]) -> list[int]:
    """Let nobody come or go until all members reach their targets; return the partitions of t1 that they hold."""
    for client in clients:
        if isinstance(client, Client):
            client.loses = False
    for _ in range(ROUNDS):
        play.wait(3_000)
        resolve(play)
        play.work()
        for client in clients:
            client.go_on()
        if play.group.kind is Kind.CONSUMER and play.state() == "Stable":
            said = {member.member_id: member.topics for member in play.group.members.values()}
            if said == {client.member_id: WANTED for client in clients}:
                break
    assert play.state() == "Stable"
    assert set(play.group.members) == {client.member_id for client in clients}
    for table in ("sessions", "targets", "deadlines", "syncing", "unsettled", "changed_topics", "waits_since"):
        assert set(getattr(play.group, table)) <= set(play.group.members), f"{table} has a member that is gone"
    return sorted(partition for owned in play.held().values() for partition in owned.get("t1", []))


@pytest.mark.parametrize("seed", range(4))
def test_clients_that_follow_no_protocol_break_nothing(seed: int) -> None:
    """Any member id may come with any instance id, epoch, partitions and subscription: each gets an answer."""
    chance = random.Random(seed)
    play = Play(dict.fromkeys(TOPICS, 3))
    heard = set()
    for _ in range(STEPS):
        if chance.random() < 0.1:
            play.wait(chance.choice([1_000, 11_000, 50_000]))
        if play.asked:
            play.resolve(**{regex: [name for name in TOPICS if name[0] == regex[0]] for regex in ("t.*", "u.*")})
        epoch = chance.choice([-2, -1, 0, 0, 0, 0, 1, 2, 3, 4, 9])
        answer = play.beat(
            chance.choice("abcd"),
            epoch,
            {} if epoch == 0 else chance.choice([None, {}, {"t1": [0]}, {"t2": [0, 1, 2], "u1": [2]}]),
            topics=chance.choice([[], ["t1"], list(TOPICS), *([] if epoch == 0 else [None])]),
            instance_id=chance.choice([None, "i", "j"]),
            regex=chance.choice([None, None, "", "t.*", "u.*"]),
            timeout_ms=chance.choice([10_000, 60_000, *([] if epoch == 0 else [-1])]),
            assignor=chance.choice([None, "range", "uniform"]),
        )
        heard.add(ErrorCode(answer.error_code))
    assert {ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNRELEASED_INSTANCE_ID} <= heard
