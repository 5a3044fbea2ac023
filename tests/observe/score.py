"""Compares inferred causes with told ones.

The truth about a rebalance is what the server said: a broker of Kafka in its log lines, Tenure in its events. An
inferred rebalance covers the generations, or group epochs, from `generation_before` to `generation`, and so do the told
causes that it is compared with. Its verdict:

A rebalance that left no record is superseded by the next one. Which causes are whose, the log can't tell, so causes of
the one with a record may be those of the superseded ones before it.

    right      each inferred cause was told, with the same member, and one of them began the rebalance by the server's
               word: the first of them, if the observer says that it knows which one was first. (Kafka 3.9 logs nothing
               of a member that joins while the group prepares already. That it joined, or has another subscription,
               stands in the record itself.)
    unknown    a cause is "unknown", and what was told is among its possible kinds
    wrong      anything else; also a rebalance that nobody told of
    missing    the server told of a rebalance, and none was inferred

House rule: the observer gets the records of `__consumer_offsets`, and live states if asked for; never a told cause.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from coordinator.story.events import fields_of
from coordinator.story.inference.broker_lines import BrokerLines
from coordinator.story.inference.observed import Batch, Observed
from coordinator.story.records.values import GROUP_KIND, read_group, read_key
from tests.observe.stage import History

UNKNOWN = "unknown"
IN_THE_RECORD = frozenset({"member_joined", "metadata_changed"})
"""Kinds that nobody has to infer, if they aren't what began the rebalance: two records differ in them."""


class Told(NamedTuple):
    """A told cause of the rebalance that ends `before`.

    members: ids and instance ids that it names. is_first: whether it began the rebalance.
    """

    before: int
    kinds: frozenset[str]
    members: frozenset[str]
    is_first: bool


class Verdict(NamedTuple):
    """The verdict on one rebalance, and both sides in words. in_order: whether the first cause is said to be known."""

    word: str
    in_order: bool
    before: int
    told: str
    inferred: str


@dataclass
class Score:
    """The verdicts on a history."""

    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def unordered(self) -> int:
        """How many rebalances have the right causes, of which nobody knows the first."""
        return sum(each.word == "right" and not each.in_order for each in self.verdicts)

    @property
    def counts(self) -> Counter[str]:
        """How many of each word."""
        return Counter(each.word for each in self.verdicts)


def told_by_lines(lines: list[str]) -> list[Told]:
    """The causes that Kafka's log tells."""
    reader = BrokerLines()
    return [
        Told(
            each.generation_before,
            frozenset(each.kinds),
            frozenset((*each.member_ids, *filter(None, (each.group_instance_id,)))),
            each.is_first,
        )
        for line in lines
        for each in reader.add(line)
    ]


def told_by_events(events: list[dict[str, Any]]) -> list[Told]:
    """The causes that Tenure's events tell.

    In a group of the consumer protocol each cause raises the epoch, and so begins a rebalance of its own where another
    one counts them differently. A static member that comes back during a rebalance is a cause only if it begins one.
    """
    return [each for event in events for each in _told_by_event(event)]


def _told_by_event(event: dict[str, Any]) -> Iterator[Told]:
    if event["type"] == "member_replaced" and event["state"] != "Stable":
        names = frozenset((event["member_id"], event["old_member_id"], event["group_instance_id"]))
        yield Told(event["generation"], frozenset(["static_member_replaced"]), names, is_first=False)
    if event["type"] != "rebalance_ended":
        return
    before, causes = event["generation_before"], event["causes"]
    each_has_an_epoch = event.get("group_type") == "consumer" and event["generation"] - before == len(causes)
    for number, cause in enumerate(causes):
        names = frozenset((*cause["member_ids"], *filter(None, (cause["group_instance_id"],))))
        epoch = before + number if each_has_an_epoch else before
        yield Told(epoch, frozenset([cause["kind"]]), names, is_first=number == 0 or each_has_an_epoch)


def infer(history: History, *, live: bool) -> Iterator[dict[str, Any]]:
    """The events that an observer makes of the history. live: whether it sees the group's state too."""
    names = {UUID(topic_id): name for topic_id, name in history.topic_ids.items()}
    observed = Observed(names, {history.group: history.session_ms})
    states = sorted(history.described, key=lambda each: each[0]) if live else []
    batch, position = None, 0
    for record in sorted(history.records, key=lambda each: each.offset):
        while states and states[0][0] <= record.at_ms:
            at_ms, group = states.pop(0)
            observed.described(history.group, at_ms, group["state"], frozenset(each[0] for each in group["members"]))
        if record.batch != batch:
            yield from map(fields_of, observed.end_batch())
        while position < record.offset:  # records of other groups, which the history left out
            observed.passed(position)
            position += 1
        batch, position = record.batch, record.offset + 1
        yield from map(
            fields_of, observed.add(record.offset, record.at_ms, record.key, record.value, Batch(record.batch))
        )
    yield from map(fields_of, observed.end_batch())


def score(history: History, *, live: bool) -> Score:
    """Infer the history's rebalances and compare each with what was told."""
    told = told_by_lines(history.lines) if history.server != "tenure" else told_by_events(history.events)
    seats = _instance_ids(history)
    told = [
        each._replace(members=each.members | {seats[name] for name in each.members & seats.keys()}) for each in told
    ]
    ends = [event for event in infer(history, live=live) if event["type"] == "rebalance_ended"]
    result = Score()
    covered: set[int] = set()
    begin = 0
    for event in ends:
        before, after = event["generation_before"], event["generation"]
        of_it = [each for each in told if before <= each.before < after]
        with_superseded = [each for each in told if begin <= each.before < after]
        covered.update(each.before for each in of_it)
        if event["outcome"] != "superseded":
            begin = after
        result.verdicts.append(
            Verdict(
                _verdict(event, of_it, with_superseded),
                event.get("causes_in_order", True),
                before,
                "; ".join(map(_told_text, of_it)),
                _event_text(event),
            )
        )
    last = max((event["generation"] for event in ends), default=0)
    result.verdicts += [
        Verdict("missing", False, each.before, _told_text(each), "")
        for each in told
        if each.is_first and each.before not in covered and each.before < last
    ]
    return result


def _instance_ids(history: History) -> dict[str, str]:
    """The instance id of each static member id: most lines have only one of them."""
    return {
        member.member_id: member.group_instance_id
        for record in history.records
        if record.value is not None and read_key(record.key).kind == GROUP_KIND
        for member in read_group(record.value)[1].members
        if member.group_instance_id is not None
    }


def _verdict(event: dict[str, Any], own: list[Told], told: list[Told]) -> str:
    causes = event["causes"]
    first = [each for each in own if each.is_first]
    if not first or not causes:
        return "wrong"
    if any(cause["kind"] == UNKNOWN for cause in causes):
        return UNKNOWN if all(_is_plain(c) or any(_may_be(c, each) for each in told) for c in causes) else "wrong"
    fits = all(_is_plain(cause) or any(_is(cause, each) for each in told) for cause in causes)
    is_first = any(_is(cause, each) for cause in causes for each in first)
    if event.get("causes_in_order", True):
        is_first = is_first and any(causes[0]["kind"] in each.kinds for each in first)
    return "right" if fits and is_first else "wrong"


def _is_plain(cause: dict[str, Any]) -> bool:
    """Whether a cause stands in the records: a new member, another subscription, or partitions that were given up."""
    return cause["kind"] in IN_THE_RECORD or cause.get("meaning") == "partitions_revoked"


def _same_member(cause: dict[str, Any], told: Told) -> bool:
    named = {*cause["member_ids"], *filter(None, (cause["group_instance_id"],))}
    return not named or not told.members or bool(named & told.members)


def _is(cause: dict[str, Any], told: Told) -> bool:
    return cause["kind"] in told.kinds and _same_member(cause, told)


def _may_be(cause: dict[str, Any], told: Told) -> bool:
    kinds = cause.get("possible") or ([] if cause["kind"] == UNKNOWN else [cause["kind"]])
    return (not kinds or bool(told.kinds & set(kinds))) and _same_member(cause, told)


def _told_text(told: Told) -> str:
    names = ",".join(sorted(each[:12] for each in told.members))
    return f"{'*' if told.is_first else ''}{'|'.join(sorted(told.kinds))} {names}"


def _event_text(event: dict[str, Any]) -> str:
    said = []
    for cause in event["causes"]:
        kinds = f"unknown({'|'.join(cause.get('possible', ()))})" if cause["kind"] == UNKNOWN else cause["kind"]
        said.append(f"{kinds} {','.join(each[:12] for each in cause['member_ids'])}")
    order = "" if event.get("causes_in_order", True) else " (order unknown)"
    return f"{event['generation_before']}->{event['generation']} {event['outcome']}: {'; '.join(said)}{order}"
