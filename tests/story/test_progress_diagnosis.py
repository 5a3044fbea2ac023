"""Findings about progress: what looks show that one look doesn't. test_group_diagnosis.py has the end of each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from coordinator.group.consumer.group import AWAY
from coordinator.story.counts import STORM_MIN, STORM_MS
from coordinator.story.described import ConsumerSeat, ConsumerState, Group
from coordinator.story.diagnosis import AWAITED_MS, RESTART_MAX_MS, Case, Finding
from coordinator.story.entries import Timeline
from coordinator.story.group_diagnosis import group_findings
from coordinator.story.offsets import Ahead, BlockingTransaction, Expiry, HoldingTransaction, OffsetLine
from coordinator.story.progress import AGREE_MS, GroupProgress, Progress
from coordinator.story.progress_diagnosis import (
    LONG_MS,
    REBALANCES_MS,
    TRANSIENT_MS,
    Work,
    at_work,
    undecided_text,
)
from coordinator.story.tracks import MARKERS_MAX, STUCK_MAX_MS, STUCK_MS
from coordinator.text import time_text
from tests.story.test_diagnosis import NOW_MS, dynamic, group_of, member, started
from tests.support.placed import placed
from tests.support.told import told

ONE = member("i", {"t"}, {"t": [0]})
OTHER = member("j", {"t"}, {"t": [1]})
PAIR = group_of(ONE, OTHER)
COUNTS = {"t": 2}


@dataclass(frozen=True)
class Looks:
    """Looks at a group at some times before NOW_MS, each with the offset, the end and the start of t-0 and t-1.

    before: the group at the looks before the newest one.
    """

    group: Group
    steps: tuple[tuple[int, tuple[Any, ...], tuple[Any, ...]], ...]
    before: Group | None = None

    def taken(self, progress: Progress | None = None) -> GroupProgress:
        """The newest look."""
        known, seen = Progress() if progress is None else progress, GroupProgress()
        for number, (before_ms, *places) in enumerate(self.steps, 1):
            group = self.group if number == len(self.steps) or self.before is None else self.before
            owners = {pair: each for each in group.members for pair in each.topic_partitions}
            lines = [
                OffsetLine("t", index, place[0], place[1], owners.get(("t", index)), *place[2:])
                for index, place in enumerate(places)
            ]
            seen = known.look(group, placed(lines), COUNTS, NOW_MS - before_ms)
        return seen

    def findings(self, *events: Any) -> dict[str, Finding]:
        """The findings at the newest look, by kind."""
        entries = Timeline("g").add_all(events).entries
        found = group_findings(Case("g", entries, self.group, COUNTS, NOW_MS, self.taken()))
        return {each.kind: each for each in found}


def looks(group: Group, *steps: Any, before: Group | None = None) -> Looks:
    """Looks at a group."""
    return Looks(group, steps, before)


AGO = STUCK_MS + 1_000
STUCK = looks(PAIR, (AGO, (3, 5), (3, 5)), (STUCK_MS, (3, 6), (6, 6)), (0, (3, 9), (9, 9)))
HUNG = looks(PAIR, (AGO, (3, 5), (9, 9)), (STUCK_MS, (3, 6), (9, 9)), (0, (3, 9), (9, 9)))
WORKS = looks(PAIR, (AGO, (3, 5), (3, 5)), (STUCK_MS, (5, 6), (6, 6)), (0, (8, 9), (9, 9)))
PASSED_ON = replace(STUCK, group=group_of(replace(OTHER, assignment={"t": [0, 1]})), before=PAIR)
REBALANCES = looks(replace(PAIR, state="PreparingRebalance"), (REBALANCES_MS, (9, 9), (9, 9)), (0, (9, 9), (9, 9)))
LOST = looks(PAIR, (0, (3, 9, 5), (9, 9, 0)))
WENT_BACK = looks(PAIR, (9, (8, 9), (9, 9)), (0, (5, 9), (9, 9)))
CAUGHT_UP = looks(PAIR, (9, (8, 9), (9, 9)), (5, (5, 9), (9, 9)), (0, (8, 9), (9, 9)))
IDLE = looks(group_of(replace(ONE, assignment={"t": [0, 1]}), replace(OTHER, assignment={})), (0, (9, 9), (9, 9)))
OWNERLESS = looks(group_of(ONE), (0, (9, 9), (9, 9)))
SILENT = looks(group_of(state="Empty"), (0, (3, 9), (9, 9)))
DONE = looks(group_of(state="Empty"), (0, (9, 9), (9, 9)))


def ended(at_ms: int, **said: Any) -> Any:
    """The end of a rebalance."""
    cause = {"kind": "member_left", "member_ids": ["i-1"], "group_instance_id": "i"}
    common = {"at_ms": at_ms, "began_ms": at_ms, "generation_before": 2, "outcome": "completed", "causes": [cause]}
    return told("rebalance_ended", **(common | said))


SETTLED = ended(NOW_MS - TRANSIENT_MS)
EMPTIED = ended(NOW_MS - LONG_MS, outcome="emptied")
STORM = [dynamic(NOW_MS - 10_000 + number, kind) for number, kind in enumerate(("member_joined", "member_left") * 3)]
SCALE_UP = [dynamic(NOW_MS - 10_000 + number, "member_joined", f"c-{number}") for number in range(3 * STORM_MIN)]


def test_a_partition_that_stands_still_names_its_owner_and_since_when() -> None:
    """Others that move show that the record is the matter; if none moves, the program hangs."""
    poison, hung = STUCK.findings()["partition_stuck"], HUNG.findings()["partition_stuck"]
    assert poison.severity == "notice"
    assert poison.found.startswith("i (c at h) is in the group, but has committed nothing since ")
    assert "of t-0 at 3: 6 records wait; none of its partitions moves" in poison.found
    both = replace(ONE, assignment={"t": [0, 1]})
    (moves,) = [replace(STUCK, group=group_of(both)).findings()["partition_stuck"]]
    assert moves.found.startswith("i (c at h) is alive, but has committed nothing since ")
    assert "others of its partitions move" in moves.found
    assert "look at the record" in moves.advice
    assert "hangs in a handler" in hung.advice
    # A program that hangs committed its partitions one after the other before that.
    last = (STUCK_MS, (3, 6), (3, 9)), (STUCK_MS - 5_000, (3, 7), (6, 9)), (0, (3, 9), (6, 9))
    hangs = looks(group_of(both), (AGO, (3, 5), (3, 9)), *last).findings()["partition_stuck"]
    assert "none of its partitions moves" in hangs.found
    long = looks(PAIR, (LONG_MS, (3, 5), (9, 9)), *HUNG.steps[1:])
    assert long.findings()["partition_stuck"].severity == "warning"


def test_a_member_is_alive_only_if_something_was_heard_of_it() -> None:
    """Where a server doesn't tell that, a frozen process has its session too, as long as the longest session lasts."""

    def found(longer_ms: int = 0, silent_ms: int | None = None) -> Finding:
        session_ms = None if silent_ms is None else 120_000
        group = group_of(replace(ONE, silent_ms=silent_ms, session_timeout_ms=session_ms), OTHER)
        steps = [(before_ms + longer_ms, *places) for before_ms, *places in HUNG.steps[:-1]]
        return looks(group, *steps, HUNG.steps[-1]).findings()["partition_stuck"]

    unknown, ages = found(), found(RESTART_MAX_MS)
    assert unknown.found.startswith("i (c at h) is in the group, but has")
    assert "hangs in a handler" in unknown.advice
    assert "Or its process is frozen, killed or cut off: then its session ends" in unknown.advice
    heard = found(silent_ms=3_000)
    for each in (ages, heard):
        assert each.found.startswith("i (c at h) is alive, but has")
        assert each.advice.startswith("its client sends heartbeats, so the program hangs in a handler")
    silent = found(silent_ms=20_000)
    assert silent.found.startswith("i (c at h) has sent nothing for 20.0 s, and has committed nothing since ")
    assert f"session ends by {time_text(NOW_MS + 100_000)} at the latest" in silent.advice
    assert "handler" not in silent.advice


@pytest.mark.parametrize(
    "healthy",
    [
        WORKS,
        looks(PAIR, (LONG_MS, (3, 3), (9, 9)), (0, (3, 4), (9, 9))),  # a record that has just come
        looks(PAIR, (LONG_MS, (3, 3 + MARKERS_MAX), (9, 9)), (0, (3, 3 + MARKERS_MAX), (9, 9))),  # markers
        looks(PAIR, (LONG_MS, (None, 9), (9, 9)), (0, (None, 9), (9, 9))),  # it begins at the end of the log
        PASSED_ON,
        # The log was cut, or another one has its name.
        *(looks(PAIR, *HUNG.steps[:-1], (0, (3, end), (9, 9))) for end in (3, 2, 0)),
        # Nobody led it at the first look.
        looks(PAIR, (LONG_MS, (9, None), (9, 9)), (STUCK_MS, (9, 9), (9, 9)), (0, (9, 9), (9, 9))),
        looks(group_of(replace(ONE, assignment={"t": [0, 1]})), (LONG_MS, (3, 5), (9, 9)), (0, (3, None), (9, 9))),
        # It commits twice a minute.
        looks(PAIR, (90_000, (1, 2), (9, 9)), (89_000, (1, 3), (9, 9)), (59_000, (3, 4), (9, 9)),
              (58_000, (3, 5), (9, 9)), (28_000, (5, 6), (9, 9)), (27_000, (5, 7), (9, 9)), (0, (5, 9), (9, 9))),
    ],
)  # fmt: skip
def test_a_group_that_works_is_not_stuck(healthy: Looks) -> None:
    """There is no finding without records that wait longer than this member lets them."""
    assert healthy.findings(SETTLED) == {}


def test_a_reader_of_committed_records_waits_for_a_transaction() -> None:
    """The finding says so where all that stands still stands at an open transaction; the reader may be another one."""

    def found(stable: int | None) -> Finding:
        steps = [(STUCK_MS + 6_000, (7, 10)), (STUCK_MS + 1_000, (7, 20)), (0, (7, 30, None, None, None, stable))]
        found = looks(PAIR, *[(before_ms, place, (0, 0)) for before_ms, place in steps]).findings()
        return found["partition_stuck"]

    assert "a transaction is open, so readers of committed records wait there" in found(7).found
    assert found(7).advice.startswith("if its program reads committed records")
    for free in (found(8), found(None)):
        assert "transaction" not in free.found
        assert not free.advice.startswith("if its program")


def test_a_partition_that_no_look_saw_move_stands_since_its_oldest_record_came() -> None:
    """So one command of 30 s gives the warning that looks of minutes would. Looks that saw it move know better."""

    def found(made_ms: int | None, *before: Any) -> Finding:
        ahead = Ahead(3, is_record=True, made_ms=made_ms)
        last = (0, (3, 9, None, None, None, None, ahead), (9, 9))
        return looks(PAIR, *before, *HUNG.steps[:-1], last).findings()["partition_stuck"]

    oldest_ms = NOW_MS - LONG_MS
    old = found(oldest_ms)
    assert (old.severity, old.since_ms) == ("warning", oldest_ms)
    assert f"of t-0 at 3: 6 records wait, the oldest since {time_text(oldest_ms)} or longer; none" in old.found
    for each in (found(None), found(NOW_MS + LONG_MS), found(oldest_ms, (AGO + 1, (2, 5), (9, 9)))):
        assert (each.severity, each.since_ms) == ("notice", NOW_MS - AGO)
        assert "the oldest" not in each.found


def test_the_transaction_for_which_readers_wait_has_its_name() -> None:
    """The finding names its producer and since when; the advice says what ends it, as far as looks show that."""

    def found(holder: BlockingTransaction | None) -> Finding:
        last = (7, 30, None, None, None, 7, None, holder)
        steps = [(STUCK_MS + 6_000, (7, 10)), (STUCK_MS + 1_000, (7, 20)), (0, last)]
        found = looks(PAIR, *[(before_ms, place, (0, 0)) for before_ms, place in steps]).findings()
        return found["partition_stuck"]

    known = found(BlockingTransaction(7, "billing-1", 9, 1_000_000, 1_060_000))
    assert "wait there: for transactional id billing-1 (since 1970-01-01 00:16:40.000Z)" in known.found
    assert "start the program with the transactional id billing-1 again" in known.advice
    assert "1970-01-01 00:17:40.000Z" in known.advice
    hangs = found(BlockingTransaction(7, None, 9, 1_000_000))
    assert "wait there: for producer id 9 (since" in hangs.found
    assert "abort --topic t --partition 0 --start-offset 7` drops its records there" in hangs.advice
    for hidden in (found(BlockingTransaction(7)), found(None)):
        assert hidden.found.endswith("wait there")
        assert "tenure transactions describe ID" in hidden.advice


def test_a_user_who_may_not_read_the_topic_gets_a_hedge() -> None:
    """A few records may be the end of a transaction, so the finding stays a notice; many make it a warning."""
    refused = Ahead(7, is_refused=True)

    def found(end: int, ahead: Ahead | None) -> Finding:
        first = (LONG_MS, (7, 7), (0, 0))
        rest = [(before_ms, (7, end, None, None, None, None, ahead), (0, 0)) for before_ms in (LONG_MS - 1, 0)]
        return looks(PAIR, first, *rest).findings()["partition_stuck"]

    few, many, known = found(8, refused), found(8 + MARKERS_MAX, refused), found(8, Ahead(7, is_record=True))
    assert [each.severity for each in (few, many, known)] == ["notice", "warning", "warning"]
    assert ["needs Read on the topic" in each.found for each in (few, many, known)] == [True, True, False]


def test_looks_that_are_too_short_to_tell_say_so() -> None:
    """Of the partitions with records to read that didn't move; one that stands still has a finding instead."""
    text = undecided_text(looks(PAIR, (6_000, (3, 5), (9, 9)), (0, (3, 5), (9, 9))).taken())
    assert text is not None
    assert text.startswith(
        "too early to tell whether it is stuck: in 6.0 s nothing was committed of t-0 at 3, and 2 records wait. Run"
    )
    marker = (0, (3, 5, None, None, None, None, Ahead(5)), (9, 9))
    for known in (HUNG, WORKS, IDLE, SILENT, looks(PAIR, (0, (3, 5), (9, 9))), looks(PAIR, HUNG.steps[0], marker)):
        assert undecided_text(known.taken()) is None


def test_a_share_group_that_acknowledges_nothing_names_its_readers() -> None:
    """Several members may read a topic partition, so none is its owner; in a group of consumers one always is."""
    readers = [replace(each, assignment={"t": [0, 1]}) for each in (ONE, OTHER)]
    steps = ((STUCK_MS + 9_000, (4, 4), (8, 8)), (STUCK_MS + 5_000, (4, 9), (8, 8)), (2_000, (4, 30), (8, 8)))

    def found(kind: str, *members: Any) -> dict[str, Finding]:
        group = replace(group_of(*members), kind=kind)
        known, seen = Progress(), GroupProgress()
        for before_ms, *places in steps:
            lines = [OffsetLine("t", index, *place, None) for index, place in enumerate(places)]
            seen = known.look(group, placed(lines), COUNTS, NOW_MS - before_ms)
        assert seen.is_open(NOW_MS) is False
        return {each.kind: each for each in group_findings(Case("g", [], group, COUNTS, NOW_MS, seen))}

    stuck = found("share", *readers)["partition_stuck"]
    assert stuck.found.endswith(" of t-0 at 4: i (c at h), j (c at h); 26 records wait")
    assert ("partition_stuck" in found("", *readers), "partition_stuck" in found("share")) == (False, False)


def test_a_member_that_never_committed_may_keep_its_offsets_elsewhere() -> None:
    """A notice, however long it lasts; many records that wait are evidence without a new one too."""
    never = looks(
        PAIR, (STUCK_MAX_MS, (None, 1), (9, 9)), (STUCK_MAX_MS - 9, (None, 2), (9, 9)), (0, (None, 3), (9, 9))
    )
    found = never.findings()["partition_stuck"]
    assert (found.severity, "of t-0 (nothing committed): 3 records wait" in found.found) == ("notice", True)
    many = 4 + MARKERS_MAX
    assert "partition_stuck" in looks(PAIR, (STUCK_MS, (3, many), (9, 9)), (0, (3, many), (9, 9))).findings()


def test_offsets_that_are_pending_explain_why_nothing_is_committed() -> None:
    """Then the finding about the transaction has the advice, unless it is too young to be one."""
    seen = looks(PAIR, (AGO, (None, 30), (9, 9)), (STUCK_MS, (None, 31), (9, 9)), (0, (None, 32), (9, 9))).taken()

    def advice(since_ms: int, *pairs: tuple[str, int]) -> tuple[str, bool]:
        holding = [HoldingTransaction("pays", 7, 3, 0, since_ms, None, pairs)]
        found = {each.kind: each for each in group_findings(Case("g", [], PAIR, COUNTS, NOW_MS, seen, holding))}
        return found["partition_stuck"].advice.partition(" ")[0], "hanging_transaction" in found

    assert advice(NOW_MS - AWAITED_MS, ("t", 0), ("t", 1)) == ("its", True)
    assert advice(NOW_MS - AWAITED_MS, ("t", 1)) == ("nothing", True)
    assert advice(NOW_MS, ("t", 0)) == ("nothing", False)


def test_a_rebalance_of_which_the_server_does_not_say_whom_it_waits_for() -> None:
    """An error when it takes long. In the consumer protocol, members that are not at their target are named."""
    found = REBALANCES.findings()["rebalancing"]
    assert (found.severity, "its server does not say whom it waits for" in found.found) == ("error", True)
    young = replace(REBALANCES, steps=REBALANCES.steps[1:])
    assert young.findings()["rebalancing"].severity == "notice"
    late = replace(ONE, seat=ConsumerSeat(3, {"t": [0]}, None, False))
    there = replace(OTHER, seat=ConsumerSeat(4, {"t": [1]}, None, False))
    other = replace(member("k", {"t"}, {"t": [2]}), seat=ConsumerSeat(4, {"t": [3]}, None, False))
    group = replace(group_of(late, there, other, state="Reconciling"), consumer=ConsumerState(4, 4))
    found = replace(REBALANCES, group=group).findings()["rebalancing"]
    assert found.found.endswith("; not at its target: i (c at h), k (c at h)")
    told = replace(group, consumer=ConsumerState(4, 4, awaited=[]))
    assert "rebalancing" not in replace(REBALANCES, group=told).findings()


def test_partitions_and_members_without_each_other_are_usual_right_after_a_rebalance() -> None:
    """Cooperative members give up partitions in one rebalance and get them in the next."""
    young = ended(NOW_MS - TRANSIENT_MS + 1)
    for each, kind in ((OWNERLESS, "partition_ownerless"), (IDLE, "member_ready_but_idle")):
        assert kind not in each.findings(young)
        assert kind not in each.findings()
        assert each.findings(SETTLED)[kind].severity == "notice"
    ownerless = OWNERLESS.findings(SETTLED)["partition_ownerless"]
    assert "no member has t-1, since" in ownerless.found
    assert ownerless.found.endswith("members have others of the topic: 0 records wait")
    assert "topic.metadata.refresh.interval.ms" in ownerless.advice
    long = looks(OWNERLESS.group, (STUCK_MAX_MS, (9, 9), (9, 9)), *OWNERLESS.steps)
    assert long.findings(SETTLED)["partition_ownerless"].severity == "warning"


def test_a_partition_that_somebody_adds_has_time_to_get_a_member() -> None:
    """Members hear of it at their next request for metadata, and then rebalance: until then, nothing is wrong."""
    entries = Timeline("g").add_all([SETTLED]).entries
    for young_ms, is_named in ((0, False), (TRANSIENT_MS - 1, False), (TRANSIENT_MS, True)):
        progress = Progress()
        progress.look(group_of(ONE), {}, {"t": 1}, NOW_MS - young_ms - 1)
        progress.look(group_of(ONE), {}, COUNTS, NOW_MS - young_ms)
        seen = progress.look(group_of(ONE), {}, COUNTS, NOW_MS)
        found = group_findings(Case("g", entries, group_of(ONE), COUNTS, NOW_MS, seen))
        assert any(each.kind == "partition_ownerless" for each in found) == is_named, young_ms


def test_records_of_a_partition_without_a_member_wait() -> None:
    """Those behind the committed offset; without one, all that the log has."""
    for place, count in (((4, 9), 5), ((None, 12, 2), 10), ((None, 12, 12), 0)):
        found = replace(OWNERLESS, steps=((0, (9, 9), place),)).findings(SETTLED)["partition_ownerless"].found
        assert found.endswith(f"of the topic: {count} records wait")


def test_a_partition_without_a_member_keeps_its_time() -> None:
    """A rebalance that gives it to nobody ends no row, nor does a look that hasn't heard of it yet."""
    progress, group = Progress(), group_of(ONE)
    for passed_ms, seen, counts in (
        (0, group, COUNTS),
        (1, group, {"t": 1}),
        (2, replace(group, state="PreparingRebalance", members=[]), {}),
        (3, group, COUNTS),
    ):
        assert progress.look(seen, {}, counts, NOW_MS + passed_ms).ownerless == {("t", 1): NOW_MS}
    assert progress.look(group, {}, {"t": 1}, NOW_MS + AGREE_MS).ownerless == {}
    progress.look(group, {}, COUNTS, NOW_MS + AGREE_MS)
    assert progress.look(PAIR, {}, {"t": 1}, NOW_MS + AGREE_MS + 1).ownerless == {}


def test_an_offset_that_goes_back_names_both_numbers() -> None:
    """And the member that has the partition."""
    assert "t-0 from 8 to 5 (i (c at h))" in WENT_BACK.findings()["commit_back"].found


def test_records_that_were_deleted_unread_are_counted() -> None:
    """Those between the committed offset and the first one that the log still has."""
    assert LOST.findings()["behind_retention"].found == (
        "the log deleted 2 records before the group read them: t-0 at 3"
    )


def test_records_that_will_be_deleted_unread_are_named_before() -> None:
    """By the age of the records, or because the log's start comes nearer than the offset goes on. It says how soon."""
    hour_ms = 3_600_000

    def found(*steps: Any) -> tuple[str, str] | None:
        each = looks(PAIR, *steps).findings().get("behind_retention")
        return None if each is None else (each.severity, each.found)

    old = Expiry(2 * hour_ms, 100)
    text = "the log will delete records before the group reads them, the first ones within {}: t-0 at {}"
    stands = (60_000, (50, 200, 10, old), (9, 9)), (0, (50, 200, 10, None), (9, 9))
    assert found(*stands) == ("warning", text.format("2 hours", 50))
    assert found((60_000, (40, 200, 10, old), (9, 9)), (0, (50, 200, 10, old), (9, 9))) is None  # it reads in time
    assert found((0, (100, 200, 10, old), (9, 9))) is None
    assert found(*stands, (-1, (200, 200), (9, 9))) is None

    def starts(*places: tuple[int, int]) -> Any:
        count = len(places)
        return [((count - at) * 60_000, (offset, 9_000, start), (9, 9)) for at, (offset, start) in enumerate(places, 1)]

    assert found(*starts((900, 0), (900, 100), (900, 200), (900, 300))) == ("warning", text.format("6 minutes", 900))
    assert found(*starts((900, 0), (900, 100), (900, 100), (900, 100))) is None  # one segment is no rate
    assert found(*starts((900, 0), (1_000, 100), (1_100, 200), (1_200, 300))) is None


def test_a_group_without_members_says_who_went() -> None:
    """Not at once, because a restart of all members looks the same; a group that never had members has no finding."""
    found = SILENT.findings(EMPTIED)["silent_group"]
    assert (found.severity, "6 records wait: t-0 at 3; the last members: i" in found.found) == ("warning", True)
    young = ended(NOW_MS - STUCK_MS + 1, outcome="emptied")
    assert "silent_group" not in SILENT.findings(young)
    assert "silent_group" not in SILENT.findings()


def of_events(events: list[Any]) -> dict[str, Finding]:
    """The findings of these events, by kind."""
    entries = Timeline("g").add_all(events).entries
    return {each.kind: each for each in group_findings(Case("g", entries, PAIR, COUNTS, NOW_MS))}


def test_a_loop_of_rebalances_names_the_members_that_make_it() -> None:
    """Members that come once make none, and neither do rejoins after that; without any other cause, rejoins do."""
    found = of_events(STORM)["rebalance_loop"]
    assert (found.severity, found.times) == ("warning", 6)
    assert "c at h 6 times" in found.found
    rejoins = [dynamic(NOW_MS - 9_000 + number, "member_rejoined") for number in range(STORM_MIN)]
    assert "rebalance_loop" not in of_events([*SCALE_UP, *rejoins])
    assert "rebalance_loop" in of_events(rejoins)
    slow = [started(NOW_MS - 10 * STORM_MS + number * STORM_MS // 4, "member_left", "i") for number in range(20)]
    assert "rebalance_loop" not in of_events(slow)


def test_a_probe_says_why_a_static_member_is_not_at_work() -> None:
    """Its reason, by instance id; a member that takes part in a rebalance is at work, unless that takes long."""

    def reasons(each: Looks) -> dict[str, str]:
        found = at_work(each.group, each.taken(), NOW_MS)
        assert all(work.is_known for work in found.values())
        return {name: work.why for name, work in found.items()}

    assert reasons(WORKS) == {"i": "", "j": ""}
    assert reasons(HUNG) == {"i": "records come, and it commits nothing of t-0 at 3", "j": ""}
    assert reasons(IDLE) == {"i": "", "j": "it has no topic partition"}
    away = replace(ONE, seat=ConsumerSeat(AWAY, {"t": [0]}, None, is_classic=False))
    assert reasons(replace(WORKS, group=group_of(away, OTHER)))["i"] == "it left for a while"
    there = replace(ONE, seat=ConsumerSeat(3, {"t": [0]}, None, is_classic=False))
    assert reasons(replace(WORKS, group=group_of(there, OTHER)))["i"] == ""
    assert reasons(REBALANCES)["i"] == "the group has rebalanced for long"
    assert reasons(replace(REBALANCES, steps=REBALANCES.steps[1:])) == {"i": "", "j": ""}


def test_a_probe_says_that_it_does_not_know() -> None:
    """A look that doesn't show a partition is no reason for yes or no; a member that stood still before still does."""
    unknown = Work("the cluster doesn't show how far the group is: t-0", is_known=False)
    assert at_work(PAIR, Progress().look(PAIR, None, COUNTS, NOW_MS), NOW_MS)["i"] == unknown
    for steps in (((0, (3, None), (9, 9)),), (*WORKS.steps, (-1, (8, None), (9, 9)))):
        assert at_work(PAIR, looks(PAIR, *steps).taken(), NOW_MS) == {"i": unknown, "j": Work()}
    progress = Progress()
    HUNG.taken(progress)
    later = at_work(PAIR, progress.look(PAIR, None, COUNTS, NOW_MS + 1), NOW_MS + 1)
    assert later["i"] == Work("records come, and it commits nothing of t-0 at 3")
    assert not later["j"].is_known


def test_a_look_that_shows_no_offsets_changes_no_finding() -> None:
    """A stall goes on in memory, and nothing becomes a stall that no look showed."""
    progress = Progress()
    STUCK.taken(progress)
    unseen = progress.look(PAIR, None, COUNTS, NOW_MS + 1)
    (found,) = group_findings(Case("g", [], PAIR, COUNTS, NOW_MS + 1, unseen))
    assert found.kind == "partition_stuck"
    young = Progress()
    replace(STUCK, steps=STUCK.steps[:2]).taken(young)
    assert group_findings(Case("g", [], PAIR, COUNTS, NOW_MS, young.look(PAIR, None, COUNTS, NOW_MS))) == []


def test_a_standby_is_not_idle() -> None:
    """It waits for a seat on purpose, and so does a member whose assignment only its own clients can read."""
    for other in (replace(OTHER, assignment={}, standby_ms=5), replace(OTHER, assignment=None)):
        assert "member_ready_but_idle" not in replace(IDLE, group=group_of(ONE, other)).findings(SETTLED)
