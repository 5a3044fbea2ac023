"""Random plays: members come, change, restart, go away, fall silent and leave, in any order.

`Play` checks after each event that no partition has two holders, that epochs never fall, and that the log makes the
same group. At the end nothing changes any more, and every member reaches its target. Two plays of three make targets in
the smallest steps, with anything between two of them.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from coordinator.group.consumer import target
from coordinator.group.consumer.assignors import subscriber
from schemas.errors import ErrorCode
from tests.group.consumer.play import Owned, Play, given

STEPS = 120
ROUNDS = 40
"""Heartbeats of everybody within which a group must be stable once nothing changes."""

TOPICS = ("t1", "t2", "u1")


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
        lost = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}
        if answer.error_code in lost | {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNRELEASED_INSTANCE_ID}:
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


def resolve(play: Play) -> None:
    """Bring the result of a resolution, if one was asked for."""
    if play.asked:
        play.resolve(
            **{"t.*": [name for name in play.topics if name[0] == "t"]},
            **{"u.*": [name for name in play.topics if name[0] == "u"]},
        )


@pytest.mark.parametrize("seed", range(90))
def test_any_play_keeps_the_rules_and_settles(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """See the module."""
    chance = random.Random(seed)
    if seed % 3:
        monkeypatch.setattr(subscriber, "UNITS_PER_PAUSE", 1)
        monkeypatch.setattr(target, "PAUSES_AT_ONCE", chance.choice([0, 0, 3, 10]))
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
    settle(play, clients)
    for client in clients * 2:
        client.beat(says=False)
    assert play.repeated >= len(clients)


def settle(play: Play, clients: list[Client]) -> None:
    """Nobody comes or goes any more; all members reach their targets."""
    for client in clients:
        client.loses = False
    for _ in range(ROUNDS):
        play.wait(3_000)
        resolve(play)
        play.work()
        for client in clients:
            if not client.is_in:
                client.join()
            else:
                client.beat(topics=["t1"], regex="", timeout_ms=10_000)
        if play.state() == "Stable" and len(play.group.members) == len(clients):
            break
    assert play.state() == "Stable"
    assert set(play.group.members) == {client.member_id for client in clients}
    held = [partition for owned in play.held().values() for partition in owned.get("t1", [])]
    assert sorted(held) == list(range(play.topics["t1"]))
