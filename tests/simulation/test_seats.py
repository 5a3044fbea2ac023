"""The simulation with standbys: `target.group.size` is set and changes while everything else happens too.

Besides all that holds without standbys, each record must follow from the one before: within a generation the
assignments stay, and one member at most has another one's seat. So no seat ever has two holders, and a standby that
takes a seat changes exactly one member.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from coordinator.group import records
from coordinator.group.classic import seats
from coordinator.group.classic.seats import STANDBY_GENERATION
from coordinator.group.notes import SeatTaken
from coordinator.group.state import State
from protocol.consumer import NO_PARTITIONS
from schemas.errors import ErrorCode
from tests.simulation.test_simulation import GROUPS, PROTOCOLS, SETTLED, Actor, Simulation, World
from tests.support.length import at_most

HEARTBEAT_MS = 3_000


class SeatWorld(World):
    """A world that compares each record of a group with the one before.

    held: group id -> generation, and the assignment of each member, of its last record.
    """

    def __init__(self, **settings: Any) -> None:
        self.held: dict[str, tuple[int, dict[str, bytes]]] = {}
        super().__init__(**settings)

    def _watch(self, group_id: str, value: bytes | None) -> None:
        super()._watch(group_id, value)
        if value is None:
            self.held.pop(group_id, None)
            return
        group = records.decode_group(group_id, value)
        now = {member_id: member.assignment for member_id, member in group.members.items()}
        generation, before = self.held.get(group_id, (0, {}))
        if generation == group.generation:
            gone, come = before.keys() - now.keys(), now.keys() - before.keys()
            assert len(gone) == len(come) <= 1, f"{gone} went and {come} came in generation {generation}"
            assert sorted(before.values()) == sorted(now.values()), f"an assignment changed in generation {generation}"
            assert all(before[member_id] == now[member_id] for member_id in before.keys() & now.keys())
        self.held[group_id] = group.generation, now


class Seats(Simulation):
    """The simulation, with groups of one to four seats."""

    @initialize(size=st.sampled_from([1, 2, 3]), delay_ms=st.sampled_from([0, 3_000]))
    def begin(self, size: int, delay_ms: int) -> None:
        """Seven clients, of which four share three instance ids."""
        self.world = SeatWorld(group_initial_rebalance_delay_ms=delay_ms, offsets_retention_ms=60_000)
        for group in GROUPS:
            self.world.seats(size, group)
        self.actors = [Actor(f"c{n}", f"i{n % 3}" if n < 4 else None) for n in range(7)]

    @rule(group=st.sampled_from(GROUPS), size=st.integers(0, 4))
    def size_changes(self, group: str, size: int) -> None:
        """An operator sets another number of seats."""
        self.world.seats(size, group)

    @rule(group=st.sampled_from(GROUPS), count=st.integers(1, 4), which=st.integers(0, 2))
    def newcomers_settle(self, group: str, count: int, which: int) -> None:
        """Clients join, and all do right until the group is Stable: random steps hardly ever give it standbys."""
        for _ in range(count):
            self.world.join(group=group, protocols=PROTOCOLS[which], version=3)
        for _ in range(2):
            self.everybody_does_right(group)

    @rule(group=st.sampled_from(GROUPS))
    def standbys_sync(self, group: str) -> None:
        """Every standby joins again and syncs. It gets no partitions, and the coordinator writes no record."""
        live = self.world.coordinator.groups.get(group)
        if live is None or live.state not in (State.STABLE, State.COMPLETING_REBALANCE):
            return
        written = len(self.world.records)
        for member_id, (member, _) in list(live.standbys.items()):
            joined = self.world.join(
                group=group, member=member_id, instance=member.group_instance_id, protocols=member.protocols
            )
            if joined.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
                continue
            assert joined.response.generation_id == STANDBY_GENERATION
            synced = self.world.sync(group=group, member=member_id, generation=STANDBY_GENERATION)
            assert synced.response.assignment == NO_PARTITIONS
        assert len(self.world.records) == written

    @rule(group=st.sampled_from(GROUPS), leads=st.booleans(), crashes=st.booleans(), lost=st.integers(0, 2))
    def called_take_their_seats(self, *, group: str, leads: bool, crashes: bool, lost: int) -> None:
        """Each standby that got a seat hears so, joins and syncs: that starts no rebalance in a Stable group.

        If there is none, a member leaves. leads: the leader leaves. crashes: the coordinator does, before they have
        heard. lost: how often the answer to the sync is lost.
        """
        self.newcomers_settle(group, 2, 0)
        live = self.world.coordinator.groups.get(group)
        if live is None or live.state is not State.STABLE:
            return
        if not any(each.called_until_ms is not None for each in live.members.values()):
            leaver = live.leader if leads else list(live.members)[-1]
            self.world.leave(group=group, members=[(leaver, None)], version=5)
            live = self.world.coordinator.groups[group]
        if live.state is not State.STABLE:  # the seat needs a rebalance, and until that is over the log has the leaver
            return
        called = [member_id for member_id, each in live.members.items() if each.called_until_ms is not None]
        if called and crashes:
            self.world.restart()
            live = self.world.coordinator.groups[group]
        generation = live.generation
        for member in [live.members[member_id] for member_id in called]:
            # A restart with another number of seats, or with none, forgets that it was called.
            if live.state is not State.STABLE or live.target_size == 0:
                return
            said = self.world.heartbeat(group=group, member=member.member_id, generation=STANDBY_GENERATION)
            assert said.error is ErrorCode.REBALANCE_IN_PROGRESS
            for _ in range(1 + lost):
                joined = self.world.join(
                    group=group,
                    member=member.member_id,
                    instance=member.group_instance_id,
                    protocols=member.protocols,
                    version=9,
                    rebalance_ms=member.rebalance_timeout_ms,
                )
                assert joined.response.generation_id == generation
                synced = self.world.sync(group=group, member=member.member_id, generation=generation)
                assert synced.response.assignment == member.assignment

    @rule(group=st.sampled_from(GROUPS), which=st.integers(0, 3))
    def one_is_silent(self, group: str, which: int) -> None:
        """Members but one, and standbys, send heartbeats until its session ends. If a standby fits, it has the seat."""
        self.newcomers_settle(group, 2, 0)
        live = self.world.coordinator.groups.get(group)
        if live is None or live.state not in SETTLED or which >= len(live.members):
            return
        silent = list(live.members)[which]
        for _ in range(0, live.members[silent].session_timeout_ms + HEARTBEAT_MS, HEARTBEAT_MS):
            taken = len(self.world.said(SeatTaken))
            can_pass_on = (
                live.state is State.STABLE
                and silent in live.members
                and 0 < len(live.members) <= live.target_size
                and seats.choose(live, live.members[silent]) is not None
            )
            self.world.advance(HEARTBEAT_MS)
            live = self.world.coordinator.groups.get(group)
            assert live is not None or not can_pass_on
            if live is None:
                return
            if can_pass_on and silent not in live.members:
                assert len(self.world.said(SeatTaken)) > taken
            for member_id in [each for each in live.members if each != silent]:
                self.world.heartbeat(group=group, member=member_id, generation=live.generation)
            for member_id in list(live.standbys):
                self.world.heartbeat(group=group, member=member_id, generation=STANDBY_GENERATION)
        assert silent not in live.members


TestSeats = Seats.TestCase
TestSeats.settings = at_most(300)
