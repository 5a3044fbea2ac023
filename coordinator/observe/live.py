"""Asks the observed cluster for the state of its groups, at a moderate pace.

Every LOOK_S: which groups are in a rebalance (ListGroups with states, one small answer for each node), then
descriptions of at most DESCRIBED_AT_ONCE groups. First those of which the log has news, then those in a rebalance, then
all others in turn, as long as at least half of the budget is left for the page. Every LIST_S or more: the list of all
groups.

A cluster that doesn't answer is asked again at the next look; the follower says that it is away.

House rule: nothing here makes events; the follower gets what was seen, with the time at which the question was sent.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from coordinator.client.client import COORDINATOR_MOVED, Client
from coordinator.client.errors import ClientError, Refused
from coordinator.client.examination import wall_ms
from coordinator.client.groups import ListedGroup, describe_groups, list_groups
from coordinator.loop.lines import Lines
from coordinator.observe.asking import Asking
from coordinator.story.described import SHARE, Group
from coordinator.story.entries import REBALANCING
from coordinator.story.schema import STREAMS
from protocol.errors import ProtocolError
from schemas.errors import ErrorCode

LOOK_S = 1.0

LIST_S, LIST_MAX_S = 5.0, 30.0
"""The pause between two lists of all groups. The list alone finds a group without events, such as a share group. A
stall in it has its finding 20 s later (tracks.STUCK_MS): within 30 s, as in other groups."""

LISTED_A_S = 500
"""Groups in a second: the list of more than 2,500 has a longer pause. A group costs 1.5 us, so lists of up to 15,000
groups take at most 0.1 % of a core."""

DESCRIBED_AT_ONCE = 50
"""Groups in a look. So 10,000 quiet groups have their turn within some minutes."""

NEWS_MAX = 10_000
"""Groups with news that wait for their description; of more, the first ones have their turn with all others."""

SHARE_KEPT = 0.5
"""The part of the budget that quiet groups leave for the page."""

KNOWN_BY_NEWS = frozenset({SHARE, STREAMS})
"""Types of groups of which a look in a rebalance tells no more than the log does. They have their turn like others."""


class Look(NamedTuple):
    """A group as it was described. sent_s: when it was asked, on a clock that never jumps; at_ms: in Unix time."""

    sent_s: float
    at_ms: int
    group: Group


class Live:
    """See the module. take: gets what was seen, on the thread of `run`."""

    def __init__(
        self,
        asking: Asking,
        lines: Lines,
        take: Callable[[list[Look]], None],
        clock: Callable[[], float] = time.monotonic,
        wall_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self._asking = asking
        self._lines = lines
        self._take = take
        self._clock = clock
        self._wall_ms = wall_ms
        self._lock = threading.Lock()
        self._news: dict[str, None] = {}
        self._turn: deque[str] = deque()
        self._listed_s: float | None = None
        self._filters = True
        self._said = ""
        self.listed: dict[str, ListedGroup] = {}
        self.groups: Mapping[str, Group] = {}
        """The groups as they were described last. A look makes another mapping."""

    @property
    def states(self) -> Counter[tuple[str, str]]:
        """How many groups have which type and state; the type is empty if the cluster doesn't say."""
        return Counter((group.group_type.lower(), group.state) for group in list(self.listed.values()))

    def changed(self, group_ids: Iterable[str]) -> None:
        """The log has news of these groups. For any thread."""
        with self._lock:
            self._news |= dict.fromkeys(group_ids)
            for group_id in list(islice(self._news, max(len(self._news) - NEWS_MAX, 0))):
                del self._news[group_id]

    def run(self, stopping: threading.Event) -> None:
        """Look until `stopping` is set."""
        with self._asking.open(anew=True) as client:
            while not stopping.is_set():
                began = self._clock()
                try:
                    self.look(client)
                    self._said = ""
                except (Refused, ProtocolError) as error:
                    self._say(str(error))
                except ClientError:
                    pass
                stopping.wait(max(LOOK_S - (self._clock() - began), LOOK_S / 10))

    def look(self, client: Client) -> None:
        """Look once. Raises ClientError."""
        pause_s = min(max(LIST_S, len(self.listed) / LISTED_A_S), LIST_MAX_S)
        if self._listed_s is None or self._clock() - self._listed_s >= pause_s:
            self._list(client)
        self._describe(client, self._rebalancing(client))

    def _list(self, client: Client) -> None:
        self.listed = {group.group_id: group for group in list_groups(client)}
        self._listed_s = self._clock()
        self._turn = deque(each for each in self._turn if each in self.listed)
        self._turn.extend(self.listed.keys() - set(self._turn))
        self.groups = {name: group for name, group in self.groups.items() if name in self.listed}

    def _rebalancing(self, client: Client) -> list[str]:
        """The groups in a rebalance. A cluster before Kafka 2.6 names them in the list of all groups only."""
        if self._filters:
            try:
                found = list_groups(client, sorted(REBALANCING))
            except Refused as refused:
                if refused.error_code != ErrorCode.UNSUPPORTED_VERSION:
                    raise
                self._filters = False
            else:
                self.listed |= {group.group_id: group for group in found}
                return [group.group_id for group in found if group.group_type.lower() not in KNOWN_BY_NEWS]
        return [group.group_id for group in self.listed.values() if group.state in REBALANCING]

    def _describe(self, client: Client, rebalancing: Iterable[str]) -> None:
        with self._lock:
            wanted = dict.fromkeys(islice(self._news, DESCRIBED_AT_ONCE))
            for group_id in wanted:
                del self._news[group_id]
        wanted |= dict.fromkeys(islice(rebalancing, DESCRIBED_AT_ONCE - len(wanted)))
        if self._asking.budget.share_left >= SHARE_KEPT:
            for _ in range(min(DESCRIBED_AT_ONCE - len(wanted), len(self._turn))):
                wanted[self._turn[0]] = None
                self._turn.rotate(-1)
        if not wanted:
            return
        sent_s, at_ms = self._clock(), self._wall_ms()
        try:
            found = describe_groups(client, wanted)
        except ClientError:
            self.changed(wanted)
            raise
        self.changed(
            group_id
            for group_id, answer in found.items()
            if isinstance(answer, Refused) and answer.error_code in COORDINATOR_MOVED
        )
        groups = [group for group in found.values() if isinstance(group, Group)]
        self.groups = {**self.groups, **{group.group_id: group for group in groups}}
        for group in groups:
            kind, name = group.group_type, group.group_id
            self.listed[name] = ListedGroup(name, kind, group.protocol_type, group.state)
        self._take([Look(sent_s, at_ms, group) for group in groups])

    def _say(self, problem: str) -> None:
        if problem != self._said:
            self._said = problem
            self._lines.warn("state_unknown", f"The cluster doesn't describe its groups: {problem}", reason=problem)
