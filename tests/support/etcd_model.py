"""A model of an etcd cluster in memory: deterministic under one seed, in virtual time, with every fault at hand.

    time = Timeline(seed=1)
    etcd = EtcdModel(time, members=3)
    port = etcd.port(time.process("node 0"))         # coordinator.log.cluster.port.Port
    port.txn(...); time.run(100)

What it takes from etcd. One store for all (`etcd_store`), which changes only while a majority of members runs and has
a leader; a new leader is elected 1 to 2 s after the former one is gone. Leases live at the leader: they end between
TTL and TTL + 0.5 s after their last renewal, and each new leader gives them their whole TTL again. A watch hangs on
one member, which may be late, and tells all that happened in order; a late one may get several answers whose revision
is beyond their last event, as from etcd.

What it takes from the network. Each request is one try of at most TRY_MS on the port's endpoint; after a failed try
the port takes the next endpoint. **A try that was given up may be applied all the same, seconds later**: its request
lies in a frozen member, or in a network that was cut, or waits for a majority.

Faults: `kill`, `freeze`, `isolate` a member and `heal` it; `cut` a process off from a member; `limit`
of the store (`etcd.store.limit`); `slow`: how often a step takes long.

House rule: whatever an answer says was so at one moment between request and answer, as etcd promises.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any

from coordinator.log.cluster.port import (
    Compacted,
    Done,
    Lost,
    OnEnd,
    OnEvents,
    Page,
    Rejected,
    Status,
    Txn,
    TxnResult,
)
from tests.support.etcd_store import NOT_FOUND, Store
from tests.support.virtual_time import Process, Timeline

TRY_MS = 1_000
"""How long one try of a port may take."""

TTL_MIN_S = 2
"""etcd grants no shorter lease with its default election timeout."""

SHORT_MS = (0, 0, 1, 1, 2, 3)
"""Of steps that take no long time, each as likely as the others."""

ELECTION_MS = 1_000
LEASES_LOOKED_AT_MS = 500
WATCH_CUT_MS = 4_000
"""A port notices within this time that nothing comes through a watch any more."""

NOTICED_SHARE = 0.7
"""How many of the watches on a silent member end in time; the others wait until it is back."""

WATCH_REVISIONS_MAX = 3
"""Most revisions in one answer to a late watch (etcd: 1,000)."""


class State(Enum):
    """Of a member."""

    RUNS = "runs"
    DEAD = "dead"
    FROZEN = "frozen"
    ISOLATED = "isolated"
    """It runs, and clients reach it; other members don't."""


class Member:
    """A member.

    queue: what came while it was frozen. watches: those that hang on it. led: the ends of leases, as it knew them when
    it froze as the leader.
    """

    def __init__(self, index: int) -> None:
        self.index = index
        self.state = State.RUNS
        self.queue: list[Callable[[], None]] = []
        self.watches: list[Watch] = []
        self.led: dict[int, int] = {}


class EtcdModel:
    """See the module.

    slow: the share of steps that take long, up to `slow_ms`. late_share: how many of the requests that were given up
    are applied all the same, if that is possible. leader: None while there is none. on_applied: called after each
    request that may have changed something. old_leader_revokes: a leader that was frozen ends leases when it wakes,
    although another member leads (etcd issue 15247; 3.4.23 has it, later releases don't).
    """

    def __init__(self, timeline: Timeline, members: int = 3) -> None:
        self.timeline = timeline
        self.random = timeline.random
        self.store = Store()
        self.members = [Member(index) for index in range(members)]
        self.leader: Member | None = self.members[0]
        self.slow = 0.0
        self.slow_ms = 500
        self.late_share = 0.7
        self.old_leader_revokes = False
        self.cuts: set[tuple[Process, Member]] = set()
        self.late = 0
        self.on_applied: Callable[[], None] = lambda: None
        self._in_transit: dict[tuple[Process, Member], list[Callable[[], None]]] = {}
        # Requests that wait for a leader.
        self._pending: list[Callable[[], None]] = []
        self._leases: dict[int, tuple[int, int]] = {}
        self._next_lease = 1_000
        self._elections = 0
        timeline.later(LEASES_LOOKED_AT_MS, self._look_at_leases)

    def port(self, process: Process) -> ModelPort:
        """The port through which a process reaches the cluster."""
        return ModelPort(self, process)

    def delay(self) -> int:
        """How long the next step takes, in ms."""
        if self.slow and self.random.random() < self.slow:
            return self.random.randint(10, self.slow_ms)
        return SHORT_MS[int(self.random.random() * len(SHORT_MS))]

    # Faults.

    def kill(self, index: int) -> None:
        """End a member, as SIGKILL does; its disk stays."""
        member = self.members[index]
        member.state = State.DEAD
        member.queue.clear()
        for watch in list(member.watches):
            watch.break_off(self.delay())
        self._changed()

    def freeze(self, index: int) -> None:
        """Stop a member, as SIGSTOP does. Most processes notice in time that their watch is dead; some don't."""
        if self.leader is self.members[index]:
            self.leader.led = {lease: end_ms for lease, (_, end_ms) in self._leases.items()}
        self.members[index].state = State.FROZEN
        self._silence(self.members[index])

    def isolate(self, index: int) -> None:
        """Cut a member off from the others."""
        self.members[index].state = State.ISOLATED
        self._silence(self.members[index])

    def _silence(self, member: Member) -> None:
        for watch in member.watches:
            if self.random.random() < NOTICED_SHARE:
                self.timeline.later(self.random.randint(TRY_MS, WATCH_CUT_MS), partial(watch.break_off_if_silent))
        self._changed()

    def heal(self, index: int) -> None:
        """Start, wake or reconnect a member. It does what came while it was frozen, late as it is."""
        member = self.members[index]
        queue, member.queue = member.queue, []
        member.state = State.RUNS
        led, member.led = member.led, {}
        if self.old_leader_revokes:
            for lease in [each for each, end_ms in led.items() if end_ms <= self.timeline.ms and each in self._leases]:
                self.timeline.note(f"etcd: member {index} revokes lease {lease}, although it doesn't lead")
                self.timeline.later(self.delay(), partial(self._revoked, lease))
        pending, self._pending = self._pending, []
        for work in (*queue, *(pending if self.leader is not None else [])):
            self._perhaps_late(work)
        if self.leader is None:
            self._pending = pending
        self._changed()
        self.tell_watches()

    def cut(self, process: Process, index: int) -> None:
        """Let nothing pass between a process and a member."""
        member = self.members[index]
        self.cuts.add((process, member))
        for watch in [each for each in member.watches if each.process is process]:
            watch.break_off(self.random.randint(1, WATCH_CUT_MS))

    def mend(self, process: Process, index: int) -> None:
        """Undo `cut`. Calls that were on their way may arrive."""
        where = process, self.members[index]
        self.cuts.discard(where)
        for work in self._in_transit.pop(where, []):
            self._perhaps_late(work)

    def _perhaps_late(self, work: Callable[[], None]) -> None:
        if self.random.random() < self.late_share:
            self.late += 1
            self.timeline.later(self.random.randint(0, 50), work)

    # Consensus.

    def _changed(self) -> None:
        """Members came or went: the leader may have, and another is elected if a majority runs."""
        running = [member for member in self.members if member.state is State.RUNS]
        if self.leader is not None and self.leader.state is not State.RUNS:
            self.leader = None
        if 2 * len(running) <= len(self.members):
            self.leader = None
        self._elections += 1
        if self.leader is None and 2 * len(running) > len(self.members):
            wait_ms = self.random.randint(ELECTION_MS, 2 * ELECTION_MS)
            self.timeline.later(wait_ms, partial(self._elect, self._elections))

    def _elect(self, election: int) -> None:
        if election != self._elections:
            return
        self.leader = self.random.choice([member for member in self.members if member.state is State.RUNS])
        self.timeline.note(f"etcd: member {self.leader.index} leads")
        now_ms = self.timeline.ms
        self._leases = {
            lease: (ttl_s, now_ms + ttl_s * 1_000 + ELECTION_MS) for lease, (ttl_s, _) in self._leases.items()
        }
        pending, self._pending = self._pending, []
        for work in pending:
            self._perhaps_late(work)

    def send(self, process: Process, member: Member, work: Callable[[], None]) -> bool:
        """Carry a request to a member, which does `work` once there is a leader. False: nobody listens there."""
        if member.state is State.DEAD:
            return False
        if (process, member) in self.cuts:
            self._in_transit.setdefault((process, member), []).append(work)
        else:
            self.timeline.later(self.delay(), partial(self._arrive, member, work))
        return True

    def _arrive(self, member: Member, work: Callable[[], None]) -> None:
        if member.state is State.FROZEN:
            member.queue.append(partial(self._arrive, member, work))
        elif member.state is not State.DEAD:
            self.timeline.later(self.delay(), partial(self._propose, member, work))

    def _propose(self, member: Member, work: Callable[[], None]) -> None:
        if member.state is State.FROZEN:
            member.queue.append(partial(self._propose, member, work))
        elif self.leader is None or member.state is State.ISOLATED:
            self._pending.append(work)
        else:
            work()

    def can_answer(self, process: Process, member: Member) -> bool:
        """Whether an answer of a member reaches a process now."""
        return member.state in (State.RUNS, State.ISOLATED) and (process, member) not in self.cuts

    # Leases.

    def grant(self, ttl_s: int) -> int | Rejected:
        """Apply a grant."""
        lease = self._next_lease
        self._next_lease += 1
        refused = self.store.grant(lease)
        if refused is not None:
            return refused
        ttl_s = max(ttl_s, TTL_MIN_S)
        self._leases[lease] = ttl_s, self.timeline.ms + ttl_s * 1_000
        return lease

    def keep_alive(self, lease: int) -> int | None:
        """Renew a lease at the leader: its TTL in s, 0 if it is gone, None if it ends just now."""
        if lease not in self._leases:
            return 0
        ttl_s, end_ms = self._leases[lease]
        if end_ms <= self.timeline.ms:
            return None
        self._leases[lease] = ttl_s, self.timeline.ms + ttl_s * 1_000
        return ttl_s

    def revoke(self, lease: int) -> Rejected | None:
        """Apply the end of a lease."""
        self._leases.pop(lease, None)
        if not self.store.revoke(lease):
            return Rejected("etcdserver: requested lease not found", NOT_FOUND)
        self.tell_watches()
        return None

    def _revoked(self, lease: int) -> None:
        self.revoke(lease)

    def _look_at_leases(self) -> None:
        self.timeline.later(LEASES_LOOKED_AT_MS, self._look_at_leases)
        if self.leader is not None:
            for lease, (_, end_ms) in list(self._leases.items()):
                if end_ms <= self.timeline.ms:
                    self.timeline.note(f"etcd: lease {lease} ends")
                    self.revoke(lease)

    # Watches.

    def tell_watches(self) -> None:
        """Something changed: each watch tells of it in its time."""
        self.on_applied()
        for member in self.members:
            for watch in member.watches:
                watch.expect()


class Watch:
    """A watch on one member. Answers reach the process in order."""

    def __init__(
        self,
        etcd: EtcdModel,
        process: Process,
        member: Member,
        prefix: bytes,
        start: int,
        on_events: OnEvents,
        on_end: OnEnd,
    ) -> None:
        self.process = process
        self._etcd = etcd
        self._member = member
        self._prefix = prefix
        self._next = start
        self._on_events = on_events
        self._on_end = on_end
        self._is_over = False
        self._is_expected = False
        self._on_its_way: deque[Callable[[], None]] = deque()

    def begin(self) -> None:
        """The member has the request."""
        if not self._is_over:
            self._next = self._next or self._etcd.store.revision + 1
            self._member.watches.append(self)
            self.expect()

    def expect(self) -> None:
        """Look for events soon."""
        if not self._is_expected and not self._is_over:
            self._is_expected = True
            self._etcd.timeline.later(self._etcd.delay(), self._look)

    def _look(self) -> None:
        self._is_expected = False
        # An isolated member hears of nothing; a frozen one looks when it wakes.
        if self._is_over or self._member.state is not State.RUNS:
            return
        store = self._etcd.store
        compacted = store.compacted_for(self._next)
        if compacted is not None:
            self._end(compacted, self._etcd.delay())
            return
        revisions = store.events(self._prefix, self._next)
        # Late if it didn't look after each change; etcd then names a revision beyond the last event.
        is_late = len(revisions) > 1
        taken = revisions[: self._etcd.random.randint(1, WATCH_REVISIONS_MAX)] if is_late else revisions
        for_now = len(taken) == len(revisions)
        self._next = max(self._next, store.revision + 1 if for_now else taken[-1][-1].kv.mod_revision + 1)
        if taken:
            revision = store.revision if is_late else taken[-1][-1].kv.mod_revision
            self._deliver(partial(self._on_events, [event for events in taken for event in events], revision))
        if not for_now:
            self.expect()

    def break_off(self, ms: int) -> None:
        """The connection is gone. The process notices after `ms`."""
        self._on_its_way.clear()
        self._end(Lost("the watch was cut"), ms)

    def break_off_if_silent(self) -> None:
        """The process notices that its member doesn't answer any more, if that is still so."""
        if not self._is_over and self._member.state is not State.RUNS:
            self.break_off(0)

    def cancel(self) -> None:
        """The process wants no more events."""
        self._is_over = True
        self._on_its_way.clear()
        if self in self._member.watches:
            self._member.watches.remove(self)

    def _end(self, why: Lost | Compacted, ms: int) -> None:
        if self in self._member.watches:
            self._member.watches.remove(self)
        self._is_over = True
        self._on_its_way.append(partial(self._on_end, why))
        self.process.later(ms, self._arrive, self)

    def _deliver(self, call: Callable[[], None]) -> None:
        self._on_its_way.append(call)
        self.process.later(self._etcd.delay(), self._arrive, self)

    def _arrive(self) -> None:
        if self._on_its_way:
            self._on_its_way.popleft()()


class _Try:
    """One request: answered once, at the latest after TRY_MS."""

    def __init__(self, port: ModelPort, done: Callable[[Any], None]) -> None:
        self._port = port
        self._done: Callable[[Any], None] | None = done
        self._member = port.member
        self._cancel = port.process.later(TRY_MS, partial(self._fail, "no answer within 1 s"))

    def ask(self, work: Callable[[], Any]) -> None:
        """Send a request; `work` is done in the cluster and returns the answer, None if it has none yet."""
        etcd, process = self._port.etcd, self._port.process
        if not etcd.send(process, self._member, partial(self._carry_out, work)):
            process.later(etcd.delay(), partial(self._fail, "connection refused"), self)

    def _carry_out(self, work: Callable[[], Any]) -> None:
        etcd = self._port.etcd
        answer = work()
        if answer is None:
            etcd.timeline.later(LEASES_LOOKED_AT_MS // 5, partial(self._carry_out, work))
        else:
            etcd.timeline.later(etcd.delay(), partial(self._answer, answer))

    def _answer(self, answer: Any) -> None:
        etcd, process = self._port.etcd, self._port.process
        if etcd.can_answer(process, self._member):
            process.later(etcd.delay(), partial(self._finish, answer), self)

    def _fail(self, why: str) -> None:
        self._port.rotate(self._member)
        self._finish(Lost(why))

    def _finish(self, answer: Any) -> None:
        done, self._done = self._done, None
        self._cancel()
        if done is not None:
            done(answer)


class ModelPort:
    """A process's way to the cluster: `log.cluster.port.Port`. offset_ms: of its clock from the timeline."""

    store = "etcd"

    def __init__(self, etcd: EtcdModel, process: Process) -> None:
        self.etcd = etcd
        self.process = process
        self.offset_ms = 0
        self._endpoint = etcd.random.randrange(len(etcd.members))

    @property
    def member(self) -> Member:
        """Its endpoint."""
        return self.etcd.members[self._endpoint]

    def rotate(self, failed: Member) -> None:
        """Take the next endpoint, unless another try did so already."""
        if self.member is failed:
            self._endpoint = (self._endpoint + 1) % len(self.etcd.members)

    def now_ms(self) -> int:
        """See Port."""
        return self.process.now_ms() + self.offset_ms

    def later(self, delay_ms: int, callback: Callable[[], None]) -> Callable[[], None]:
        """See Port."""
        return self.process.later(delay_ms, callback)

    def txn(self, txn: Txn, done: Done[TxnResult]) -> None:
        """See Port."""
        _Try(self, done).ask(partial(self._txn, txn))

    def _txn(self, txn: Txn) -> TxnResult | Rejected:
        result = self.etcd.store.txn(txn)
        self.etcd.tell_watches()
        return result

    def range(
        self,
        start: bytes,
        end: bytes,
        done: Done[Page | Compacted],
        *,
        limit: int,
        revision: int = 0,
        keys_only: bool = False,
    ) -> None:
        """See Port."""
        _Try(self, done).ask(partial(self.etcd.store.range, start, end, limit, revision, keys_only=keys_only))

    def grant(self, ttl_s: int, done: Done[int]) -> None:
        """See Port."""
        _Try(self, done).ask(partial(self.etcd.grant, ttl_s))

    def keep_alive(self, lease: int, done: Done[int]) -> None:
        """See Port."""
        _Try(self, done).ask(partial(self.etcd.keep_alive, lease))

    def revoke(self, lease: int, done: Done[None]) -> None:
        """See Port."""
        _Try(self, _nothing_for(done)).ask(lambda: _something_for(self.etcd.revoke(lease)))

    def compact(self, revision: int, done: Done[None]) -> None:
        """See Port."""
        _Try(self, _nothing_for(done)).ask(lambda: _something_for(self.etcd.store.compact(revision)))

    def status(self, done: Done[Status]) -> None:
        """See Port."""
        _Try(self, done).ask(self._status)

    def _status(self) -> Status:
        store = self.etcd.store
        return Status("3.4.23", store.size, store.size, ("NOSPACE",) if store.is_full else ())

    def watch(
        self,
        prefix: bytes,
        from_revision: int,
        on_events: OnEvents,
        on_end: OnEnd,
    ) -> Callable[[], None]:
        """See Port."""
        etcd, member = self.etcd, self.member
        watch = Watch(etcd, self.process, member, prefix, from_revision, on_events, on_end)
        cut = (self.process, member) in etcd.cuts
        if cut or member.state is not State.RUNS:
            self.rotate(member)
            watch.break_off(etcd.delay() if member.state is State.DEAD else TRY_MS)
        else:
            etcd.timeline.later(etcd.delay(), watch.begin)
        return watch.cancel


NOTHING = object()
"""An answer without content."""


def _something_for(refused: Rejected | None) -> object:
    return NOTHING if refused is None else refused


def _nothing_for(done: Done[None]) -> Callable[[Any], None]:
    return lambda answer: done(None if answer is NOTHING else answer)
