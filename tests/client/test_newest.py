"""The newest entries, without reading all events, equal those of a full read."""

from __future__ import annotations

import random
from typing import Any

import pytest

from coordinator.client import events
from coordinator.client.events import EventReader
from coordinator.client.newest import read_timelines
from coordinator.story.events import RebalanceEvent, event_json
from coordinator.story.folding import PAUSE_MS, folded, newest
from protocol.records.batch import Record, encode_batch
from tests.client.test_events import Cluster
from tests.support.cases import each
from tests.support.length import rounds
from tests.support.told import cause as cause_of
from tests.support.told import told

GROUPS = ["g", "h", "rare"]
CAUSE = cause_of()


class Past:
    """Random events that servers wrote, by partition: a group is on the partition of its node."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.at_ms = 1_000_000
        self.written: list[list[RebalanceEvent]] = [[], []]
        self.generations = dict.fromkeys(GROUPS, 0)
        self.opened: dict[str, tuple[int, int, dict[str, Any]]] = {}
        self.seats, self.fenced = dict.fromkeys(GROUPS, ""), dict.fromkeys(GROUPS, "")
        self.ids: dict[str, list[str]] = {group: [] for group in GROUPS}
        for number in range(self.random.randrange(150)):
            self.at_ms += self.random.choice((0, 1, 200, 5_000))
            group = self.random.choices(GROUPS, (10, 10, 1))[0]
            self.step(group, f"id-{number}", self.random.random())

    def step(self, group: str, member_id: str, chance: float) -> None:
        """Write the events of something that happens at random."""
        generation = self.generations[group]
        if chance < 0.03:
            self.tell(group, "group_loaded", members=2)
            self.opened.pop(group, None)
        elif chance < 0.1:
            at_ms = self.at_ms - self.random.choice((0, 30_000))
            self.tell(None, "events_dropped", group, at_ms=at_ms, events=1, first_ms=0, last_ms=at_ms)
        elif chance < 0.2:
            self.tell(group, "member_pending", member_id=member_id, client_id="c", client_host="/h", lapses_ms=0)
            self.ids[group].append(member_id)
        elif chance < 0.3 and self.ids[group]:
            self.tell(group, "pending_expired", member_id=self.ids[group].pop(0), left=False)
        elif chance < 0.35:
            self.replace(group, member_id, self.seats[group])
            self.seats[group], self.fenced[group] = member_id, self.seats[group]
            if group not in self.opened:
                self.opened[group] = self.at_ms, generation, CAUSE | {"member_ids": [member_id]}
        elif chance < 0.4:
            self.tell(group, "member_fenced", member_id=self.fenced[group], kind="conflict")
        elif group not in self.opened and chance < 0.7:
            self.opened[group] = self.at_ms, generation, CAUSE
            if chance < 0.6:
                self.tell(group, "rebalance_started", cause=CAUSE, members=1, state="Stable", pending=[])
        elif group in self.opened:
            if chance < 0.6:
                also: dict[str, Any] = {} if chance < 0.5 else {"cause": CAUSE | {"member_ids": self.ids[group][:1]}}
                self.tell(group, "rebalance_cause" if also else "rebalance_stuck", **also)
                return
            began_ms, before, cause = self.opened.pop(group)
            self.generations[group] += 1
            self.tell(
                group,
                "rebalance_ended",
                causes=[cause],
                outcome="completed",
                generation_before=before,
                began_ms=began_ms - self.random.choice((0, 3)),
            )

    def replace(self, group: str, member_id: str, old_member_id: str) -> None:
        """Write that a member takes the only seat."""
        fields = {"member_id": member_id, "old_member_id": old_member_id, "group_instance_id": "seat"}
        self.tell(group, "member_replaced", **fields, rebalances=False)

    def tell(self, group: str | None, kind: str, /, key: str | None = None, **fields: Any) -> None:
        """Write an event."""
        common: dict[str, Any] = {"at_ms": self.at_ms}
        if group is not None:
            common |= {"group": group, "generation": self.generations[group]}
        self.written[GROUPS.index(group or key or "") % 2].append(told(kind, **(common | fields)))

    def cluster(self) -> Cluster:
        """A cluster with these events."""
        partitions = []
        for written in self.written:
            batches = []
            for offset, event in enumerate(written):
                record = Record((event.group or "").encode(), event_json(event), event.at_ms)
                batches.append((offset + 1, encode_batch([record], offset, 0)))
            partitions.append(batches)
        return Cluster(*partitions)


@pytest.mark.rounds
@each("seed", range(rounds(10, 40, 400)))
def test_the_newest_entries_are_those_of_the_whole(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All fields are equal, for one group and for several, wherever the reading stopped."""
    monkeypatch.setattr(events, "BACK_FIRST", 3)
    monkeypatch.setattr(events, "BACK_GROWTH", 2)
    past = Past(seed)
    for wanted in (["g"], ["rare"], GROUPS):
        whole = read_timelines(EventReader(past.cluster()), wanted)
        for last in (1, 2, 5, 20):
            found = read_timelines(EventReader(past.cluster()), wanted, last)
            for group in wanted:
                assert newest(found[group].entries, last) == newest(whole[group].entries, last), (group, last)


def test_less_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader fetches only as much of a long past as the entries need; more for a group with rare events."""
    monkeypatch.setattr(events, "BACK_FIRST", 10)
    monkeypatch.setattr(events, "FETCH_MIN_BYTES", 1_000)
    past = Past(0)
    for number in range(2_000):
        past.at_ms += PAUSE_MS + 1
        past.replace("rare" if number in {1_200, 1_900} else "g", str(number), "")
    fetched = {}
    for group in ("g", "rare"):
        for last in (None, 1, 2, 3):
            cluster = past.cluster()
            cluster.is_generous = True
            read_timelines(EventReader(cluster, group), [group], last)
            fetched[group, last] = cluster.fetched
    whole = fetched["g", None]
    assert fetched["g", 1] < whole / 50
    assert fetched["g", 1] < fetched["rare", 1] < whole / 2
    assert fetched["rare", 1] < fetched["rare", 2]
    assert fetched["rare", 3] < 1.1 * whole, "nothing is fetched twice, whatever it takes"


def test_gaps_alone_are_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """The events behind the gaps decide whether a group that is gone has any events."""
    monkeypatch.setattr(events, "BACK_FIRST", 1)
    past = Past(0)
    past.written = [[], []]
    past.replace("g", "m", "")
    for _ in range(5):
        past.at_ms += 10_000
        past.tell(None, "events_dropped", "g", events=1, first_ms=0, last_ms=past.at_ms)
    timeline = read_timelines(EventReader(past.cluster(), "g"), ["g"], 1)["g"]
    assert timeline.entries[0].type == "static_restart"


def test_a_fold_is_read_to_where_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fold is one entry: the reader goes back to its beginning and to the next entry, and no further."""
    monkeypatch.setattr(events, "BACK_FIRST", 10)
    monkeypatch.setattr(events, "FETCH_MIN_BYTES", 1_000)
    past = Past(0)
    past.written = [[], []]
    for number in range(2_000):
        past.at_ms += 2_000 if number > 1_900 else PAUSE_MS + 1
        past.replace("g", str(number), "")
    fetched = {}
    for last in (None, 1, 2):
        cluster = past.cluster()
        cluster.is_generous = True
        entries = newest(read_timelines(EventReader(cluster, "g"), ["g"], last)["g"].entries, last)
        fetched[last] = cluster.fetched
        if last is not None:
            assert [len(fold) for fold in folded(entries)] == [1, 100][-last:]
    assert fetched[1] < fetched[None] / 3
