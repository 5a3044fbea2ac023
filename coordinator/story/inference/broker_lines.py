"""Reads what a broker of Apache Kafka logs about groups, and makes causes of it, in our words (CauseKind).

    lines = BrokerLines()
    for line in log:
        for told in lines.add(line):
            ...     # a cause of the rebalance that ends told.generation_before

The lines are those of 3.x (GroupCoordinator) and of 4.x (GroupMetadataManager), as both print them by default, at INFO:

    classic     "Preparing to rebalance group G ... with old generation N ... (reason: R)" begins a rebalance and has
                its cause. Until "Stabilized group G" or "Group G ... is now empty", lines about members that come and
                go are further causes.
    consumer    "[GroupId G] Bumped group epoch to N" ends the epoch before. Its causes are the lines of the same
                request directly before it. Without any, a subscription or the topics changed: at DEBUG, Kafka says
                which.

A line in which two causes look alike has both kinds: "Updating metadata for member" stands for another subscription and
for a member that rejoins because it gave up partitions.

House rule: a line that fits no form, or is longer than LINE_MAX, says nothing. A line is read once, in the order of
the log.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from coordinator.group.causes import CauseKind, Meaning, meaning_of
from coordinator.story.inference.knowledge import Told

GROUPS_MAX = 100_000
"""Groups about which a reader remembers something. The one that was named longest ago is forgotten first."""

LINE_MAX = 2_000
"""Characters of a line that is read. Clients choose group ids, member ids and reasons, of 32 kB each; the forms would
take minutes for a long line that repeats their words."""

FACTS_MAX = 100
"""Lines before a group epoch that a reader keeps; the cause is in the last ones."""

REQUEST_MS = 1_000
"""Lines of one request are written within that time."""

NOT_PROVIDED = "not provided"
"""Kafka's text for a client that gave no reason."""

_JOINED = (CauseKind.MEMBER_JOINED,)
_LEFT = (CauseKind.MEMBER_LEFT,)
_EXPIRED = (CauseKind.MEMBER_EXPIRED,)
"""Also of members that were dropped because they didn't join in time."""


class _Fact(NamedTuple):
    """The meaning of a line, as far as it goes into a `Told`."""

    kinds: tuple[CauseKind, ...]
    member_ids: tuple[str, ...] = ()
    group_instance_id: str | None = None
    reason: str = ""

    def told(self, at_ms: int, group: str, generation_before: int, *, is_first: bool) -> Told:
        """A cause of a rebalance."""
        kinds = tuple(kind.value for kind in self.kinds)
        return Told(at_ms, group, generation_before, kinds, *self[1:], is_first=is_first)


@dataclass(slots=True, eq=False, repr=False)
class _Heard:
    """The knowledge about a group from the lines so far.

    generation: the one that a rebalance ends now, None if none is under way. emptied: the one whose end left no member:
    3.x writes of the last member that left only after that. told: kinds and members of the causes.
    facts: lines whose rebalance, or group epoch, comes after them. heard_ms: when the newest of them came.
    """

    generation: int | None = None
    emptied: int | None = None
    told: set[tuple[CauseKind, str]] = field(default_factory=set)
    facts: list[_Fact] = field(default_factory=list)
    heard_ms: int = -1


_STAMP = re.compile(r"\[?(?:(\d{4})-(\d\d)-(\d\d)[ T])?(\d\d):(\d\d):(\d\d)[,.](\d{3})\]?")

_PREPARING = re.compile(
    r"Preparing to rebalance group (?P<group>.+) in state \S+ with old generation (?P<generation>-?\d+) "
    r"(?:\(__consumer_offsets-\d+\) )?\(reason: (?P<reason>.*?)\)\.?(?: \((?:org\.apache\.)?kafka\.\S+\))?$"
)
_ENDED = re.compile(
    r"(?:Stabilized group (?P<stable>.+) generation \d+ |Group (?P<empty>.+) with generation \d+ is now empty"
    r"|Group (?P<dead>.+) is dead, skipping)"
)
_BUMPED = re.compile(r"\[GroupId (?P<group>.+?)\] Bumped group epoch to (?P<epoch>\d+)")

_INSTANCE = r"(?:None|null|Some\((?P<some>.*?)\)|(?P<instance>.*?))"
_REASONS: tuple[tuple[re.Pattern[str], tuple[CauseKind, ...]], ...] = tuple(
    (re.compile(pattern), kinds)
    for pattern, kinds in (
        (rf"Adding new member (?P<member>\S+) with group instance id {_INSTANCE};", _JOINED),
        (
            rf"Updating metadata for static member (?P<member>\S+) with instance id {_INSTANCE};",
            (CauseKind.STATIC_MEMBER_REPLACED,),
        ),
        (
            r"Updating metadata for member (?P<member>\S+) during",
            (CauseKind.METADATA_CHANGED, CauseKind.MEMBER_REJOINED),
        ),
        (
            r"Leader (?P<member>\S+) re-joining group during",
            (CauseKind.LEADER_REJOINED, CauseKind.METADATA_CHANGED),
        ),
        (r"Member (?P<member>\S+) (?:is )?joining group during", (CauseKind.MEMBER_REJOINED,)),
        (
            (
                rf"Group's selectedProtocol will change because static member (?P<member>\S+) with instance id "
                rf"{_INSTANCE} joined with change of protocol"
            ),
            (CauseKind.PROTOCOL_CHANGED,),
        ),
        (r"Removing member (?P<member>\S+) on LeaveGroup", _LEFT),
        (r"removing member (?P<member>\S+) on heartbeat expiration", _EXPIRED),
        (
            r"Removing (?:\w*Set)?[(\[{](?P<members>[^)\]}]*)[)\]}] on pending sync request expiration",
            (CauseKind.SYNC_TIMED_OUT,),
        ),
        (r"Freshly-loaded group .*over capacity", (CauseKind.GROUP_OVER_CAPACITY,)),
        (r"explicit `LeaveGroup` request for \((?P<members>.*)\) members", _LEFT),
    )
)
_CLIENT_REASON = re.compile(r"; client reason: (?P<said>.*)$", re.DOTALL)
_CLIENT_SAYS = r"; client reason: (?P<said>.*?)(?: \((?:org\.apache\.)?kafka\.\S+\))?$"

_CLASSIC: tuple[tuple[re.Pattern[str], tuple[CauseKind, ...]], ...] = tuple(
    (re.compile(pattern), kinds)
    for pattern, kinds in (
        (
            (
                r"Member MemberMetadata\(memberId=(?P<member>[^,]+), groupInstanceId=(?:None|Some\((?P<some>.*?)\)), "
                rf".*\) has left group (?P<group>.+) through explicit `LeaveGroup`{_CLIENT_SAYS}"
            ),
            _LEFT,
        ),
        (
            r"\[Group (?P<group>.+?)\] Member (?P<member>\S+) has left group through explicit `LeaveGroup` request"
            + _CLIENT_SAYS,
            _LEFT,
        ),
        (r"Member (?P<member>\S+) in group (?P<group>.+) has failed, removing it", _EXPIRED),
        (
            r"Group (?P<group>.+) removed dynamic members who haven't joined: (?:\w*Set)?[(\[{](?P<members>[^)\]}]*)",
            _EXPIRED,
        ),
        (
            (
                r"Dynamic [mM]ember with unknown member id joins group (?P<group>.+?) in (?:\w+ state|state \w+)\. "
                r"Created a new member id (?P<member>\S+)"
            ),
            _JOINED,
        ),
        (
            r"Pending dynamic member with id (?P<member>\S+) joins group (?P<group>.+?) in \w+ state\. Adding to the",
            _JOINED,
        ),
        (
            (
                r"Static member with groupInstanceId=(?P<instance>.*) and unknown member id joins group (?P<group>.+) "
                r"in \w+ state\. Created a new member id (?P<member>\S+)"
            ),
            _JOINED,
        ),
        (
            (
                r"Static member with groupInstanceId=(?P<instance>.*) and unknown member id joins group (?P<group>.+) "
                r"in \w+ state\. Replacing previously mapped member (?P<member>\S+)"
            ),
            (CauseKind.STATIC_MEMBER_REPLACED,),
        ),
    )
)

_CONSUMER: tuple[tuple[re.Pattern[str], tuple[CauseKind, ...]], ...] = tuple(
    (re.compile(rf"\[Group(?:Id)? (?P<group>.+?)\] {pattern}"), kinds)
    for pattern, kinds in (
        (r"Member (?P<member>\S+) joins the consumer group using", _JOINED),
        (r"Static member (?P<member>\S+) with instance id (?P<instance>.*) joins the consumer group using", _JOINED),
        (r"Member (?P<member>\S+) left the consumer group", _LEFT),
        (
            (
                r"Static [mM]ember (?P<member>\S+) with instance id (?P<instance>.*)(?<! temporarily) "
                r"left the consumer group"
            ),
            _LEFT,
        ),
        (
            r"(?:Dynamic|Static) [mM]ember (?P<member>\S*)(?: with instance id (?P<instance>.*))? has left group "
            r"through explicit `LeaveGroup` request" + _CLIENT_SAYS,
            _LEFT,
        ),
        (r"Member (?P<member>\S+) fenced from the group because the member session expired", _EXPIRED),
        (
            r"Member (?P<member>\S+) fenced from the group because it failed to transition from epoch",
            (CauseKind.REVOCATION_TIMED_OUT,),
        ),
        (r"Member (?P<member>\S+) updated its subscribed (?:topics|regex) to", (CauseKind.SUBSCRIPTION_CHANGED,)),
        (
            r"Received updated regular expressions based on the context of member (?P<member>\S+):",
            (CauseKind.REGEX_RESOLVED,),
        ),
        (r"Scanned \d+ topics to refresh regular expressions", ()),
        (r"Computed new metadata hash", (CauseKind.TOPICS_CHANGED,)),
        (r"Computed new subscription metadata", (CauseKind.TOPICS_CHANGED,)),
    )
)
_BESIDE = frozenset({CauseKind.SUBSCRIPTION_CHANGED, CauseKind.TOPICS_CHANGED})
"""Kinds of a line that stands beside one about a member that came or went, and is then no cause of its own."""

_GONE = frozenset({CauseKind.MEMBER_LEFT, CauseKind.MEMBER_REMOVED})

_UNTOLD = (CauseKind.SUBSCRIPTION_CHANGED, CauseKind.TOPICS_CHANGED, CauseKind.REGEX_RESOLVED)


class BrokerLines:
    """Reads the lines of one broker's log. Its times count as UTC: `Told.is_of_time` knows of other zones."""

    def __init__(self) -> None:
        self._groups: dict[str, _Heard] = {}

    def add(self, line: str) -> list[Told]:
        """Take a line; the causes that it tells."""
        if "roup" not in line or len(line) > LINE_MAX:
            return []
        line = line.rstrip()
        if (found := _PREPARING.search(line)) is not None:
            return self._prepares(self._at_ms(line), found)
        if (found := _BUMPED.search(line)) is not None:
            return self._bumped(self._at_ms(line), found)
        if (found := _ENDED.search(line)) is not None:
            heard = self._group(found["stable"] or found["empty"] or found["dead"])
            heard.emptied = heard.generation if found["empty"] else None
            heard.generation = None
            heard.facts.clear()
            return []
        for forms, take in ((_CONSUMER, self._consumer), (_CLASSIC, self._classic)):
            for form, kinds in forms:
                if (found := form.search(line)) is not None:
                    return take(self._at_ms(line), found["group"], _fact(found, kinds))
        return []

    def _group(self, group: str) -> _Heard:
        """The group, as the newest one."""
        heard = self._groups.pop(group, None) or _Heard()
        self._groups[group] = heard
        if len(self._groups) > GROUPS_MAX:
            del self._groups[next(iter(self._groups))]
        return heard

    def _prepares(self, at_ms: int, found: re.Match[str]) -> list[Told]:
        heard = self._group(found["group"])
        heard.generation = int(found["generation"])
        heard.emptied = None
        heard.told.clear()
        facts, heard.facts = heard.facts, []
        fact = _reason(found["reason"])
        if fact is None:
            return []
        # Of members that leave, 4.x has the client's reason in a line before this one.
        # It names no member that was removed by its instance id alone.
        is_unnamed = fact.kinds == _LEFT and not fact.member_ids
        said = [each for each in facts if is_unnamed or set(each.member_ids) & set(fact.member_ids)]
        if said and not fact.reason:
            named = tuple(name for each in said for name in each.member_ids) if is_unnamed else fact.member_ids
            fact = said[0]._replace(member_ids=named)
        return self._tell(at_ms, found["group"], heard.generation, heard, fact, is_first=True)

    def _classic(self, at_ms: int, group: str, fact: _Fact) -> list[Told]:
        heard = self._group(group)
        if heard.generation is not None:
            return self._tell(at_ms, group, heard.generation, heard, fact)
        if heard.emptied is not None and CauseKind.MEMBER_JOINED not in fact.kinds:
            return self._tell(at_ms, group, heard.emptied, heard, fact)
        if CauseKind.MEMBER_JOINED not in fact.kinds:
            heard.facts = [*heard.facts[1 - FACTS_MAX :], fact]
        return []

    @staticmethod
    def _tell(
        at_ms: int, group: str, generation: int, heard: _Heard, fact: _Fact, *, is_first: bool = False
    ) -> list[Told]:
        """A cause of the rebalance that ends a generation, unless an earlier line had it already."""
        same = {(kind, member_id) for kind in fact.kinds for member_id in fact.member_ids}
        if same & heard.told:
            return []
        heard.told |= same
        return [fact.told(at_ms, group, generation, is_first=is_first)]

    def _consumer(self, at_ms: int, group: str, fact: _Fact) -> list[Told]:
        """A line of a request that may raise the group epoch. One LeaveGroup may have a line for each of its members.

        A request that is repeated because its answer was lost has a line, and raises nothing. Nor does a member that
        joins with a regular expression, until the expression is resolved; then another request raises the epoch.
        """
        heard = self._group(group)
        if not fact.kinds:
            heard.facts = []
            return []
        is_same = _BESIDE & set(fact.kinds) or all(_GONE & set(each.kinds) for each in (fact, *heard.facts))
        heard.facts = [*(heard.facts[1 - FACTS_MAX :] if is_same else ()), fact]
        heard.heard_ms = at_ms
        return []

    def _bumped(self, at_ms: int, found: re.Match[str]) -> list[Told]:
        heard = self._group(found["group"])
        facts, heard.facts = heard.facts, []
        if at_ms - heard.heard_ms > REQUEST_MS:
            facts = []
        causes = [fact for fact in facts if not _BESIDE & set(fact.kinds)]
        if not causes:
            changed = [fact for fact in facts if CauseKind.SUBSCRIPTION_CHANGED in fact.kinds]
            causes = changed or facts[-1:] or [_Fact(_UNTOLD)]
        epoch_before = int(found["epoch"]) - 1
        return [
            fact.told(at_ms, found["group"], epoch_before, is_first=number == 0) for number, fact in enumerate(causes)
        ]

    @staticmethod
    def _at_ms(line: str) -> int:
        """The time of a line; -1 if it has no date."""
        found = _STAMP.search(line)
        if found is None or found[1] is None:
            return -1
        try:
            moment = datetime(*(int(part) for part in found.groups()[:-1]), int(found[7]) * 1_000, tzinfo=UTC)  # type: ignore[arg-type,misc]
        except ValueError:
            return -1
        return round(moment.timestamp() * 1_000)


def _reason(text: str) -> _Fact | None:
    """The causes in the reason of a rebalance."""
    for form, kinds in _REASONS:
        if (found := form.search(text)) is not None:
            said = _CLIENT_REASON.search(text)
            return _fact(found, kinds, said["said"] if said is not None else "")
    return None


def _fact(found: re.Match[str], kinds: tuple[CauseKind, ...], said: str = "") -> _Fact:
    """The meaning of a line, in our words."""
    named = found.groupdict()
    members = named.get("members")
    member_ids = (
        tuple(each.strip() for each in members.split(",") if each.strip())
        if members is not None
        else tuple(filter(None, (named.get("member"),)))
    )
    said = named.get("said") or said
    reason = "" if said == NOT_PROVIDED else said
    if kinds == _LEFT and meaning_of(reason) is Meaning.REMOVED_BY_ADMIN:
        kinds = (CauseKind.MEMBER_REMOVED,)
    return _Fact(
        kinds, tuple(each.rstrip(".") for each in member_ids), named.get("instance") or named.get("some"), reason
    )
