"""A member of the group that leases names, and the time until which its name can't go to another one.

The shell asks `due` for requests, sends them, and hands in the answers. A request has the time before it was sent, and
all arithmetic begins there. With session timeout S, and rebalance timeout R of three times S, the coordinator removes a
member at three moments only:

    S after the last heartbeat that it took, also while the group rebalances
    R after a rebalance began, if the member has not joined it
    R after it joined, if it has not sent SyncGroup

Both began after the last heartbeat with the answer NONE in a generation that the member has synced. So the name is safe
until the earlier one of

    S after the last heartbeat with the answer NONE or REBALANCE_IN_PROGRESS was sent
    R after the last one with NONE there, or the last SyncGroup, was sent

While JoinGroup waits for the other members, heartbeats go on.

House rule: pure. A claim goes out under the member id with which it was given, and never after a loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from coordinator.client.errors import error_name
from coordinator.seats.pool import Given, Row, Wish, assign
from schemas.errors import ErrorCode

BEATS = 10
"""Heartbeats in a session."""
REBALANCE_SESSIONS = 3
SESSION_MAX_S = 86_400
"""The rebalance timeout has to fit into a number of JoinGroup, 2^31 ms."""
PAUSE_S = 0.5
FINAL = frozenset(
    {
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
"""After these answers another try ends alike."""


class Join(NamedTuple):
    """JoinGroup."""

    sent: float
    member_id: str
    wish: Wish


class Sync(NamedTuple):
    """SyncGroup; given: assignments by member id, of the leader alone."""

    sent: float
    member_id: str
    generation: int
    given: Mapping[str, Given]


class Beat(NamedTuple):
    """Heartbeat."""

    sent: float
    member_id: str
    generation: int


Request = Join | Sync | Beat


class Joined(NamedTuple):
    """The answer to JoinGroup; wishes by member id, for the leader alone."""

    code: int
    member_id: str = ""
    generation: int = -1
    leader: str = ""
    wishes: Mapping[str, Wish] = {}


class Synced(NamedTuple):
    """The answer to SyncGroup."""

    code: int
    given: Given = Given.decode(b"")


class Beaten(NamedTuple):
    """The answer to Heartbeat."""

    code: int


Answer = Joined | Synced | Beaten


class Membership:
    """See the module.

    name, token: the name that it holds; "" without one. lost: why it lost its name, or can't get one; then it is over.
    has_asked: whether a generation has given it an answer. is_near: it waits for the name of its own earlier run.
    """

    def __init__(self, pool: str, identity: str, session_s: float) -> None:
        self.name, self.token, self.lost = "", 0, ""
        self.has_asked = self.is_near = False
        self.member_id = ""
        self._pool, self._identity, self._session_s = pool, identity, session_s
        self._generation, self._highest = -1, 0
        self._table: dict[str, Row] = {}
        self._has_synced = False
        """Whether it has the assignment of its generation. A coordinator removes who doesn't ask for it in R."""
        self._next: Sync | None = None
        """The SyncGroup of a generation that was joined."""
        self._is_out = True
        """Whether it has to join."""
        self._waits_until: float | None = None
        self._under_way: set[type[Request]] = set()
        self._join_at = self._beat_at = 0.0
        self._known_at = self._calm_at = 0.0
        """When the last heartbeat was sent that found a member; and that found no rebalance."""

    @property
    def until(self) -> float:
        """Until when nobody else can get the name."""
        return min(self._known_at + self._session_s, self._calm_at + REBALANCE_SESSIONS * self._session_s)

    def due(self, now: float) -> list[Request]:
        """The requests to send at this moment: of each kind one at a time."""
        if self.name and now >= self.until:
            self._lose("its lease was not renewed in time")
        if self.lost:
            return []
        found: list[Request] = []
        if self._next is not None:
            found.append(self._next._replace(sent=now))
            self._next = None
        if self._is_out and Join not in self._under_way and Sync not in self._under_way and now >= self._join_at:
            waits = self._waits_until is None or now < self._waits_until
            found.append(
                Join(now, self.member_id, Wish(self._identity, self._pool, self.name, self.token, waits, self._highest))
            )
        if self._generation >= 0 and Beat not in self._under_way and now >= self._beat_at:
            found.append(Beat(now, self.member_id, self._generation))
            self._beat_at = now + self._session_s / BEATS
        self._under_way.update(map(type, found))
        return found

    def answered(self, request: Request, answer: Answer | None, now: float, now_ms: int) -> None:
        """Take an answer; None: there was none. now_ms: the time of day, for tokens."""
        self._under_way.discard(type(request))
        if answer is None:
            if not isinstance(request, Beat):
                self._rejoin(now + PAUSE_S)
        elif answer.code in FINAL and not self.name:
            self.refuse(f"the coordinator refuses: {error_name(answer.code)}")
        elif isinstance(request, Join) and isinstance(answer, Joined):
            self._joined(answer, now, now_ms)
        elif isinstance(request, Sync) and isinstance(answer, Synced):
            self._synced(request, answer, now)
        elif request.member_id == self.member_id and isinstance(request, Beat):
            self._beaten(request, answer.code, now)

    def refuse(self, why: str) -> None:
        """The cluster refuses for good. A name that it holds is safe for its time."""
        if not self.name:
            self.lost = why

    def _joined(self, answer: Joined, now: float, now_ms: int) -> None:
        if answer.code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        elif answer.code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._removed(answer.code)
        elif answer.code:
            self._rejoin(now + PAUSE_S)
        else:
            self.member_id, self._generation, self._is_out = answer.member_id, answer.generation, False
            self._has_synced = False
            given: Mapping[str, Given] = {}
            if answer.leader == answer.member_id:
                given = assign(answer.wishes, self._table, answer.leader, now_ms)
            self._next = Sync(now, answer.member_id, answer.generation, given)

    def _synced(self, request: Sync, answer: Synced, now: float) -> None:
        if answer.code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}:
            self._removed(answer.code)
        elif answer.code:
            self._rejoin(now)
        else:
            given = answer.given
            if self.name and (self.name, self.token) != (given.name, given.token):
                self._lose("the group gave its name away")
                return
            self.name, self.token, self._highest = given.name, given.token, given.highest
            self._table = given.table or self._table
            self._known_at = self._calm_at = request.sent
            self._has_synced = True
            self.has_asked, self.is_near = True, given.is_near
            if given.is_near and self._waits_until is None:
                # By then the session of its earlier run is over, wherever it began.
                self._waits_until = now + 2 * self._session_s

    def _beaten(self, request: Beat, code: int, now: float) -> None:
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._removed(code)
        elif request.generation != self._generation:
            return
        elif code == ErrorCode.ILLEGAL_GENERATION and not self._is_out:
            self._removed(code)
        elif code in {ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS}:
            self._known_at = max(self._known_at, request.sent)
            if code == ErrorCode.NONE and self._has_synced:
                self._calm_at = max(self._calm_at, request.sent)
            elif Sync not in self._under_way:
                self._is_out = True
            if self.is_near and self._waits_until is not None and now >= self._waits_until:
                self._is_out = True
        else:
            self._beat_at = min(self._beat_at, now + PAUSE_S)

    def _rejoin(self, at: float) -> None:
        self._is_out, self._join_at = True, at

    def _removed(self, code: int) -> None:
        """The group has no such member."""
        if self.name:
            self._lose(f"the group removed this member: {error_name(code)}")
        self.member_id, self._generation, self._next = "", -1, None
        self._is_out = True

    def _lose(self, why: str) -> None:
        self.lost, self.name, self.token = why, "", 0
