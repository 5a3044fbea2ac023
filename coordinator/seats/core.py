"""Decides which seats are free for good: what happened comes in, what to do goes out.

A seat is judged (`_judge`) by what the core has seen of sets and pods:

    FREE   the set wants fewer ordinals, the pod is deleted, and its kubelet said that its containers had ended
    KEEP   the pod exists, or the set will make it again
    DOUBT  anything else; the line says what

A free seat is removed in three steps, because a set may grow again at any moment:

1. `Ask`: which member has the seat? Only one that connected from the addresses of the pod that ended.
2. `Confirm`: fresh from the API server, does the set still not want the ordinal, and is there no such pod?
3. `Leave`: remove that member, by its member id. A pod that starts after step 2 joins under another member id, and
   the group answers FENCED_INSTANCE_ID.

House rule: the order of these steps is the whole safety. The member id is older than the confirmation. Nothing here
waits, reads a clock or sends anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from coordinator.client.errors import error_name
from coordinator.seats.pods import Pod, Seat, StatefulSet
from schemas.errors import ErrorCode

RETRY_FIRST_S = 1.0
RETRY_MAX_S = 60.0
"""A step that failed is tried again after these seconds; the pause doubles from try to try."""


class Kind(Enum):
    """The verdict on a seat."""

    FREE = "would free"
    FREED = "freed"
    GONE = "gone"
    """No member has it: it needs no removal."""
    KEEP = "kept"
    DOUBT = "kept in doubt"


class Verdict(NamedTuple):
    """A decision about a seat, and its reason in one line."""

    kind: Kind
    why: str


NO_MEMBER = Verdict(Kind.GONE, "no member of the group has it")


class Holder(NamedTuple):
    """The member that has a seat. host: the address that it connected from."""

    member_id: str
    host: str


class Place(NamedTuple):
    """An ordinal of a set; of a pod without a set, its uid and -1."""

    set_uid: str
    ordinal: int


class Step(NamedTuple):
    """The subject of a step. number: a later answer to an earlier step doesn't count."""

    place: Place
    seat: Seat
    number: int


# ---- What happened.


class SetsListed(NamedTuple):
    """All sets that there are; any other one is gone."""

    sets: tuple[StatefulSet, ...]


class SetSeen(NamedTuple):
    """A set was added or changed."""

    set: StatefulSet


class SetGone(NamedTuple):
    """A set was deleted."""

    uid: str


class PodsListed(NamedTuple):
    """All pods with seats that there are. The deletion of any other pod wasn't seen."""

    pods: tuple[Pod, ...]


class PodSeen(NamedTuple):
    """A pod with seats was added or changed."""

    pod: Pod


class PodGone(NamedTuple):
    """A pod was deleted; the pod is its last form."""

    pod: Pod


class PodLost(NamedTuple):
    """A pod lost its annotations."""

    uid: str


class Leads(NamedTuple):
    """Whether this controller acts; another one may have the lease."""

    does: bool


class Asked(NamedTuple):
    """The answer to Ask. holder: None if no member has the seat. problem: why the group couldn't be asked, or ""."""

    step: Step
    holder: Holder | None
    problem: str = ""


class Confirmed(NamedTuple):
    """The answer to Confirm. set: as it is, None if it is gone. problem: why there is no answer, or ""."""

    step: Step
    set: StatefulSet | None
    pod_exists: bool
    problem: str = ""


class Left(NamedTuple):
    """The answer to Leave. error_code: of the member. problem: why there is no answer, or ""."""

    step: Step
    error_code: int
    problem: str = ""


class Tick(NamedTuple):
    """Time has passed."""


Event = (
    SetsListed | SetSeen | SetGone | PodsListed | PodSeen | PodGone | PodLost | Leads | Asked | Confirmed | Left | Tick
)

# ---- What to do.


class Ask(NamedTuple):
    """Ask the group which member has the seat."""

    step: Step


class Confirm(NamedTuple):
    """Read the set and the pod from the API server, not from a cache."""

    step: Step
    namespace: str
    set_name: str
    pod_name: str


class Leave(NamedTuple):
    """Remove the member from the group, under this member id alone."""

    step: Step
    member_id: str


class Tell(NamedTuple):
    """Say what was decided about a pod's seat.

    set: None if it is gone. seat: None if the pod's annotations can't be read. waited_s: from the pod's end until the
    seat was freed.
    """

    pod: Pod
    set: StatefulSet | None
    seat: Seat | None
    verdict: Verdict
    waited_s: float = 0.0


Action = Ask | Confirm | Leave | Tell


@dataclass(slots=True)
class _Ended:
    """A seat whose pod has ended.

    pod: the last one that had a node. at: when it ended. is_clean: its end was seen, and its kubelet had said that its
    containers ended. waits_for: the step under way. holder: the answer to the first. retry_at, pause: when the next try
    may begin. told: the last verdict that was said. generation: of the set as it ended. was_listed: pods were listed
    anew since; others of this place may have come and gone unseen, if the set wanted them.
    """

    pod: Pod
    at: float
    is_clean: bool
    generation: int
    was_listed: bool = False
    waits_for: Step | None = None
    holder: Holder | None = None
    retry_at: float = 0.0
    pause: float = RETRY_FIRST_S
    told: Verdict | None = None


class Seats:
    """See the module. frees: without it the third step is left out. any_host: a NAT hides the addresses of pods."""

    def __init__(self, *, frees: bool, any_host: bool = False) -> None:
        self._frees = frees
        self._any_host = any_host
        self._sets: dict[str, StatefulSet] = {}
        self._pods: dict[str, Pod] = {}
        """The pods that exist, by uid."""
        self._at: dict[Place, set[str]] = {}
        """Their uids, by place."""
        self._claims: dict[Seat, set[Place]] = {}
        """The places whose pods name a seat, or named it before they ended."""
        self._ended: dict[tuple[Place, Seat], _Ended] = {}
        self._suspects: dict[tuple[Place, Seat], frozenset[str]] = {}
        """The addresses of earlier pods of a place whose programs may still run, for as long as their set exists."""
        self._leaving: dict[Step, _Ended] = {}
        """Seats that are being freed. Nothing that happens meanwhile takes the request back."""
        self._unread: list[Pod] = []
        """The pods whose annotations can't be read, and of which no line has told yet."""
        self._has_sets = self._has_pods = self._leads = False
        self._steps = 0

    @property
    def is_ready(self) -> bool:
        """Whether both lists have been seen."""
        return self._has_sets and self._has_pods

    @property
    def pods(self) -> int:
        """The number of pods with seats that exist."""
        return len(self._pods)

    @property
    def next_at(self) -> float | None:
        """When a Tick is due; None if nothing waits for one."""
        return min((each.retry_at for each in self._ended.values() if each.retry_at), default=None)

    def handle(self, event: Event, now: float) -> list[Action]:
        """Take an event at `now`, seconds on a clock that never jumps; returns what to do, in order."""
        actions: list[Action] = []
        match event:
            case SetsListed(sets):
                self._has_sets = True
                self._sets = {each.uid: each for each in sets}
                self._clear()
            case SetSeen(found):
                self._sets[found.uid] = found
            case SetGone(uid):
                self._sets.pop(uid, None)
                self._clear()
            case PodsListed(pods):
                self._has_pods = True
                for ended in self._ended.values():
                    ended.was_listed = True
                there = {pod.uid for pod in pods}
                for pod in pods:
                    self._see(pod)
                for pod in [pod for uid, pod in self._pods.items() if uid not in there]:
                    self._end(pod.uid, now, is_clean=pod.has_ended)  # a pod that has ended never runs again
            case PodSeen(pod):
                self._see(pod)
            case PodGone(pod):
                self._see(pod)
                self._end(pod.uid, now, is_clean=pod.has_ended)
            case PodLost(uid):
                self._end(uid, now, is_clean=False)
            case Leads(does):
                self._leads = does
            case Asked() | Confirmed():
                actions += self._answered(event, now)
            case Left():
                actions += self._left(event, now)
            case Tick():
                pass
        return [*actions, *self._look(now)]

    # ---- Pods come and go.

    def _see(self, pod: Pod) -> None:
        place = _place(pod)
        before = self._pods.get(pod.uid)
        if before is None:
            if pod.problem:
                self._unread.append(pod)
        else:
            pod = pod._replace(addresses=pod.addresses | before.addresses)
            if _place(before) != place or before.seats != pod.seats:  # an orphan, or another set has adopted it
                self._drop(before)
        self._pods[pod.uid] = pod
        self._at.setdefault(place, set()).add(pod.uid)
        for seat in pod.seats:
            self._claims.setdefault(seat, set()).add(place)
            if pod.has_node:  # one without a node ran nowhere: the seat is still that of the pod before it
                self._succeed(pod.uid, place, seat)

    def _succeed(self, uid: str, place: Place, seat: Seat) -> None:
        """Let a pod take over the seat of the pod before it, whose member has it until the new one joins."""
        ended = self._ended.pop((place, seat), None)
        if ended is None:
            return
        addresses = ended.pod.addresses
        if ended.is_clean and not ended.was_listed:
            self._pods[uid] = self._pods[uid]._replace(addresses=self._pods[uid].addresses | addresses)
        elif not ended.is_clean:
            self._suspects[place, seat] = self._suspects.get((place, seat), frozenset()) | addresses

    def _end(self, uid: str, now: float, *, is_clean: bool) -> None:
        pod = self._pods.get(uid)
        if pod is None:
            return
        if pod.has_node and pod.set_uid:
            found = self._sets.get(pod.set_uid)
            for seat in pod.seats:
                self._ended[_place(pod), seat] = _Ended(pod, now, is_clean, 0 if found is None else found.generation)
        self._drop(pod)

    def _drop(self, pod: Pod) -> None:
        """Forget a pod, but not that it ended."""
        place = _place(pod)
        del self._pods[pod.uid]
        self._at[place].discard(pod.uid)
        if not self._at[place]:
            del self._at[place]
        for seat in pod.seats:
            self._unclaim(place, seat)

    def _unclaim(self, place: Place, seat: Seat) -> None:
        """Forget that a place names a seat, unless a pod that exists or has ended there still does."""
        exists = any(seat in self._pods[uid].seats for uid in self._at.get(place, ()))
        if not exists and seat in self._claims and (place, seat) not in self._ended:
            self._claims[seat].discard(place)
            if not self._claims[seat]:
                del self._claims[seat]

    def _settle(self, place: Place, seat: Seat) -> None:
        """Forget that a seat's pod ended."""
        self._ended.pop((place, seat), None)
        self._unclaim(place, seat)

    def _clear(self) -> None:
        """Forget the suspects of sets that are gone."""
        for key in [key for key in self._suspects if key[0].set_uid not in self._sets]:
            del self._suspects[key]

    # ---- Judgement.

    def _judge(self, place: Place, seat: Seat, ended: _Ended) -> Verdict:
        """The verdict on a seat, from the sets and pods that were seen."""
        found = self._sets.get(place.set_uid)
        if found is None:
            return Verdict(Kind.DOUBT, "its set is gone, and may be made again")
        if place in self._at:
            return Verdict(Kind.KEEP, "its pod exists")
        wants = f"StatefulSet {found.name} wants {_ordinals(found.ordinals)}"
        if place.ordinal in found.ordinals:
            return Verdict(Kind.KEEP, f"{wants}: its pod comes back")
        if found.is_ending:
            return Verdict(Kind.DOUBT, "its set is being deleted, and may be made again")
        if not ended.is_clean:
            return Verdict(Kind.DOUBT, f"nobody saw the containers of pod {ended.pod.name} end: they may still run")
        if len(self._claims[seat]) > 1:
            return Verdict(Kind.DOUBT, "another pod names the same seat")
        return Verdict(Kind.FREE, f"{wants}, and pod {ended.pod.name} has ended")

    def _look(self, now: float) -> Iterator[Action]:
        """Begin with each seat that is free, and tell of the others."""
        if not self.is_ready:
            return
        for (place, seat), ended in list(self._ended.items()):
            if ended.waits_for is not None or ended.retry_at > now:
                continue
            ended.retry_at = 0.0
            verdict = self._judge(place, seat, ended)
            if not self._leads:
                pass
            elif verdict.kind is not Kind.FREE:
                yield from self._tell(seat, ended, verdict)
            elif ended.told is None or ended.told.kind is not Kind.FREE:  # a dry run says it once
                ended.waits_for = self._step(place, seat)
                yield Ask(ended.waits_for)
            if place.set_uid not in self._sets:
                self._settle(place, seat)
        while self._leads and self._unread:
            pod = self._unread.pop()
            yield Tell(pod, self._sets.get(pod.set_uid), None, Verdict(Kind.DOUBT, pod.problem))

    def _step(self, place: Place, seat: Seat) -> Step:
        self._steps += 1
        return Step(place, seat, self._steps)

    # ---- The three steps.

    def _answered(self, event: Asked | Confirmed, now: float) -> Iterator[Action]:
        place, seat, _ = step = event.step
        ended = self._ended.get((place, seat))
        if ended is None or ended.waits_for != step:
            return  # the ordinal has a new pod, or its set is gone
        ended.waits_for = None
        verdict = self._judge(place, seat, ended)
        if verdict.kind is not Kind.FREE or not self._leads:
            return
        if event.problem:
            yield from self._try_again(seat, ended, event.problem, now)
        elif isinstance(event, Asked):
            yield from self._asked(step, event.holder, ended)
        elif not _is_free(place, event):
            self._pause(ended, now)  # the watches are late
        elif ended.was_listed and event.set is not None and event.set.generation != ended.generation:
            why = "pods were listed anew, and its set has changed: others may have come and gone"
            yield from self._tell(seat, ended, Verdict(Kind.DOUBT, why))
            self._settle(place, seat)
        elif self._frees:
            assert ended.holder is not None
            self._leaving[step] = self._ended.pop((place, seat))
            ended.told = verdict
            yield Leave(step, ended.holder.member_id)
        else:
            yield from self._tell(seat, ended, verdict)

    def _asked(self, step: Step, holder: Holder | None, ended: _Ended) -> Iterator[Action]:
        place, seat, _ = step
        pod = ended.pod
        if holder is None:
            yield from self._tell(seat, ended, NO_MEMBER)
            self._settle(place, seat)
        elif (place, seat) in self._suspects and (self._any_host or holder.host in self._suspects[place, seat]):
            why = f"the program of an earlier pod {pod.name} may have it: nobody saw that one end"
            yield from self._tell(seat, ended, Verdict(Kind.DOUBT, why))
            self._settle(place, seat)
        elif not self._any_host and holder.host not in pod.addresses:
            why = f"its member connected from {holder.host}, pod {pod.name} had {' and '.join(sorted(pod.addresses))}"
            yield from self._tell(seat, ended, Verdict(Kind.DOUBT, why))
            self._settle(place, seat)
        else:
            ended.holder, ended.waits_for = holder, self._step(place, seat)
            yield Confirm(ended.waits_for, pod.namespace, self._sets[place.set_uid].name, pod.name)

    def _left(self, event: Left, now: float) -> Iterator[Action]:
        ended = self._leaving.pop(event.step)
        place, seat, _ = event.step
        assert ended.told is not None
        if event.problem:
            ended.waits_for = None
            if place in self._at or (place, seat) in self._ended:  # it has a new pod
                self._unclaim(place, seat)
            else:
                self._ended[place, seat] = ended
                self._claims.setdefault(seat, set()).add(place)
                yield from self._try_again(seat, ended, event.problem, now)
            return
        verdicts: dict[int, Verdict] = {
            ErrorCode.NONE: Verdict(Kind.FREED, ended.told.why),
            ErrorCode.UNKNOWN_MEMBER_ID: NO_MEMBER,
            ErrorCode.FENCED_INSTANCE_ID: Verdict(Kind.KEEP, "another member took it meanwhile"),
        }
        answered = Verdict(Kind.DOUBT, f"the group answered {error_name(event.error_code)}")
        verdict = verdicts.get(event.error_code, answered)
        yield from self._tell(seat, ended, verdict, now - ended.at if verdict.kind is Kind.FREED else 0.0)
        self._settle(place, seat)

    def _try_again(self, seat: Seat, ended: _Ended, problem: str, now: float) -> Iterator[Action]:
        self._pause(ended, now)
        yield from self._tell(seat, ended, Verdict(Kind.DOUBT, f"trying again: {problem}"))

    def _pause(self, ended: _Ended, now: float) -> None:
        ended.retry_at, ended.pause = now + ended.pause, min(2 * ended.pause, RETRY_MAX_S)

    def _tell(self, seat: Seat, ended: _Ended, verdict: Verdict, waited_s: float = 0.0) -> Iterator[Tell]:
        """Say a verdict, unless it was said."""
        if ended.told != verdict:
            ended.told = verdict
            yield Tell(ended.pod, self._sets.get(ended.pod.set_uid), seat, verdict, waited_s)


def _place(pod: Pod) -> Place:
    return Place(pod.set_uid or pod.uid, pod.ordinal)


def _is_free(place: Place, fresh: Confirmed) -> bool:
    """Whether the API server's newest state says what the watches said."""
    found = fresh.set
    if found is None or found.uid != place.set_uid or found.is_ending:
        return False
    return place.ordinal not in found.ordinals and not fresh.pod_exists


def _ordinals(wanted: range) -> str:
    if len(wanted) > 1:
        return f"ordinals {wanted[0]} to {wanted[-1]}"
    return f"ordinal {wanted[0]}" if wanted else "no ordinals"
