"""Kafka's log lines become causes. The lines are real ones, of 3.9.1 and 4.3.1, with shorter names and numbers."""

from __future__ import annotations

import time
from typing import Any

import pytest

from coordinator.story.events import TopicChange
from coordinator.story.inference import broker_lines
from coordinator.story.inference.broker_lines import LINE_MAX, BrokerLines
from coordinator.story.inference.knowledge import Told
from coordinator.story.inference.observed import Observed
from tests.audit.scenes import GROUP, HOUR_MS, SECOND_MS, Scene, member, static
from tests.story.inference.observing import events_of

OLD = "[2026-11-27 16:36:52,132] INFO [GroupCoordinator 1]: {} (kafka.coordinator.group.GroupCoordinator)"
NEW = (
    "[2026-11-27 16:38:23,265] INFO [GroupCoordinator id=1 topic=__consumer_offsets partition=3] {} "
    "(org.apache.kafka.coordinator.group.GroupMetadataManager)"
)
PREPARING_OLD = (
    "Preparing to rebalance group workers in state PreparingRebalance with old generation 3 (__consumer_offsets-2) "
    "(reason: {})"
)
PREPARING_NEW = "Preparing to rebalance group workers in state PreparingRebalance with old generation 3 (reason: {})."
BUMPED = "[GroupId workers] Bumped group epoch to 4 with metadata hash 6227829383541758218."
REMOVED = (
    "[GroupId workers] Static member  with instance id s2 has left group through explicit `LeaveGroup` request; "
    "client reason: removed by an admin"
)
LEFT_OLD = (
    "Member MemberMetadata(memberId=m-2, groupInstanceId=None, clientId=m, clientHost=/127.0.0.1, "
    "sessionTimeoutMs=3000, rebalanceTimeoutMs=6000, supportedProtocols=List(range)) has left group workers through "
    "explicit `LeaveGroup`; client reason: not provided"
)


def heard(form: str, *texts: str) -> list[Told]:
    """The causes that a reader finds in these lines of a group `workers`."""
    reader = BrokerLines()
    return [cause for text in texts for cause in reader.add(form.format(text) + "\n")]


def short(causes: list[Told]) -> list[tuple[str, tuple[str, ...], str | None, str]]:
    """Kinds, members, instance id and reason of each cause, all about the rebalance of generation 3."""
    assert all((cause.group, cause.generation_before) == ("workers", 3) for cause in causes)
    return [("/".join(cause.kinds), cause.member_ids, cause.group_instance_id, cause.reason) for cause in causes]


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (
            "Adding new member m-1 with group instance id None; client reason: not provided",
            ("member_joined", ("m-1",), None, ""),
        ),
        (
            "Adding new member s1-1 with group instance id Some(s1); client reason: need to re-join (id)",
            ("member_joined", ("s1-1",), "s1", "need to re-join (id)"),
        ),
        (
            "Adding new member s1-1 with group instance id s1; client reason: not provided",
            ("member_joined", ("s1-1",), "s1", ""),
        ),
        (
            "Adding new member m-1 with group instance id null; client reason: not provided",
            ("member_joined", ("m-1",), None, ""),
        ),
        (
            "Updating metadata for member m-1 during Stable; client reason: not provided",
            ("metadata_changed/member_rejoined", ("m-1",), None, ""),
        ),
        (
            "Leader m-1 re-joining group during Stable; client reason: cached metadata has changed",
            ("leader_rejoined/metadata_changed", ("m-1",), None, "cached metadata has changed"),
        ),
        (
            "Updating metadata for static member s1-2 with instance id s1; client reason: not provided",
            ("static_member_replaced", ("s1-2",), "s1", ""),
        ),
        (
            (
                "Group's selectedProtocol will change because static member s1-2 with instance id s1 joined with "
                "change of protocol; client reason: not provided"
            ),
            ("protocol_changed", ("s1-2",), "s1", ""),
        ),
        ("Removing member m-2 on LeaveGroup; client reason: not provided", ("member_left", ("m-2",), None, "")),
        (
            "Removing member s2-1 on LeaveGroup; client reason: removed by an admin",
            ("member_removed", ("s2-1",), None, "removed by an admin"),
        ),
        ("removing member m-2 on heartbeat expiration", ("member_expired", ("m-2",), None, "")),
        ("removing member m-2 on heartbeat expiration.", ("member_expired", ("m-2",), None, "")),
        ("Removing Set(m-1, m-2) on pending sync request expiration", ("sync_timed_out", ("m-1", "m-2"), None, "")),
        (
            (
                "Freshly-loaded group is over capacity (2). Rebalancing in order to give a chance for consumers to "
                "commit offsets"
            ),
            ("group_over_capacity", (), None, ""),
        ),
    ],
)
def test_the_reason_of_a_rebalance_is_its_first_cause(
    reason: str, expected: tuple[str, tuple[str, ...], str | None, str]
) -> None:
    """Both implementations of Kafka have the same forms, apart from a full stop and the partition."""
    for form, text in ((OLD, PREPARING_OLD), (NEW, PREPARING_NEW)):
        (cause,) = heard(form, text.format(reason))
        assert cause.is_first
        assert short([cause]) == [expected]


def test_lines_until_the_group_is_stable_are_further_causes() -> None:
    """Each member once, although 3.9 has a line about a leave before and after. Later lines belong to no rebalance."""
    joins = "Dynamic member with unknown member id joins group workers in {} state. Created a new member id m-9 and "
    causes = heard(
        OLD,
        joins.format("Stable"),
        PREPARING_OLD.format("Removing member m-2 on LeaveGroup; client reason: not provided"),
        LEFT_OLD,
        joins.format("PreparingRebalance"),
        "Member m-3 in group workers has failed, removing it from the group",
        "Static member with groupInstanceId=s1 and unknown member id joins group workers in PreparingRebalance state. "
        "Replacing previously mapped member s1-1 with this groupInstanceId.",
        "Static member with groupInstanceId=s2 and unknown member id joins group workers in PreparingRebalance state. "
        "Created a new member id s2-1 for this member and add to the group.",
        "Pending dynamic member with id m-7 joins group workers in PreparingRebalance state. Adding to the group now.",
        "Group workers removed dynamic members who haven't joined: HashSet(m-4, m-5)",
        "Stabilized group workers generation 4 (__consumer_offsets-2) with 2 members",
        "Member m-6 in group workers has failed, removing it from the group",
    )
    assert short(causes) == [
        ("member_left", ("m-2",), None, ""),
        ("member_joined", ("m-9",), None, ""),
        ("member_expired", ("m-3",), None, ""),
        ("static_member_replaced", ("s1-1",), "s1", ""),
        ("member_joined", ("s2-1",), "s2", ""),
        ("member_joined", ("m-7",), None, ""),
        ("member_expired", ("m-4", "m-5"), None, ""),
    ]
    assert [cause.is_first for cause in causes] == [True, False, False, False, False, False, False]


def test_kafka_3_names_the_last_member_that_left_when_the_group_is_empty() -> None:
    """Its line comes behind the end of the rebalance."""
    causes = heard(
        OLD,
        PREPARING_OLD.format("Removing member m-1 on LeaveGroup; client reason: not provided"),
        LEFT_OLD.replace("m-2", "m-1"),
        "Group workers with generation 4 is now empty (__consumer_offsets-2)",
        LEFT_OLD,
    )
    assert short(causes) == [("member_left", ("m-1",), None, ""), ("member_left", ("m-2",), None, "")]


def test_kafka_4_says_why_members_left_before_the_rebalance() -> None:
    """The line that begins the rebalance names all members of a LeaveGroup; the reason stands in an earlier line."""
    causes = heard(
        NEW,
        "[Group workers] Member s2-1 has left group through explicit `LeaveGroup` request; client reason: "
        "removed by an admin",
        PREPARING_NEW.format("explicit `LeaveGroup` request for (s2-1, s3-1) members."),
    )
    assert short(causes) == [("member_removed", ("s2-1", "s3-1"), None, "removed by an admin")]
    removed = (
        "[Group workers] Member s2-1 has left group through explicit `LeaveGroup` request; client reason: not provided"
    )
    unnamed = PREPARING_NEW.format("explicit `LeaveGroup` request for () members.")
    assert short(heard(NEW, removed, unnamed)) == [("member_left", ("s2-1",), None, "")]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            [
                "Member p9ck/a1q1 joins the consumer group using the consumer protocol.",
                "Member p9ck/a1q1 updated its subscribed topics to: [orders].",
            ],
            ("member_joined", ("p9ck/a1q1",), None, ""),
        ),
        (
            ["Static member vZ5Z with instance id s1 joins the consumer group using the consumer protocol."],
            ("member_joined", ("vZ5Z",), "s1", ""),
        ),
        (["Member GEvk left the consumer group."], ("member_left", ("GEvk",), None, "")),
        (
            ["Static Member vZ5Z with instance id s1 left the consumer group."],
            ("member_left", ("vZ5Z",), "s1", ""),
        ),
        (
            ["Member p9ck fenced from the group because the member session expired."],
            ("member_expired", ("p9ck",), None, ""),
        ),
        (
            ["Member p9ck fenced from the group because it failed to transition from epoch 2 within 3000ms."],
            ("revocation_timed_out", ("p9ck",), None, ""),
        ),
        (
            ["Member GEvk updated its subscribed topics to: [orders, refunds].", "Computed new metadata hash: -2397."],
            ("subscription_changed", ("GEvk",), None, ""),
        ),
        (
            [
                "Received updated regular expressions based on the context of member GEvk: {(^orders-.*)=x}.",
                "Computed new metadata hash: -2397.",
            ],
            ("regex_resolved", ("GEvk",), None, ""),
        ),
        (["Computed new metadata hash: -7848259626129865532."], ("topics_changed", (), None, "")),
        ([], ("subscription_changed/topics_changed/regex_resolved", (), None, "")),
    ],
)
def test_a_group_epoch_has_the_cause_of_the_lines_before_it(
    lines: list[str], expected: tuple[str, tuple[str, ...], str | None, str]
) -> None:
    """At INFO, Kafka doesn't say whether a subscription or the topics changed."""
    causes = heard(NEW, *(f"[GroupId workers] {line}" for line in lines), BUMPED)
    assert causes[0].is_first
    assert short(causes) == [expected]
    assert heard(NEW, *(f"[GroupId other] {line}" for line in lines), BUMPED)[0].kinds[1:], "of another group"


def test_so_many_lines_before_a_group_epoch_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last ones: an administrator may remove thousands of members at once."""
    monkeypatch.setattr(broker_lines, "FACTS_MAX", 2)
    causes = heard(NEW, *(f"[GroupId workers] Member {name} left the consumer group." for name in "abc"), BUMPED)
    assert [cause.member_ids for cause in causes] == [("b",), ("c",)]


def test_lines_of_another_request_are_no_cause() -> None:
    """A static member that goes for a while, or comes back, raises no epoch; nor does a join that is sent once more."""
    joins = "[GroupId workers] Member {} joins the consumer group using the consumer protocol."
    away = "[GroupId workers] Static Member vZ5Z with instance id s1 temporarily left the consumer group."
    back = (
        "[GroupId workers] Static member with instance id s1 re-joins the consumer group using the consumer protocol. "
        "Created a new member A1c9 to replace the existing member vZ5Z."
    )
    for line in (away, back, joins.format("p9ck")):
        assert short(heard(NEW, line, joins.format("GEvk"), BUMPED)) == [("member_joined", ("GEvk",), None, "")]
    untold = ("subscription_changed/topics_changed/regex_resolved", (), None, "")
    # A member that joins with a regular expression raises nothing until it is resolved, by another request.
    scanned = "[GroupId workers] Scanned 4 topics to refresh regular expressions [(^orders-.*)] in 16ms."
    assert short(heard(NEW, joins.format("p9ck"), scanned, BUMPED)) == [untold]
    assert short(heard(NEW, away, back, BUMPED)) == [untold]
    reader = BrokerLines()
    reader.add(NEW.format(joins.format("p9ck")))
    assert short(reader.add(NEW.format(BUMPED).replace("16:38:23", "16:38:25"))) == [untold]


def test_an_operator_removes_a_member_of_the_consumer_protocol() -> None:
    """Its line has no member id, if the request had none."""
    assert short(heard(NEW, REMOVED, BUMPED)) == [("member_removed", (), "s2", "removed by an admin")]


def test_times_are_in_utc_as_far_as_the_line_has_a_date() -> None:
    """A broker writes its local time, and the reader takes it for UTC."""
    line = PREPARING_OLD.format("removing member m-2 on heartbeat expiration")
    (cause,) = heard(OLD, line)
    assert cause.at_ms == 1_795_797_412_132
    assert heard("16:36:52,132 INFO {}", line)[0].at_ms == -1
    assert heard("[2026-13-27 16:36:52,132] INFO {}", line)[0].at_ms == -1


def test_group_ids_with_spaces_and_other_lines() -> None:
    """A group id may contain any text. Lines of other loggers, and cut lines, say nothing."""
    text = PREPARING_NEW.format("removing member m on heartbeat expiration").replace("group workers", "group a group")
    assert heard(OLD, text)[0].group == "a group"
    for line in (
        "",
        "group",
        "Preparing to rebalance group workers in state",
        "INFO Kafka Server started",
        "\0roup\ufffd",
    ):
        assert heard(OLD, line) == []


def test_a_reader_remembers_a_limited_number_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group that was named longest ago is forgotten first."""
    monkeypatch.setattr("coordinator.story.inference.broker_lines.GROUPS_MAX", 100)
    reader = BrokerLines()
    for number in range(102):
        reader.add(f"Stabilized group g{number} generation 1 with 1 members.")
    assert next(iter(reader._groups)) == "g2"


def observed(line: str, scene: Scene) -> Any:
    """The cause that an observer names, who hears a line before the scene's last record."""
    (told,) = BrokerLines().add(line)
    observer = Observed()
    observer.told(told._replace(group=GROUP, generation_before=1, at_ms=scene.now_ms - SECOND_MS))
    (cause,) = events_of(scene, observer)[-1].causes
    return cause


def test_a_told_cause_takes_the_place_of_an_unknown_one() -> None:
    """With the client of the member, and its instance id, from the records."""
    line = OLD.format(PREPARING_OLD.format("removing member s-1 on heartbeat expiration"))
    scene = Scene().group([member("a", {"orders": [0]}), static("s", 1, {"orders": [1]})], 1).tick(60_000)
    cause = observed(line, scene.group([member("a", {"orders": [0]})], 2))
    assert (cause.kind, cause.group_instance_id, cause.client_id, cause.told) == (
        "member_expired", "s", "client", True,
    )  # fmt: skip
    removed = NEW.format(REMOVED)
    reader = BrokerLines()
    assert reader.add(removed) == []
    (told,) = reader.add(NEW.format(BUMPED))
    assert (told.kinds, told.member_ids, told.group_instance_id) == (("member_removed",), (), "s2")


@pytest.mark.parametrize(
    ("reason", "late_ms", "kind"),
    [
        ("removing member b on heartbeat expiration", 0, "member_expired"),
        ("removing member b on heartbeat expiration", 2 * HOUR_MS, "member_expired"),
        ("removing member b on heartbeat expiration", 5_000, "unknown"),
        ("removing member b on heartbeat expiration", -70_000, "unknown"),
        ("removing member a on heartbeat expiration", 0, "unknown"),
        ("Removing member a on LeaveGroup; client reason: not provided", 0, "unknown"),
        ("Adding new member a with group instance id None; client reason: not provided", 0, "unknown"),
    ],
)
def test_a_forged_line_counts_only_if_no_record_contradicts_it(reason: str, late_ms: int, kind: str) -> None:
    """A newline in a client's reason begins a line of its choice. Its time may be that of another zone."""
    pair = [member("a", {"orders": [0]}), member("b", {"orders": [1]})]
    scene = Scene().group(pair, 1).tick(60_000).group(pair[:1], 2)
    forged = OLD.format(PREPARING_OLD.format(reason)).replace("workers", GROUP).replace("generation 3", "generation 1")
    joins = "Adding new member x with group instance id None; client reason: bye\n"
    text = OLD.format(PREPARING_OLD.format(joins + forged)).replace("workers", "mine", 1)
    reader, observer = BrokerLines(), Observed()
    for line in text.split("\n"):
        for told in filter(lambda told: told.is_first, reader.add(line)):
            assert (told.group, told.generation_before) == (GROUP, 1)
            observer.told(told._replace(at_ms=scene.now_ms - SECOND_MS + late_ms))
    (cause,) = events_of(scene, observer)[-1].causes
    assert (cause.kind, cause.member_ids, bool(cause.told)) == (kind, ["b"], kind != "unknown")


def test_the_records_decide_between_the_kinds_of_an_ambiguous_line() -> None:
    """Kafka has the same words for another subscription, and for members that own other partitions."""
    line = OLD.format(PREPARING_OLD.format("Updating metadata for member b during Stable; client reason: not provided"))
    pair = [member("a", {"orders": [0]}), member("b", {"orders": [1]})]
    changed = [pair[0], member("b", {"orders": [1]}, topics=["orders", "refunds"])]
    cause = observed(line, Scene().group(pair, 1).group(changed, 2))
    assert (cause.kind, cause.topics) == ("metadata_changed", [TopicChange("refunds", "added")])
    cause = observed(line, Scene().group(pair, 1).group(pair, 2))
    assert (cause.kind, cause.member_ids) == ("member_rejoined", ["b"])
    line = OLD.format(PREPARING_OLD.format("Leader b re-joining group during Stable; client reason: not provided"))
    assert observed(line, Scene().group(pair, 1).group(pair, 2)).kind == "leader_rejoined"
    assert observed(line, Scene().group(pair, 1).group(changed, 2)).kind == "metadata_changed"


def test_a_line_that_a_client_made_long_costs_no_time() -> None:
    """Group ids, member ids and reasons are the clients' own, and may repeat what the forms look for."""
    static = "Static member with groupInstanceId=x and unknown member id joins group y "
    for text in ("[GroupId x] Member y ", "Group x with generation 1 ", static):
        reader = BrokerLines()
        began_s = time.process_time()
        assert reader.add(OLD.format(text * (64_000 // len(text)))) == []
        assert reader.add(OLD.format(text * (LINE_MAX // len(text) - 3))) == []
        assert time.process_time() - began_s < 1
