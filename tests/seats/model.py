"""A small model of a set, its pods, their programs and their group, in which everything may happen at any moment.

    problems = World(seed).run()

One seed decides all. The model has what a controller can't see at once: watches that lag, answers that are under way
while the world goes on, lists that are read anew, programs that run on after their pod was forced out, two controllers
that both act. A program joins some time after it started, and takes the seat of the one before it.

`problems` names each removal of a member that lives, or whose pod the set always wanted, and each seat that should be
free and isn't once the world stands still.

House rule: a planted fault changes one method of World or of the core, and nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from coordinator.seats.core import (
    Action,
    Ask,
    Asked,
    Confirm,
    Confirmed,
    Event,
    Holder,
    Leads,
    Leave,
    Left,
    PodGone,
    PodSeen,
    PodsListed,
    Seats,
    SetGone,
    SetSeen,
    SetsListed,
    Tell,
    Tick,
)
from coordinator.seats.pods import Pod, Seat, StatefulSet
from schemas.errors import ErrorCode

ORDINALS = 4
STEPS = 120
NODES = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
QUICKNESS = 0.2
"""The share of programs that join or end at once when they have to."""


@dataclass(eq=False)
class Program:
    """The process of a pod.

    member_id: "" until it has joined. was_unwanted: since its end, the set didn't want its ordinal for a moment.
    is_lost: it runs on a node that is lost, as long as people do something.
    """

    pod: str
    host: str
    lives: bool = True
    member_id: str = ""
    was_unwanted: bool = False
    is_lost: bool = False


@dataclass(eq=False)
class Real:
    """A pod of the API server, and the programs that it has had."""

    pod: Pod
    programs: list[Program] = field(default_factory=list)


class Watcher:
    """A controller: the core, and what is on its way to it."""

    def __init__(self, core: Seats) -> None:
        self.core = core
        self.sets: list[Event] = []
        self.pods: list[Event] = []
        self.doing: list[Callable[[], None]] = []


class World:
    """See the module."""

    def __init__(self, seed: int, *, controllers: int = 1) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.number = 0
        start = self.random.choice([0, 0, 3])
        self.set = StatefulSet("s-0", "shop", "w", start, self.random.randint(1, ORDINALS), is_ending=False)
        self.pods: dict[int, Real] = {}
        self.programs: list[Program] = []
        self.members: dict[str, Program | None] = {}
        """By instance id: the program that has the seat; a seat stays when its program has ended."""
        self.forced: set[str] = set()
        """Instance ids with a pod whose end nobody saw: their seats may stay."""
        self.problems: list[str] = []
        self.freed = 0
        self.is_ending = False
        """People do nothing more, and programs are quick."""
        self.watchers = [Watcher(self.make_core()) for _ in range(controllers)]
        for watcher in self.watchers:
            watcher.sets.append(SetsListed((self.set,)))
            watcher.pods.append(PodsListed(()))
            watcher.doing.append(partial(self.tell, watcher, Leads(does=True)))

    def make_core(self) -> Seats:
        """The core of a controller."""
        return Seats(frees=True)

    def run(self) -> list[str]:
        """Let much happen, then let the world come to rest; returns what went wrong."""
        for _ in range(STEPS):
            self.random.choice([self.user, self.cluster, self.cluster, self.controllers, self.controllers])()
        self.is_ending = True
        while self.cluster() or self.controllers():
            pass
        for name, program in self.members.items():
            if program is not None and not program.lives and self.is_unwanted(program) and name not in self.forced:
                self.problems.append(f"{name} was never freed")
        return self.problems

    # ---- What people do.

    def user(self) -> None:
        """Scale, delete a pod, force a pod out, let a program crash."""
        match self.random.randrange(8):
            case 0 | 1 | 2 | 3:
                replicas = self.random.randint(0, ORDINALS)
                self.set = self.set._replace(replicas=replicas, generation=self.set.generation + 1)
                for program in self.programs:
                    program.was_unwanted |= not program.lives and self.is_unwanted(program)
                self.changed(SetSeen(self.set))
            case 4:
                for real in self.some_pod():
                    self.delete(real)
            case 5:
                for real in self.some_pod():
                    self.forced.add(real.pod.name)
                    del self.pods[real.pod.ordinal]
                    self.changed(PodGone(real.pod))  # its program runs on, for some time
                    is_lost = self.random.random() < 0.5
                    for program in real.programs:
                        program.is_lost = is_lost
            case 6:
                for real in self.some_pod():
                    self.end_programs(real)  # its kubelet starts another one
            case 7:
                watcher = self.random.choice(self.watchers)  # 410 Gone: what was on its way is lost
                if watcher.core.is_ready:
                    self.list_anew(watcher)

    def some_pod(self) -> list[Real]:
        """A pod, if there is one."""
        return [self.random.choice(list(self.pods.values()))] if self.pods else []

    def list_anew(self, watcher: Watcher) -> None:
        """Both lists as they are; seats of pods that ended unseen may stay, and those whose pods had ended before."""
        self.forced |= {seat.instance_id for _, seat in watcher.core._ended}
        self.forced |= {event.pod.name for event in watcher.pods if isinstance(event, PodGone)}
        watcher.sets[:] = [SetsListed((self.set,))]
        watcher.pods[:] = [PodsListed(tuple(real.pod for real in self.pods.values()))]

    # ---- What the cluster does.

    def cluster(self) -> bool:
        """One thing that is due; returns whether there was any."""
        due: list[Callable[[], None]] = []
        for ordinal in self.set.ordinals:
            if ordinal not in self.pods:
                due.append(partial(self.make, ordinal))
        for real in self.pods.values():
            if real.pod.is_ending:
                due += [partial(self.finish, real)] * self.is_quick()
            elif real.pod.ordinal not in self.set.ordinals:
                due.append(partial(self.delete, real))
            elif not real.pod.has_node:
                due.append(partial(self.bind, real))
            elif not any(program.lives for program in real.programs):
                due.append(partial(self.start, real))
        for program in self.programs:
            if not program.lives or not self.is_quick():
                continue
            if not program.member_id:
                due.append(partial(self.join, program))
            is_lost = program.is_lost and not self.is_ending
            if not is_lost and not any(program in real.programs for real in self.pods.values()):
                due.append(partial(self.end, program))
        if due:
            self.random.choice(due)()
        return bool(due)

    def is_quick(self) -> bool:
        """Whether a program does at once what it has to."""
        return self.is_ending or self.random.random() < QUICKNESS

    def make(self, ordinal: int) -> None:
        """The set makes a pod."""
        self.number += 1
        name = f"w-{ordinal}"
        pod = Pod(
            uid=f"u-{self.number}",
            namespace="shop",
            name=name,
            set_uid=self.set.uid,
            ordinal=ordinal,
            seats=(Seat("orders", name),),
            problem="",
            addresses=frozenset(),
            is_ending=False,
            has_node=False,
            has_ended=False,
        )
        self.pods[ordinal] = Real(pod)
        self.changed(PodSeen(pod))

    def bind(self, real: Real) -> None:
        """The pod gets a node, and the node's address."""
        lost = {program.host for program in self.programs if program.lives and program.is_lost}
        nodes = [node for node in NODES if node not in lost] or ["10.0.0.4"]
        self.set_pod(real, has_node=True, addresses=frozenset({self.random.choice(nodes)}))

    def start(self, real: Real) -> None:
        """Its kubelet starts the program."""
        (host,) = real.pod.addresses
        program = Program(real.pod.name, host)
        real.programs.append(program)
        self.programs.append(program)

    def join(self, program: Program) -> None:
        """The program joins its group, and takes the seat."""
        self.number += 1
        program.member_id = f"m-{self.number}"
        self.members[program.pod] = program

    def delete(self, real: Real) -> None:
        """The pod shall end."""
        if real.pod.has_node:
            self.set_pod(real, is_ending=True)
        else:
            del self.pods[real.pod.ordinal]
            self.changed(PodGone(real.pod))

    def finish(self, real: Real) -> None:
        """Its programs have ended, its kubelet says so, and it goes."""
        self.end_programs(real)
        del self.pods[real.pod.ordinal]
        self.changed(PodGone(real.pod._replace(has_ended=True)))

    def end_programs(self, real: Real) -> None:
        """All programs of a pod end."""
        for program in real.programs:
            self.end(program)

    def end(self, program: Program) -> None:
        """A program ends."""
        if program.lives:
            program.lives = False
            program.was_unwanted = self.is_unwanted(program)

    def is_unwanted(self, program: Program) -> bool:
        """Whether the set doesn't want the ordinal of a program's pod."""
        return int(program.pod.rpartition("-")[2]) not in self.set.ordinals

    def set_pod(self, real: Real, **changes: object) -> None:
        """Change a pod."""
        real.pod = real.pod._replace(**changes)  # type: ignore[arg-type]
        self.changed(PodSeen(real.pod))

    def changed(self, event: Event) -> None:
        """Both watches of each controller get it, some time later."""
        for watcher in self.watchers:
            (watcher.sets if isinstance(event, SetSeen | SetGone) else watcher.pods).append(event)

    # ---- What the controllers do.

    def controllers(self) -> bool:
        """One thing reaches a controller, or one of its requests is carried out; returns whether there was any."""
        due: list[Callable[[], None]] = []
        for watcher in self.watchers:
            due += [partial(self.deliver, watcher, queue) for queue in (watcher.sets, watcher.pods) if queue]
            due += [partial(self.carry_out, watcher, number) for number in range(len(watcher.doing))]
            if watcher.core.next_at is not None:
                due.append(partial(self.tick, watcher))
        if due:
            self.random.choice(due)()
        return bool(due)

    def deliver(self, watcher: Watcher, queue: list[Event]) -> None:
        """The next event of a watch arrives."""
        self.tell(watcher, queue.pop(0))

    def carry_out(self, watcher: Watcher, number: int) -> None:
        """A request or an answer gets on."""
        watcher.doing.pop(number)()

    def tick(self, watcher: Watcher) -> None:
        """Time passes until the controller wants to try again."""
        self.now = max(self.now, watcher.core.next_at or 0.0)
        self.tell(watcher, Tick())

    def tell(self, watcher: Watcher, event: Event) -> None:
        """The core takes an event; what it wants is under way from then on."""
        for action in watcher.core.handle(event, self.now):
            if not isinstance(action, Tell):
                watcher.doing.append(partial(self.request, watcher, action))

    def request(self, watcher: Watcher, action: Action) -> None:
        """A request reaches its server; the answer is under way from then on."""
        lost = self.random.random() < 0.1
        match action:
            case Ask(step):
                answer: Event = Asked(step, self.ask(step.seat), "lost" if lost else "")
                watcher.doing.append(partial(self.tell, watcher, answer))
            case Confirm():
                found = self.read_set(watcher)
                watcher.doing.append(partial(self.read_pod, watcher, action, found))
            case Leave(step, member_id):
                code = self.leave(step.seat, member_id)
                watcher.doing.append(partial(self.tell, watcher, Left(step, code, "lost" if lost else "")))

    def ask(self, seat: Seat) -> Holder | None:
        """The member that has a seat."""
        program = self.members.get(seat.instance_id)
        return None if program is None else Holder(program.member_id, program.host)

    def read_set(self, _watcher: Watcher) -> StatefulSet:
        """The set as it is."""
        return self.set

    def read_pod(self, watcher: Watcher, action: Confirm, found: StatefulSet) -> None:
        """The second half of Confirm: the world may have gone on since the first."""
        answer = Confirmed(action.step, found, action.step.place.ordinal in self.pods)
        watcher.doing.append(partial(self.tell, watcher, answer))

    def leave(self, seat: Seat, member_id: str) -> int:
        """Remove a member, as a group does."""
        program = self.members.get(seat.instance_id)
        if program is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if program.member_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        if program.lives:
            self.problems.append(f"{seat.instance_id}: a member that lives was removed")
        elif not program.was_unwanted:
            self.problems.append(f"{seat.instance_id}: a member was removed whose pod comes back")
        self.freed += 1
        self.members[seat.instance_id] = None
        return ErrorCode.NONE
