"""The causes of a classic group's next generation, as far as two records and the commits between them tell.

    a seat that the former record lacks   a member joined
    a seat that is gone                   it left, was removed, or expired (`_departure`)
    other topics in a subscription        the member joined with other metadata
    other protocol                        a static member changed it, or a member's metadata
    new topic partitions, nothing else    the leader joined again, because topics grew
    partitions that were held back        cooperative members gave up partitions, and joined again (KIP-429)
    nothing at all                        the leader joined again, which is the only member that may do so for nothing

If members both came and went, the log doesn't tell which came first, unless nobody stayed: the last member that goes
empties the group, and that has a record and a generation of its own. So then a join was first.

House rule: see the package: a kind is named only if the records rule out every other one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from coordinator.group.causes import CauseKind, Meaning
from coordinator.story.events import Cause, TopicChange
from coordinator.story.inference.knowledge import Live
from coordinator.story.inference.seen import Member, Seat, Seen, TopicPartition, returned, topics_of
from coordinator.story.inference.signs import SLACK, Sign, Signs
from coordinator.story.inference.told import cause_of, subscribed, unknown, with_topics

JOINED, LEFT, REMOVED, EXPIRED, METADATA, PROTOCOL, LEADER, REJOINED, REPLACED, SYNC_TIMED_OUT = (
    str(kind.value)
    for kind in (
        CauseKind.MEMBER_JOINED, CauseKind.MEMBER_LEFT, CauseKind.MEMBER_REMOVED, CauseKind.MEMBER_EXPIRED,
        CauseKind.METADATA_CHANGED, CauseKind.PROTOCOL_CHANGED, CauseKind.LEADER_REJOINED, CauseKind.MEMBER_REJOINED,
        CauseKind.STATIC_MEMBER_REPLACED, CauseKind.SYNC_TIMED_OUT,
    )
)  # fmt: skip

RETURNED = (REPLACED, LEADER, REJOINED, REMOVED, EXPIRED)
"""Kinds that fit a static member with another member id in a new generation."""

ENDED = (LEFT, REMOVED, EXPIRED, SYNC_TIMED_OUT)
"""Kinds that fit members of a generation that left no record."""

MARGIN_MS = 500
"""A broker on a busy machine writes a record, or ends a session, that much later than its clock says."""

EAGER = frozenset({"range", "roundrobin", "sticky"})
"""Assignors whose members give up everything before they join: nothing in their metadata makes one join again."""


class Causes(NamedTuple):
    """The causes of a generation. in_order: whether the first one is known to have started the rebalance."""

    causes: list[Cause]
    in_order: bool = True


class Classic:
    """The knowledge about a classic group beside its last record."""

    def __init__(self) -> None:
        self.last: Seen | None = None
        self.signs = Signs()
        self.live: Live | None = None
        self._present: set[str] = set()
        self._gone_by: dict[str, int] = {}
        self._revokers: tuple[Seat, ...] = ()
        self._held_back: set[TopicPartition] = set()
        self._restless: Seat | None = None

    def take(self, seen: Seen) -> None:
        """The record becomes the last one."""
        before = self.last
        is_new = before is None or before.value.generation != seen.value.generation
        if before is not None and is_new:
            lost = [(place, seat) for place, seat in before.owners.items() if seat in seen.seats]
            lost = [(place, seat) for place, seat in lost if seen.owners.get(place) != seat]
            self._held_back = {place for place, _ in lost if place not in seen.owners}
            self._revokers = tuple(dict.fromkeys(seat for place, seat in lost if place in self._held_back))
        self.signs.begin(seen, is_new=is_new)
        if before is not None and not is_new:
            self.signs.returned((Seat(name, is_static=True) for name in returned(before, seen)), seen.ts)
        if before is not None and before.leader != seen.leader:
            self._restless = None
        if is_new:
            self.live = None
            self._present.clear()
            self._gone_by.clear()
        self.last = seen

    def looked(self, live: Live, *, is_preparing: bool) -> None:
        """Take a look at the group, as it was described.

        The first look while it prepares shows who was there first. A member that one look has and a later one lacks was
        gone by then: no other member gets its id. A look may be older than the record that was taken last, so the
        absence from a look says nothing by itself.
        """
        if is_preparing and self.live is None:
            self.live = live
        if self.last is None:
            return
        for member in self.last.value.members:
            if member.member_id in live.member_ids:
                self._present.add(member.member_id)
            elif member.member_id in self._present:
                self._gone_by.setdefault(member.member_id, live.at_ms)

    def causes(self, seen: Seen) -> Causes:
        """The causes of the generation of `seen`, which follows the last record."""
        before = self.last
        assert before is not None
        joined = [member for seat, member in seen.seats.items() if seat not in before.seats]
        gone = {seat: member for seat, member in before.seats.items() if seat not in seen.seats}
        gone = dict(sorted(gone.items(), key=lambda each: self.signs.of[each[0]].last_ms))
        stayed = {seat: member for seat, member in seen.seats.items() if seat in before.seats}
        came = [cause_of(JOINED, member=member) for member in joined]
        changed = _changes(before, seen, stayed)
        is_awaited = len(gone) == 1 and bool(came or changed)
        went = [self._departure(seat, member, stayed, seen, is_awaited=is_awaited) for seat, member in gone.items()]
        if not (before.seats or seen.seats):
            # Members that came between two empty generations left no record.
            return Causes([unknown(ENDED)])
        if not (came or went or changed):
            again = self._again(before, seen)
            return Causes(again, in_order=len(again) == 1)
        if came and went and not stayed:
            return Causes([*came, *went], in_order=len(came) == 1)
        # Members that gave up partitions join again, and may have been first. They have to, so it happened.
        again = self._gave_up(seen, before.leader)
        if again:
            return Causes([*came, *went, *changed, *again], in_order=False)
        if (
            (came or went)
            and before.leader is not None
            and before.leader == self._restless
            and self._restless in stayed
        ):
            # The leader joined again before for no reason that shows. It may have done so once more, and first.
            first = unknown((*kinds_of([*came, *went]), LEADER))
            return Causes([first, *came, *went, *changed], in_order=False)
        if came and went:
            return self._by_live(came, went, changed)
        return Causes([*came, *went, *changed], in_order=len(came) + len(went) + len(changed) == 1)

    def _by_live(self, came: list[Cause], went: list[Cause], changed: list[Cause]) -> Causes:
        """The order of members that came and went, if somebody saw the group while it prepared."""
        live = self.live
        if live is None:
            return Causes([*went, *came, *changed], in_order=False)
        here = [cause for cause in came if live.member_ids & set(cause.member_ids)]
        still = [cause for cause in went if live.member_ids & set(cause.member_ids)]
        if here and len(still) == len(went):
            return Causes([*here, *went, *(cause for cause in came if cause not in here), *changed])
        if not here and len(still) < len(went):
            return Causes([*(cause for cause in went if cause not in still), *still, *came, *changed])
        return Causes([*went, *came, *changed], in_order=False)

    def _departure(
        self, seat: Seat, member: Member, stayed: Mapping[Seat, Member], seen: Seen, *, is_awaited: bool
    ) -> Cause:
        """Why a member is gone, by its last sign of life.

        It has not expired if that sign came less than its session timeout before the join phase ended, and was not
        dropped as too late to join if it came less than its rebalance timeout before.

        If it used to commit all the time, its silence says more (`_by_silence`). When the silence ended, is known if it
        was alone, because its end makes the record; else another member's last commit is the earliest moment.

        is_awaited: whether the rebalance began for another reason, and waited for this member alone.
        """
        sign = self.signs.of[seat]
        session_ms = member.session_timeout
        limit_ms = session_ms - (session_ms // SLACK if sign.is_weak else MARGIN_MS)
        if member.rebalance_timeout > 0:
            limit_ms = min(limit_ms, member.rebalance_timeout)
        went = REMOVED if seat.is_static else LEFT
        most_ms = seen.joined_ms - sign.last_ms
        if most_ms < limit_ms or self._was_gone_early(seat, member, sign, limit_ms):
            return cause_of(went, member=member)
        is_alone = len(self.signs.of) == 1 and not seen.seats
        others = self.signs.of.keys() - {seat} if not seen.seats else stayed
        least_ms = most_ms if is_alone else self.signs.latest(others) - sign.last_ms
        pause_ms = max(2 * sign.longest_ms, session_ms // SLACK)
        if is_awaited and not stayed and session_ms <= most_ms <= session_ms + pause_ms:
            # All others had only just come, so this one was waited for until its session ended. A member that stayed
            # may have been waited for as well.
            least_ms = most_ms
        kind = self._by_silence(sign, member, least_ms, most_ms) if sign.is_steady(session_ms) else None
        return unknown((went, EXPIRED), member) if kind is None else cause_of(kind, member=member)

    def _was_gone_early(self, seat: Seat, member: Member, sign: Sign, limit_ms: int) -> bool:
        """Whether a look lacked the member before its session can have ended, however long the join phase took after.

        The look's time is of another clock, and of the question, not the answer; so it has a heartbeat interval more.
        A static member's id also goes when its program comes back.
        """
        by_ms = None if seat.is_static else self._gone_by.get(member.member_id)
        return by_ms is not None and by_ms - sign.last_ms + member.session_timeout // SLACK < limit_ms

    @staticmethod
    def _by_silence(sign: Sign, member: Member, least_ms: int, most_ms: int) -> str | None:
        """Why a member is gone that committed all the time, and then was silent for least_ms to most_ms.

        A program that ends or hangs is gone a session timeout after its last commit, or a pause between two commits
        later. A program that lives, but doesn't poll, is silent for its max.poll.interval.ms (its rebalance timeout):
        then its client leaves, or, with an instance id, stops its heartbeats and expires a session timeout later.
        Where both fit, nobody knows.
        """
        session_ms, poll_ms = member.session_timeout, member.rebalance_timeout
        pause_ms = max(2 * sign.longest_ms, session_ms // SLACK)
        ended = session_ms <= least_ms <= session_ms + pause_ms
        hung_ms = poll_ms if member.group_instance_id is None else poll_ms + session_ms
        may_hang = poll_ms > 0 and least_ms <= hung_ms + pause_ms and most_ms >= hung_ms - pause_ms
        hung = may_hang and least_ms > session_ms + pause_ms and most_ms <= hung_ms + pause_ms
        if ended and not may_hang:
            return EXPIRED
        if hung:
            return LEFT if member.group_instance_id is None else EXPIRED
        return None

    def _again(self, before: Seen, seen: Seen) -> list[Cause]:
        """The causes of a generation with the same members and subscriptions."""
        back = returned(before, seen)
        if back:
            name = next(iter(back))
            # It may have been removed, or have expired, and be back before the rebalance was over. If a generation left
            # no record, its return may have begun a rebalance too.
            is_next = seen.value.generation - before.value.generation == 1
            kinds = RETURNED if is_next else (*RETURNED, JOINED)
            return [unknown(kinds, seen.seats[Seat(name, is_static=True)])]
        leader = before.leader
        led_by = None if leader is None else seen.seats.get(leader)
        if len(seen.seats) == 1:
            return [self._led_again(led_by, leader, self._topics(before, seen))]
        filled = [place for place in seen.owners if place in self._held_back]
        if filled and self._revokers:
            return self._gave_up(seen, leader)
        topics = self._topics(before, seen)
        # Any other member has to send other metadata, such as other partitions that it owns.
        followers = [(seat, member) for seat, member in seen.seats.items() if seat != leader]
        if all(member.subscription == before.seats[seat].subscription for seat, member in followers):
            return [self._led_again(led_by, leader, topics)]
        if seen.value.protocol in EAGER:
            return [self._led_again(led_by, leader, topics)]
        return [with_topics(unknown((LEADER, REJOINED)), topics)]

    def _led_again(self, led_by: Member | None, leader: Seat | None, topics: list[TopicChange]) -> Cause:
        """The leader joined again. One that does so without a reason may do it at any time."""
        if not topics:
            self._restless = leader
        return with_topics(cause_of(LEADER, member=led_by), topics)

    def _gave_up(self, seen: Seen, leader: Seat | None) -> list[Cause]:
        """Members gave up partitions in the last generation, and joined again so that others get them.

        Each has to join again for that, and the first one began the rebalance.
        """
        return [
            replace(
                cause_of(LEADER if seat == leader else REJOINED, member=seen.seats[seat]),
                meaning=Meaning.PARTITIONS_REVOKED.value,
            )
            for seat in self._revokers
            if seat in seen.seats
        ]

    def _topics(self, before: Seen, seen: Seen) -> list[TopicChange]:
        """The topics that grew, came or went."""
        had, have = _counts(before, self._held_back), _counts(seen, ())
        changes = [
            TopicChange(topic, "grown" if had.get(topic) else "created")
            for topic, number in have.items()
            if number > had.get(topic, 0)
        ]
        return changes + [TopicChange(topic, "deleted") for topic in had if topic not in have]


def _counts(seen: Seen, more: set[TopicPartition] | tuple[()]) -> dict[str, int]:
    """How many partitions of each topic have a member."""
    counts: dict[str, int] = {}
    for topic, _ in seen.owners.keys() | set(more):
        counts[topic] = counts.get(topic, 0) + 1
    return counts


def _changes(before: Seen, seen: Seen, stayed: Mapping[Seat, Member]) -> list[Cause]:
    """The causes that subscriptions and the protocol tell."""
    if not before.value.members or not seen.value.members:
        return []
    found = []
    for seat, member in stayed.items():
        was, now = topics_of(before.seats[seat]), topics_of(member)
        if was is not None and now is not None and was != now:
            found.append(with_topics(cause_of(METADATA, member=member), subscribed(was, now)))
    if before.value.protocol != seen.value.protocol and not found:
        back = returned(before, seen)
        if back:
            name = next(iter(back))
            found.append(cause_of(PROTOCOL, member=seen.seats[Seat(name, is_static=True)]))
        elif len(stayed) == len(seen.seats) == len(before.seats):
            found.append(cause_of(METADATA))
    return found


def kinds_of(causes: list[Cause]) -> list[str]:
    """The kinds that these causes may have, each once."""
    return list(dict.fromkeys(kind for each in causes for kind in each.possible or [each.kind]))
