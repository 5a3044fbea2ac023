"""The events of all groups of a server, as `__rebalance_events` would have them, and what moved.

The server's queue of events (server.nodes.events_topic) decides which notes become events, so a timeline made here
equals that of `tenure explain`. The queue writes to this list in place of a topic. Events stay over a kill and a new
start, and so do those that a killed server would not have written.

House rule: events are only added, so a number of events is a point in time (`Mark`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from coordinator.group.course import Outcome
from coordinator.group.notes import RebalanceEnded
from coordinator.server.nodes.events_topic import WriteDone
from coordinator.story.entries import Entry, Pending, Timeline
from coordinator.story.events import RebalanceEvent
from coordinator.story.making import Move, event_of
from coordinator.story.making import moves as moves_of
from coordinator.story.schema import Gap, TimedNote

ENDS_WITH_MOVES = frozenset({Outcome.COMPLETED, Outcome.EMPTIED})
"""Outcomes of rebalances after which members have other topic partitions."""

Owner = Callable[[str], int]
"""The id of the node that coordinates a group."""


class Told(NamedTuple):
    """An event. moves: of the end of a rebalance, all of them; None if the assignments can't be read."""

    event: RebalanceEvent
    moves: Sequence[Move] | None = ()


class History:
    """All events so far. The server's thread adds, any thread reads.

    owner: names the node of an event. A group's events are written before another node gets it.
    """

    def __init__(self) -> None:
        self.owner: Owner = lambda _: 0
        self._told: list[Told] = []

    def __len__(self) -> int:
        return len(self._told)

    def write(self, events: Sequence[TimedNote | Gap], done: WriteDone) -> None:
        """Take events: see WriteEvents."""
        for event in events:
            node = 0 if isinstance(event, Gap) else self.owner(event.note.group)
            self._told.append(Told(event_of(event, node), _moves(event)))
        done(0, None)

    def group_ids(self, since: int = 0) -> list[str]:
        """The groups that have events, in the order of their first. since: only events from this number on."""
        ids = (told.event.group for told in self._told[since:])
        return list(dict.fromkeys(group_id for group_id in ids if group_id is not None))

    def newest_groups(self, since: int, most: int) -> list[str]:
        """The groups with the newest events from this number on, so many at most, that with the newest last."""
        ids = (told.event.group for told in reversed(self._told[since:]))
        return list(dict.fromkeys(group_id for group_id in ids if group_id is not None))[:most][::-1]

    def new_entries(self, group_id: str, since: int) -> list[Entry]:
        """The entries that began with an event of this number or a later one."""
        told = self._told[:]
        timeline = Timeline(group_id).add_all(each.event for each in told[:since])
        former = {id(entry) for entry in timeline.entries}
        timeline.add_all(each.event for each in told[since:])
        return [entry for entry in timeline.entries if id(entry) not in former and not _is_early(entry)]

    def trails(self, group_id: str, since: int) -> dict[tuple[str, int], list[str | None]] | None:
        """Topic partition -> its members one after the other, None for no member, for those that changed theirs.

        A member is an instance id, or a dynamic member's id. None if assignments can't be read.
        """
        trails: dict[tuple[str, int], list[str | None]] = {}
        for told in self._told[since:]:
            if told.event.group == group_id:
                if told.moves is None:
                    return None
                for topic, partition, before, after in told.moves:
                    trails.setdefault((topic, partition), [before]).append(after)
        return trails


def _is_early(entry: Entry) -> bool:
    """Whether the entry is there only because a test looked between two requests of one join.

    The queue leaves out a member id that is used at once; a look writes what waits in the queue.
    """
    return isinstance(entry, Pending) and entry.outcome == "joined"


def _moves(event: TimedNote | Gap) -> Sequence[Move] | None:
    if isinstance(event, Gap) or not isinstance(event.note, RebalanceEnded):
        return ()
    return moves_of(event.note) if event.note.outcome in ENDS_WITH_MOVES else ()
