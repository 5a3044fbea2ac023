"""Every finding of `tenure doctor` has an end. tests/cli/test_doctor_advice.py follows the advice on a server."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from coordinator.story.cluster_diagnosis import MOVES_MIN, cluster_findings, not_listed, unavailable
from coordinator.story.described import Expects, FailingLog, Group, HeldUp, StoreHealth, Waiting
from coordinator.story.diagnosis import (
    FORGOTTEN_MS,
    LOOP_MIN,
    OVER_MS,
    RESTART_MAX_MS,
    TURNS_MIN,
    Case,
    Finding,
    Severity,
    log_findings,
)
from coordinator.story.entries import Timeline
from coordinator.story.events import Pending
from coordinator.story.group_diagnosis import group_findings
from coordinator.story.offsets import HoldingTransaction
from coordinator.story.progress import GroupProgress
from tests.story import test_cluster_diagnosis as cluster
from tests.story import test_consumer_diagnosis as consumer
from tests.story import test_progress_diagnosis as progress
from tests.story.test_diagnosis import NOW_MS, awaited, dynamic, fenced, group_of, member, replaced, started
from tests.story.test_readiness import restart
from tests.support.told import event

PAGES = [
    Path(__file__).resolve().parents[2] / "docs/ask-why" / name for name in ("explain-watch-doctor.md", "stuck.md")
]

DAY = FORGOTTEN_MS
AGO_MS = NOW_MS - 3 * 60_000


@dataclass(frozen=True)
class Scene:
    """The facts that findings are made from. after_ms: how long after NOW_MS the doctor looks."""

    events: Sequence[Any] = ()
    group: Group | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    after_ms: int = 0
    ownerless: Sequence[int] = ()
    stores: Mapping[int, StoreHealth] = field(default_factory=dict)
    away: Sequence[int] = ()
    failing: Sequence[FailingLog] = ()
    silent: str = ""
    holding: Sequence[HoldingTransaction] = ()
    progress: GroupProgress | None = None

    def findings(self) -> dict[str, Finding]:
        """The findings by kind."""
        now_ms = NOW_MS + self.after_ms
        entries = Timeline("g").add_all(self.events).entries
        found = [
            *group_findings(Case("g", entries, self.group, self.counts, now_ms, self.progress, self.holding)),
            *cluster_findings(self.ownerless, {"g": entries}, self.stores, self.away, now_ms),
            *log_findings(self.failing, len(self.failing), now_ms),
            *([unavailable("g", self.silent), *not_listed([self.silent])] if self.silent else ()),
        ]
        return {finding.kind: finding for finding in found}


PAIR = group_of(member("i"), member("j"))
EMPTY = group_of(state="Empty")
EXPIRED = started(AGO_MS, "member_expired", "i", None)
GONE = Scene([EXPIRED], group_of(member("j")))
LATE = Scene([EXPIRED, started(AGO_MS + 5_000, "member_joined", "i")], PAIR)
RAN_ON = started(AGO_MS + 5_000, "member_joined", "i", reason="encountered UNKNOWN_MEMBER_ID")
LOOP = Scene([replaced(AGO_MS + number, "c") for number in range(LOOP_MIN)], PAIR)
IN_TURN = Scene([replaced(AGO_MS + number, "ab"[number % 2]) for number in range(TURNS_MIN + 2)], PAIR)
CONFLICT = Scene([fenced("i-1", "conflict")], PAIR)
DELETED = event("group_deleted", NOW_MS, offsets=None)
BACK = [dynamic(AGO_MS + number, kind) for number, kind in enumerate(("member_left", "member_joined") * 2)]
LOADED = event("group_loaded", NOW_MS, members=1, write_failed=True)
GAP = event("events_dropped", NOW_MS, events=3, first_ms=NOW_MS, last_ms=NOW_MS)
REFUSED = consumer.refused(NOW_MS, 100)
HELD_BY = replace(consumer.group_of(consumer.member("i", {"t"})))
MOVES = [
    event("group_loaded", NOW_MS - 1_000 * (MOVES_MIN - number), members=1, write_failed=False, node=number % 2)
    for number in range(MOVES_MIN + 1)
]
WITH_SEATS = replace(PAIR, target_size=2)
OLD_CLIENT, NEW_CLIENT = ([started(AGO_MS, "member_joined", "i", version)] for version in (4, 9))
WANTS_U = consumer.member("i", {"u"})


def waiting(pending: bool = False, leader: str | None = None) -> Group:
    """A group that waits for i, or for a member id that nobody uses."""
    unused = [Pending("p", "c", "/h", NOW_MS + 60_000)] if pending else []
    members = [] if pending else [awaited(member("i"))]
    return group_of(*PAIR.members, state="PreparingRebalance",
                    waiting=Waiting(AGO_MS, NOW_MS + 60_000, False, leader, members, unused))  # fmt: skip


def held_up(phase: str) -> Group:
    """A group of the consumer protocol that waits for i."""
    one = consumer.member("i", {"t"})
    return consumer.group_of(one, awaited=[HeldUp(*one.named, phase, 2, AGO_MS, NOW_MS + 5_000)])


def looked(looks: progress.Looks, *events: Any, after_ms: int = 0) -> Scene:
    """A group at the newest of some looks."""
    return Scene(events, looks.group, {"t": 2}, after_ms, progress=looks.taken())


ENDS: dict[str, tuple[Scene, dict[str, Scene]]] = {
    "behind_retention": (looked(progress.LOST), {"it goes on behind": looked(progress.WORKS)}),
    "commit_back": (
        looked(progress.WENT_BACK),
        {"the offset is as high again": looked(progress.CAUGHT_UP), "a day": looked(progress.WENT_BACK, after_ms=DAY)},
    ),
    "client_without_instance_id": (
        Scene(OLD_CLIENT, PAIR),
        {"a newer client": Scene(NEW_CLIENT, PAIR), "it is gone": Scene(OLD_CLIENT, EMPTY)},
    ),
    "client_without_reason": (
        Scene(OLD_CLIENT, PAIR),
        {"a newer client": Scene(NEW_CLIENT, PAIR), "it is gone": Scene(OLD_CLIENT, EMPTY)},
    ),
    "dynamic_members_come_back": (
        Scene(BACK, PAIR),
        {
            "the client is static": Scene([*BACK, started(NOW_MS, "member_joined", "i")], PAIR),
            "stopped": Scene(BACK, EMPTY),
            "a day": Scene(BACK, PAIR, after_ms=DAY),
        },
    ),
    "events_dropped": (Scene([GAP], EMPTY), {"a day": Scene([GAP], PAIR, after_ms=DAY)}),
    "expected_members_missing": (
        Scene(group=replace(PAIR, expects=Expects(["k"], 0, None))),
        {"it came, or isn't expected": Scene(group=PAIR)},
    ),
    "group_unavailable": (Scene(silent="NOT_COORDINATOR"), {"it answers": Scene()}),
    "groups_not_listed": (Scene(silent="NOT_COORDINATOR"), {"they are listed": Scene()}),
    "hanging_transaction": (
        Scene(holding=[HoldingTransaction("t", 7, 3, 17, AGO_MS, NOW_MS, [("orders", 0)])]),
        {"it was ended": Scene()},
    ),
    "instance_id_conflict": (
        CONFLICT,
        {"a day": replace(CONFLICT, after_ms=DAY), "both stopped": replace(CONFLICT, group=EMPTY)},
    ),
    "instance_id_in_turns": (
        IN_TURN,
        {"a day": replace(IN_TURN, after_ms=DAY), "both stopped": replace(IN_TURN, group=EMPTY)},
    ),
    "instance_ids_gone": (
        GONE,
        {
            "it is back": replace(GONE, group=PAIR),
            "all were stopped": replace(GONE, group=EMPTY),
            "the group is another one": replace(GONE, events=[EXPIRED, DELETED]),
            "a day": replace(GONE, after_ms=DAY),
        },
    ),
    "log_fails": (Scene(failing=[FailingLog("t-0", AGO_MS, "full")]), {"it works": Scene()}),
    "member_away": (Scene(group=held_up("away"), counts={"t": 4}), {"it is back": Scene(group=HELD_BY)}),
    "topology_not_ready": (
        Scene(group=replace(consumer.group_of(), state="NotReady")),
        {"its topics are there": Scene(group=consumer.group_of())},
    ),
    "member_ready_but_idle": (
        looked(progress.IDLE, progress.SETTLED),
        {"it has a partition": looked(progress.WORKS, progress.SETTLED)},
    ),
    "members_never_revoked": (
        Scene([started(NOW_MS, "revocation_timed_out", "i", None)], PAIR),
        {"a day": Scene([started(NOW_MS, "revocation_timed_out", "i", None)], PAIR, after_ms=DAY)},
    ),
    "members_not_revoked": (Scene(group=held_up("revoking")), {"it gave them up": Scene(group=HELD_BY)}),
    "members_not_rejoined": (Scene(group=waiting()), {"it joined": Scene(group=PAIR)}),
    "members_not_synced": (Scene(group=waiting(leader="i-1")), {"it synced": Scene(group=PAIR)}),
    "members_silent": (Scene(group=held_up("acknowledging")), {"it took them": Scene(group=HELD_BY)}),
    "members_without_subscription": (
        Scene(group=consumer.group_of(consumer.member("i", set()))),
        {"it subscribed": Scene(group=HELD_BY)},
    ),
    "nodes_away": (Scene(away=[1]), {"it is there": Scene()}),
    "nodes_flap": (Scene(MOVES, PAIR), {"a day": Scene(MOVES, PAIR, after_ms=DAY)}),
    "no_standby": (
        Scene(group=WITH_SEATS),
        {"one waits": Scene(group=replace(WITH_SEATS, members=[*PAIR.members, replace(member("k"), standby_ms=0)]))},
    ),
    "partition_ownerless": (
        looked(progress.OWNERLESS, progress.SETTLED),
        {"a member has it": looked(progress.WORKS, progress.SETTLED)},
    ),
    "partition_stuck": (
        looked(progress.STUCK),
        {"it moves": looked(progress.WORKS), "another member has it": looked(progress.PASSED_ON)},
    ),
    "partitions_without_node": (Scene(ownerless=[3]), {"a node has it": Scene()}),
    "pending_member": (Scene(group=waiting(pending=True)), {"it joined, or its id lapsed": Scene(group=PAIR)}),
    "rebalancing": (looked(progress.REBALANCES), {"it is over": looked(progress.WORKS)}),
    "rebalance_loop": (
        Scene(progress.STORM, PAIR),
        {
            "a day": Scene(progress.STORM, PAIR, after_ms=DAY),
            "stopped": Scene(progress.STORM, EMPTY),
            "each member came once": Scene(progress.SCALE_UP, PAIR),
        },
    ),
    "regex_without_topics": (
        Scene(group=consumer.group_of(consumer.member("i", set(), "x.*"), regexes=["x.*"])),
        {"a topic matches": Scene(group=consumer.group_of(consumer.member("i", set(), "x.*")))},
    ),
    "restarts_in_a_loop": (LOOP, {"a day": replace(LOOP, after_ms=DAY), "stopped": replace(LOOP, group=EMPTY)}),
    "seat_not_released": (
        Scene([REFUSED], HELD_BY),
        {
            "the seat is free": Scene([REFUSED], consumer.group_of(consumer.member("k", {"t"}))),
            "the successor has it": Scene([REFUSED], consumer.group_of(replace(consumer.member("i", {"t"}),
                                                                               member_id="new"))),
            "a day": Scene([REFUSED], HELD_BY, after_ms=DAY),
        },
    ),
    "seats_free": (
        Scene(group=replace(PAIR, target_size=3)),
        {"a program came, or fewer seats": Scene(group=WITH_SEATS), "stopped": Scene(group=EMPTY)},
    ),
    "session_timeout_too_short": (
        LATE,
        {
            "a restart is in time": replace(LATE, events=[*LATE.events, restart("i", 900)]),
            "it isn't there": replace(LATE, group=group_of(member("j"))),
            "a day": replace(LATE, after_ms=DAY),
            "it was no restart": replace(LATE, events=[EXPIRED, started(AGO_MS + RESTART_MAX_MS + 1, "member_joined",
                                                                       "i")]),
        },
    ),
    "silent_clients": (
        Scene([EXPIRED, RAN_ON], PAIR),
        {
            "restarted with another setting": Scene([EXPIRED, RAN_ON, restart("i", 900)], PAIR),
            "a day": Scene([EXPIRED, RAN_ON], PAIR, after_ms=DAY),
        },
    ),
    "silent_group": (
        looked(progress.SILENT, progress.EMPTIED),
        {
            "a program came": looked(progress.WORKS, progress.EMPTIED),
            "all was read": looked(progress.DONE, progress.EMPTIED),
        },
    ),
    "store_full": (Scene(stores={1: cluster.store(used=900)}), {"it has room": Scene(stores={1: cluster.store()})}),
    "store_slow": (Scene(stores={1: cluster.store(slow=30)}), {"it is fast": Scene(stores={1: cluster.store()})}),
    "subscribed_but_absent": (
        Scene(group=consumer.group_of(WANTS_U)),
        {"the topic is there": Scene(group=consumer.group_of(WANTS_U), counts={"u": 1})},
    ),
    "subscribed_but_unassigned": (
        Scene(group=group_of(member("i", {"u"})), counts={"u": 1}),
        {"it is assigned": Scene(group=group_of(member("i", {"u"}, {"u": [0]})), counts={"u": 1})},
    ),
    "writes_failed": (Scene([LOADED], EMPTY), {"a day": Scene([LOADED], EMPTY, after_ms=DAY)}),
}  # fmt: skip
"""Kind -> facts with that finding, and facts in which it has ended, by what happened."""


def test_every_finding_is_tried() -> None:
    """The table has each kind of docs/ask-why/explain-watch-doctor.md and stuck.md."""
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    documented = re.findall(r"(?m)^\| `([a-z_]+)` \| (?:notice|warning|error)", text)
    assert set(documented) == ENDS.keys()
    assert len(documented) == len(ENDS)


@pytest.mark.parametrize(
    ("kind", "end"), [(kind, end) for kind, (_scene, ends) in ENDS.items() for end in ends], ids=str
)
def test_a_finding_ends(kind: str, end: str) -> None:
    """It is there before, and gone after what its advice asks for, or after a day if only the past shows it."""
    before, ends = ENDS[kind]
    assert before.findings()[kind].advice
    assert kind not in ends[end].findings()


@pytest.mark.parametrize("kind", ENDS)
def test_a_problem_of_the_past_becomes_a_notice(kind: str) -> None:
    """Ten minutes after it was seen last, nobody has to act; only a setting that is still as it was stays a warning."""
    scene = ENDS[kind][0]
    if scene.findings()[kind].last_at_ms is None:
        return
    stays = {"session_timeout_too_short", "silent_clients"}
    later = replace(scene, after_ms=OVER_MS).findings()[kind]
    assert (later.severity is Severity.NOTICE) is (kind not in stays)
    assert replace(scene, after_ms=DAY - 60 * 60_000).findings().keys() >= {kind}


def test_a_member_that_stays_away_is_named_with_advice_that_works() -> None:
    """It is no member any more, so nobody can remove it."""
    assert "remove" not in GONE.findings()["instance_ids_gone"].advice


def test_members_that_went_long_ago_are_not_named_with_newer_ones() -> None:
    """Each absence has its own day."""
    newer = started(NOW_MS + DAY - 2 * 60_000, "member_expired", "k", None)
    (gone,) = Scene([EXPIRED, newer], group_of(member("j")), after_ms=DAY).findings().values()
    assert gone.found == "1 instance id expired and never came back: k"
