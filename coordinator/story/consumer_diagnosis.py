"""Findings that are of the consumer protocol alone (KIP-848); `diagnosis` has the others and their rules.

Who holds a group up comes from its description, and so do subscriptions that lead to nothing. Twins come from events: a
client was refused a seat, and after that the seat's member was heard of; so both ran at the same time. A single refusal
may also be a restart after a kill, whose seat is free when its session ends.

House rule: one function per kind, and no function asks a server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from coordinator.group.causes import CauseKind
from coordinator.group.course import Phase
from coordinator.story.described import ConsumerState, Group, Member
from coordinator.story.diagnosis import (
    AWAITED_MS,
    CONFLICT_ADVICE,
    Case,
    Finding,
    Severity,
    members_text,
    shared,
    unless_over,
)
from coordinator.story.entries import Rebalance
from coordinator.story.events import Cause, InstanceIdUnreleased
from coordinator.text import NAMED_MAX, client_text, names_text

NOT_READY = "NotReady"
"""The state of a streams group whose topology doesn't fit its topics (KIP-1071)."""

TIMEOUT_ADVICE = "Its rebalance timeout (max.poll.interval.ms) is how long the others wait"


def consumer_findings(case: Case) -> Iterator[Finding]:
    """Findings about a group of the consumer protocol; none about another group."""
    yield from _taken_seats(case)
    yield from _never_revoked(case)
    group = case.group
    if group is not None and group.consumer is not None:
        yield from held_up_findings(group, group.consumer, case.now_ms)
        yield from _without_topics(group, group.consumer, case.partition_counts)
        if group.state == NOT_READY:
            yield not_ready(group.group_id)


def not_ready(group_id: str) -> Finding:
    """The finding about a streams group in the state NOT_READY."""
    return Finding(
        Severity.ERROR,
        "topology_not_ready",
        group_id,
        "Kafka can't assign the tasks of this streams group: source topics are missing, or they don't have as many "
        "partitions as the topology needs",
        "create the source topics; topics that are joined need the same number of partitions. The broker's log names "
        "the topics",
    )


def _taken_seats(case: Case) -> Iterator[Finding]:
    """Clients that were refused the seat of an active member: one finding for each instance id, by the newest."""
    present = None if case.group is None else {member.member_id for member in case.group.members}
    by_instance: dict[str, list[InstanceIdUnreleased]] = {}
    for event in (entry.event for entry in case.entries):
        if isinstance(event, InstanceIdUnreleased):
            by_instance.setdefault(event.group_instance_id, []).append(event)
    for instance_id, refused in by_instance.items():
        last = refused[-1]
        one, other = client_text(last.client), client_text(last.current_client)
        parties = f"{last.member_id} ({one}) was refused the seat of {last.current_member_id} ({other})"
        if _are_twins(refused):
            found = f"two programs had the instance id {instance_id}: {parties}, which went on meanwhile"
            yield shared(case, "instance_id_conflict", found, last.at_ms, len(refused))
            continue
        if present is not None and last.current_member_id not in present:
            continue  # the seat is free, or has the successor
        finding = Finding(
            Severity.WARNING,
            "seat_not_released",
            case.group_id,
            f"{parties} with the instance id {instance_id}, which had neither left nor expired",
            "if it was killed: the seat is free when its session ends (group.consumer.session.timeout.ms), so start "
            "the successor later, free the seat with `tenure members remove`, or let the program close its consumer. "
            f"If it still runs: {CONFLICT_ADVICE}",
            last.at_ms,
            len(refused),
        )
        yield unless_over(finding, case.now_ms)


def _are_twins(refused: Sequence[InstanceIdUnreleased]) -> bool:
    """Whether a member was heard of after a client had been refused its seat, as a later refusal shows."""
    first_ms: dict[str, int] = {}
    for event in refused:
        holder, at_ms = event.current_member_id, event.at_ms
        if event.silent_ms is not None and at_ms - event.silent_ms > first_ms.get(holder, at_ms):
            return True
        first_ms.setdefault(holder, at_ms)
    return False


def _never_revoked(case: Case) -> Iterator[Finding]:
    """Members that were removed because they did not give up partitions: one finding for all."""
    late = [
        (entry, cause)
        for entry in case.entries
        if isinstance(entry, Rebalance)
        for cause in entry.causes
        if cause.kind == CauseKind.REVOCATION_TIMED_OUT.value
    ]
    if not late:
        return
    names = sorted({_name(cause) for _, cause in late})
    finding = Finding(
        Severity.WARNING,
        "members_never_revoked",
        case.group_id,
        f"did not give up partitions within the rebalance timeout, and were removed: {', '.join(names[:NAMED_MAX])}",
        "a consumer gives up partitions when it polls, after its listener for revoked partitions: see what keeps it "
        f"from that. {TIMEOUT_ADVICE}",
        max((entry.ended_ms or entry.at_ms) for entry, _ in late),
        len(late),
    )
    yield unless_over(finding, case.now_ms)


def _name(cause: Cause) -> str:
    return f"{cause.group_instance_id or cause.member_ids[0]} ({client_text(cause)})"


def held_up_findings(group: Group, state: ConsumerState, now_ms: int) -> Iterator[Finding]:
    """The members that a group waits for now. It is no problem before they had time to do their part."""
    for each in state.awaited or ():
        waits_ms = None if each.since_ms is None else max(now_ms - each.since_ms, 0)
        who, left_s = members_text([each]), max(each.until_ms - now_ms, 0) / 1000
        if each.phase == Phase.REVOKING.value:
            kind = "members_not_revoked"
            what = f"to give up {each.partitions} topic partitions; the member is removed in {left_s:.0f} s"
            advice = f"a consumer gives up partitions when it polls: see what keeps it from that. {TIMEOUT_ADVICE}"
        elif each.phase == Phase.ACKNOWLEDGING.value:
            kind = "members_silent"
            what = f"to take its new assignment with a heartbeat; its session ends in {left_s:.0f} s"
            advice = "a client sends heartbeats by itself: see whether it still runs and reaches the server"
        else:
            yield Finding(
                Severity.NOTICE,
                "member_away",
                group.group_id,
                f"{who} left for a while and keeps its seat with {each.partitions} topic partitions for {left_s:.0f} s "
                "more; nobody consumes them meanwhile",
                "nothing needs to be done if it is being restarted; else remove it with `tenure members remove`",
            )
            continue
        waited = "" if waits_ms is None else f" {waits_ms / 1000:.0f} s"
        is_long = waits_ms is not None and waits_ms >= AWAITED_MS
        yield Finding(
            Severity.ERROR if is_long else Severity.NOTICE,
            kind,
            group.group_id,
            f"the group has waited{waited} for {who} {what}",
            advice,
        )


def _without_topics(group: Group, state: ConsumerState, partition_counts: Mapping[str, int]) -> Iterator[Finding]:
    """Subscriptions that lead to nothing: expressions without a match, topics that aren't there, no topic at all."""
    members = [member for member in group.members if member.seat is not None]
    for regex in state.regexes_without_topics or ():
        who = [member for member in members if member.seat is not None and member.seat.regex == regex]
        yield Finding(
            Severity.WARNING,
            "regex_without_topics",
            group.group_id,
            f"no topic matches the regular expression {regex}, to which {members_text(who)} subscribe",
            "it must match the whole name, in the syntax of RE2, and the member may have to be allowed to describe the "
            "topics. Topics that come later are found by themselves",
        )
    absent = sorted({topic for member in members for topic in member.subscription or ()} - partition_counts.keys())
    if absent:
        who = [member for member in members if not (member.subscription or frozenset()).isdisjoint(absent)]
        yield Finding(
            Severity.WARNING,
            "subscribed_but_absent",
            group.group_id,
            f"there is no topic {names_text(absent)}, to which {members_text(who)} subscribe",
            "create it, or correct the name; a topic that only others may describe looks the same",
        )
    idle = [member for member in members if _is_idle(member)]
    if idle:
        yield Finding(
            Severity.NOTICE,
            "members_without_subscription",
            group.group_id,
            f"without a subscription: {members_text(idle)}",
            "nothing needs to be done if they are about to subscribe",
        )


def _is_idle(member: Member) -> bool:
    # A streams group has no subscription while its topology is not ready: None.
    return member.seat is not None and member.subscription == frozenset() and not member.seat.regex
