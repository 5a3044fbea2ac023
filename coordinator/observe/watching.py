"""Looks at how far groups come, all the time, and tells when a finding about progress begins and ends.

Groups have their turn, AT_ONCE at a time, with the descriptions that live state has (live.py). So a look costs one
OffsetFetch for each coordinator, one or two ListOffsets for each leader, and a few more now and then. All groups have
one look every LOOK_S, if that costs less than CPU_SHARE of a core and leaves half of the budget of requests; else a
round takes longer, up to ROUND_MAX_S. Groups of which another look may show more come first.

The page looks at the same memory (`progress`), so it knows at once what the looks showed before it was opened.

House rule: coordinator.story decides what is a finding.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from math import inf

from msgspec import UNSET

from coordinator.client.client import Client
from coordinator.client.errors import ClientError
from coordinator.client.examination import LOOKING, ask_ages, look, wall_ms
from coordinator.client.groups import topics_of
from coordinator.client.retention import Retention
from coordinator.client.topics import Leaders, partition_owners
from coordinator.client.transactions import holding_transactions
from coordinator.observe.asking import Asking
from coordinator.observe.follower import Taker
from coordinator.observe.live import SHARE_KEPT, Live
from coordinator.story.consumer_diagnosis import NOT_READY, not_ready
from coordinator.story.described import Group
from coordinator.story.diagnosis import AWAITED_MS, OVER_MS, Case, Finding, Severity
from coordinator.story.entries import Timeline
from coordinator.story.events import FindingBegan, FindingEnded, RebalanceEvent
from coordinator.story.group_diagnosis import progress_findings_now
from coordinator.story.lag_time import LagTimes
from coordinator.story.offsets import HoldingTransaction
from coordinator.story.progress import FORGOTTEN_MS, GroupProgress, Progress
from protocol.errors import ProtocolError

LOOK_S = 2.0
"""A partition that stands still is found 20 s after its member's last commit, and two looks (tracks.STUCK_MS)."""

AT_ONCE = 100
"""Groups of one look; at most half of them out of turn."""

CPU_SHARE = 0.001
"""The most of a core that looks take on average, unless a round would take longer than ROUND_MAX_S."""

FREE_S = 0.004
"""CPU time of a round's last look that doesn't count: a small cluster has its look every LOOK_S, on a slow machine too.
A round takes LOOK_S or longer, so this adds 0.2 % of a core at most."""

ROUND_MAX_S = 0.8 * FORGOTTEN_MS / 1_000
"""A group that has its turn later is forgotten before, and no look would show that it stands still."""

HELD_S = 10.0
"""Between two questions about transactions that hold back offsets: one request for each node, if there are none."""

EVENTS_KEPT, QUIET_KEPT = 100, 3
"""The newest events of each group that findings look at: of the last OVER_MS, and of a quiet group."""

PAUSE_S = 0.1

WORST = list(Severity)

Key = tuple[str, str | None]
"""A finding of a group: its kind, and the member that it is about."""


class Watching:
    """See the module. live: has the descriptions. takers: get the events. every_s: between two looks at a group.

    ready: set once the history was read. cpu: the CPU time of the calling thread, in seconds. found: the present
    findings, by group. kinds: those of any finding so far. lag_times: of the groups; writers hold LOOKING.
    round_s: how long the newest round took.
    """

    def __init__(
        self,
        asking: Asking,
        live: Live,
        takers: Sequence[Taker],
        ready: threading.Event,
        every_s: float = LOOK_S,
        clock: Callable[[], float] = time.monotonic,
        wall_ms: Callable[[], int] = wall_ms,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self._asking = asking
        self._live = live
        self._takers = takers
        self._ready = ready
        self._every_s = every_s
        self._clock = clock
        self._wall_ms = wall_ms
        self._cpu = cpu
        self._lock = threading.Lock()
        self._events: dict[str, deque[RebalanceEvent]] = {}
        self._leaders, self._retention = Leaders(clock), Retention(clock, wall_ms)
        self._turn: dict[str, None] = {}
        self._suspects: dict[str, float] = {}
        """Groups of which another look may show more, and when the last one was."""
        self._began_s = clock()
        self._held: Mapping[str, Sequence[HoldingTransaction]] = {}
        self._held_s = -inf
        """The transactions that hold back offsets of groups, and when they were asked for."""
        self.progress = Progress()
        self.lag_times = LagTimes()
        self.found: dict[str, dict[Key, FindingBegan]] = {}
        self.kinds: set[str] = set()
        self.round_s = 0.0

    def put(self, events: Iterable[RebalanceEvent]) -> None:
        """Take events of the log. For any thread."""
        with self._lock:
            for event in events:
                if event.group is not None:
                    self._events.setdefault(event.group, deque(maxlen=EVENTS_KEPT)).append(event)

    def run(self, stopping: threading.Event) -> None:
        """Look until `stopping` is set."""
        with self._asking.open(anew=True) as client:
            while not stopping.is_set():
                began_s, cpu_s = self._clock(), self._cpu()
                try:
                    is_over = self._ready.is_set() and self.look(client)
                except (ClientError, ProtocolError):  # the follower says that the cluster is away
                    is_over = True
                rest_s = self._began_s + self._every_s - self._clock() if is_over else PAUSE_S
                longest_s = ROUND_MAX_S * (AT_ONCE // 2) / max(len(self._live.groups), AT_ONCE // 2)
                counted_s = self._cpu() - cpu_s - (FREE_S if is_over else 0)
                shared_s = min(counted_s / CPU_SHARE, longest_s)
                stopping.wait(max(rest_s, began_s + shared_s - self._clock(), PAUSE_S))

    def look(self, client: Client) -> bool:
        """Look at the next groups; returns whether all had their turn. Raises ClientError."""
        groups = self._live.groups
        if not self._turn:
            self._begin(groups)
        if self._asking.budget.share_left < SHARE_KEPT:
            return False
        now_s, now_ms = self._clock(), self._wall_ms()
        if now_s - self._held_s >= HELD_S:
            before_ms = now_ms - AWAITED_MS  # else a busy cluster has some all the time
            owners = partition_owners(client)
            self._held, self._held_s = holding_transactions(client, groups, owners, before_ms), now_s
        due = (name for name, at_s in self._suspects.items() if now_s - at_s >= self._every_s)
        wanted = dict.fromkeys(islice(due, AT_ONCE // 2))
        wanted |= dict.fromkeys(islice(self._turn, AT_ONCE - len(wanted)))
        for name in wanted:
            self._turn.pop(name, None)
        some = [group for name in wanted if (group := groups.get(name)) is not None]
        counts = self._leaders.counts(client, topics_of(some))
        looks = look(client, some, counts, self.progress, now_ms, self._leaders, self._retention)
        for name, taken in looks.items():
            seen = taken.progress
            with LOOKING:
                self.lag_times.take(name, seen)
            self._settle(groups[name], seen, counts, now_ms)
            self._suspects.pop(name, None)
            if name in self.found or seen.is_suspect:
                self._suspects[name] = now_s
        if self._asking.budget.share_left >= SHARE_KEPT:
            ask_ages(client, self.lag_times, looks, self._leaders)
        return not self._turn

    def _begin(self, groups: Mapping[str, Group]) -> None:
        """Begin a round."""
        now_s = self._clock()
        self.round_s, self._began_s = now_s - self._began_s, now_s
        self._turn = dict.fromkeys(groups)
        not_ready_ones = {name for name, each in list(self._live.listed.items()) if each.state == NOT_READY}
        with LOOKING:
            self.lag_times.forget(groups)
        for name in (self.found.keys() | not_ready_ones) - groups.keys():
            self._tell(name, [not_ready(name)] if name in not_ready_ones else [], self._wall_ms())
        with self._lock:
            over_ms = self._wall_ms() - OVER_MS
            # A group that is not described yet may have events: of one that is gone, they get old.
            self._events = {
                name: told for name, told in self._events.items() if name in groups or told[-1].at_ms >= over_ms
            }
            for told in self._events.values():
                while len(told) > QUIET_KEPT and told[0].at_ms < over_ms:
                    told.popleft()
        self._suspects = {name: at_s for name, at_s in self._suspects.items() if name in groups}

    def _settle(self, group: Group, seen: GroupProgress, counts: Mapping[str, int], now_ms: int) -> None:
        """Compare the findings about a group with those of its last look."""
        name = group.group_id
        with self._lock:
            told = list(self._events.get(name, ()))
        entries = Timeline(name).add_all(told).entries
        held = self._held.get(name, ())
        self._tell(name, progress_findings_now(Case(name, entries, group, counts, now_ms, seen, held)), now_ms)

    def _tell(self, group_id: str, findings: Iterable[Finding], now_ms: int) -> None:
        former, present = self.found.get(group_id, {}), dict[Key, FindingBegan]()
        news: list[RebalanceEvent] = []
        with self._lock:
            newest = self._events.get(group_id)
            generation = getattr(newest[-1], "generation", -1) if newest else -1
        for finding in findings:
            member_id = None if finding.member_id is UNSET else finding.member_id
            key = finding.kind, member_id
            began = former.get(key)
            if began is None or WORST.index(finding.severity) < WORST.index(Severity(began.severity)):
                began = FindingBegan(
                    at_ms=now_ms,
                    group=group_id,
                    generation=generation,
                    inferred=True,
                    kind=finding.kind,
                    severity=finding.severity,
                    found=finding.found,
                    advice=finding.advice,
                    since_ms=None if finding.since_ms is UNSET else finding.since_ms,
                    member_id=member_id,
                )
                news.append(began)
            present[key] = began
            self.kinds.add(finding.kind)
        for key, began in former.items():
            if key not in present:
                news.append(
                    FindingEnded(
                        at_ms=now_ms,
                        group=group_id,
                        generation=generation,
                        inferred=True,
                        kind=began.kind,
                        member_id=began.member_id,
                        began_ms=began.at_ms,
                    )
                )
        if present:
            self.found[group_id] = present
        else:
            self.found.pop(group_id, None)
        for taker in self._takers if news else ():
            taker(news)

    def counts(self) -> Counter[tuple[str, str]]:
        """How many findings there are, by group and kind. For any thread."""
        return Counter((group, kind) for group, present in list(self.found.items()) for kind, _ in present)
