"""Races on a real control plane: sets grow and shrink at random, pods are deleted and forced out, programs crash.

    with Races(plane, tenure, seed, sets=6) as races:
        with races.controllers(2):
            races.run(20.0)
        assert races.problems() == []

Each set has a group and a thread of its own. The program of a pod is a member in this process, which ends some time
after SIGTERM. A member of a pod that was forced out lives on until the end of the run, as on a lost node.

House rule: a seed decides what people do, and when they want to; the rest is as it happens.
"""

from __future__ import annotations

import http.client
import random
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path

from coordinator.client.client import Client
from coordinator.client.errors import Refused
from coordinator.client.groups import describe_groups
from coordinator.testing.members import fill
from tests.kubernetes.control_plane import ApiError, ControlPlane, Object
from tests.kubernetes.judge import Change, Ran, Removal, may_have_wanted, problems
from tests.kubernetes.node import RETRY_S, Node, Process
from tests.kubernetes.stage import Controller, a_set
from tests.support.patience import WITHIN_S
from tests.support.started import Started
from tests.support.tenure import LogEvent, Tenure, wait_until

REPLICAS = 4
PAUSE_S = 0.8
"""The longest time between two acts of a person on one set."""
END_S = 0.5
"""The longest time that a program takes to end after SIGTERM."""
HEARTBEAT_MS = 1_000
IS_AWAY = (429, 500, 503, 504)
"""The answers of an API server that starts or is busy."""
GIVES_A_MEMBER_ID = ("member_joined", "member_replaced")
"""The server's events of a JoinGroup that gives a member id."""


def told_s(event: LogEvent) -> float:
    """The time of a server's event, in seconds since the epoch."""
    return datetime.fromisoformat(event["ts"]).timestamp()


class Program:
    """A pod's program: one static member."""

    def __init__(self, tenure: Tenure, group_id: str, pod: str, session_ms: int, end_s: float) -> None:
        self.pod = pod
        self.instance_id = f"{pod}-0"
        self.began, self.ended = time.time(), float("inf")
        self.is_forced = False
        self._end_s = end_s
        self._over = threading.Event()
        self._members = fill(
            tenure.bootstrap,
            group_id,
            1,
            client_id=pod,
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )

    @property
    def running(self) -> bool:
        """Whether it lives."""
        return not self._over.is_set()

    def send_signal(self, number: signal.Signals) -> None:
        """SIGTERM ends it after some time, SIGKILL at once."""
        threading.Timer(self._end_s if number == signal.SIGTERM else 0.0, self._end).start()

    def join(self) -> int:
        """Wait for its end."""
        self._over.wait()
        return 0

    def ran(self) -> Ran:
        """Its history."""
        ordinal = int(self.pod.rpartition("-")[2])
        return Ran(self.instance_id, self._members[0].member_id, ordinal, self.began, self.ended)

    def _end(self) -> None:
        self._members.stop()
        if self.running:
            self.ended = time.time()
            self._over.set()


class RacingSet:
    """A StatefulSet, its group, and its histories."""

    def __init__(self, races: Races, name: str, seed: int) -> None:
        self.name = name
        self.random = random.Random(seed)
        self.start = self.random.choice([0, 3])
        self.changes: list[Change] = []
        self.programs: list[Program] = []
        self._races = races

    @property
    def ordinals(self) -> range:
        """Those that it wants."""
        return self.changes[-1].ordinals

    def create(self) -> None:
        """Create it with one pod, without which there is no group."""
        races, ordinals, sent = self._races, range(self.start, self.start + 1), time.time()
        races.plane.api.post(races.sets, a_set(self.name, self.name, "{pod.name}-0", ordinals))
        self.changes.append(Change(ordinals, sent, time.time()))

    def scale(self, replicas: int) -> None:
        """Let it want other ordinals."""
        change = Change(range(self.start, self.start + replicas), time.time(), float("inf"))
        self.changes.append(change)
        self._races.patiently(
            lambda: self._races.plane.api.patch(f"{self._races.sets}/{self.name}", {"spec": {"replicas": replicas}})
        )
        self.changes[-1] = change._replace(answered=time.time())

    def act(self) -> None:
        """Do something that people do."""
        pod = f"{self.name}-{self.start + self.random.randrange(REPLICAS)}"
        path = f"{self._races.pods}/{pod}"
        match self.random.randrange(10):
            case 0:
                with suppress(ApiError, OSError, http.client.HTTPException):  # there is no such pod, or no server
                    self._races.plane.api.delete(path)
            case 1 if self._races.forces:
                lost = [each for each in self.programs if each.pod == pod and each.running]
                for program in lost:
                    program.is_forced = True
                with suppress(ApiError, OSError, http.client.HTTPException):
                    self._races.plane.api.delete(path, gracePeriodSeconds=0)
            case 2:
                for program in self.programs:
                    if program.pod == pod and program.running:
                        program.send_signal(signal.SIGKILL)
            case _:
                self.scale(self.random.randint(0, REPLICAS))

    def removals(self) -> list[Removal]:
        """The removals, from the server's log."""
        events = self._races.tenure.events(None, self.name)
        joined = {each["member_id"]: told_s(each) for each in events if each["event"] in GIVES_A_MEMBER_ID}
        return [
            Removal(each["group_instance_id"], each["member_id"], joined.get(each["member_id"]), told_s(each))
            for each in events
            if each["event"] == "member_left"
        ]

    def seats(self) -> set[str]:
        """The instance ids that have a seat."""
        with Client(self._races.tenure.bootstrap, WITHIN_S) as client:
            group = describe_groups(client, [self.name])[self.name]
        return set() if isinstance(group, Refused) else {each.group_instance_id or "" for each in group.members}

    def late(self) -> list[str]:
        """Seats that ended with their sessions though the set didn't want their pods, none of which was forced out."""
        forced = {program.instance_id for program in self.programs if program.is_forced}
        ran = {each.member_id: each for each in (program.ran() for program in self.programs)}
        found = []
        for event in self._races.tenure.events("member_expired", self.name):
            program, at = ran.get(event["member_id"]), told_s(event)
            if program is None or program.ended > at or program.instance_id in forced:
                continue
            if not may_have_wanted(program.ordinal, self.changes, program.ended, at, wants=True):
                found.append(program.instance_id)
        return found

    def problems(self) -> list[str]:
        """The faults that the judge finds."""
        return problems([each.ran() for each in self.programs], self.changes, self.removals())


class Races(Started):
    """See the module.

    session_ms: of the members. command: of a controller, with its arguments behind.
    forces: whether people force pods out. All members here have one address, so a controller that wasn't there takes
    the member of such a pod for that of a later one; with an address for each pod it doesn't.
    """

    def __init__(
        self,
        plane: ControlPlane,
        tenure: Tenure,
        seed: int,
        *,
        sets: int,
        session_ms: int,
        forces: bool = True,
        command: tuple[str, ...] = (),
    ) -> None:
        self.plane = plane
        self.tenure = tenure
        self.random = random.Random(seed)
        self.namespace = f"races-{seed}-{uuid.uuid4().hex[:8]}"
        self.sets = f"/apis/apps/v1/namespaces/{self.namespace}/statefulsets"
        self.pods = f"/api/v1/namespaces/{self.namespace}/pods"
        self.running: list[Controller] = []
        self._logs: list[Path] = []
        self.forces = forces
        self._session_ms = session_ms
        self._command = command
        self._over = threading.Event()
        self._node = Node(plane.api, self._start)
        # A group of another test has another name.
        self._sets = {
            f"{self.namespace}-{number}": RacingSet(self, f"{self.namespace}-{number}", self.random.getrandbits(32))
            for number in range(sets)
        }

    def start(self) -> None:
        """Create the namespace and the sets, and start the node."""
        self.plane.api.post("/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        self._node.start()
        for each in self._sets.values():
            each.create()

    def close(self) -> None:
        """End all programs, and delete the namespace."""
        self._over.set()
        self._node.rest()
        for each in self._sets.values():
            for program in each.programs:
                program.send_signal(signal.SIGKILL)
        self._node.close()
        with suppress(ApiError, OSError):
            self.plane.api.delete(f"/api/v1/namespaces/{self.namespace}")

    def _start(self, pod: Object) -> Process | None:
        metadata = pod["metadata"]
        if metadata["namespace"] != self.namespace:
            return None
        (owner,) = metadata["ownerReferences"]
        found = self._sets[owner["name"]]
        program = Program(self.tenure, found.name, metadata["name"], self._session_ms, END_S * random.random())
        found.programs.append(program)
        return program

    def patiently(self, call: Callable[[], object]) -> None:
        """Repeat a call that the API server doesn't answer."""
        while not self._over.wait(RETRY_S):
            try:
                call()
            except (OSError, http.client.HTTPException):
                continue
            except ApiError as error:
                if error.status not in IS_AWAY:
                    raise
                continue
            return

    @contextmanager
    def controllers(self, count: int) -> Iterator[None]:
        """Controllers for a block, once they know all."""
        try:
            self.running = [self.start_controller() for _ in range(count)]
            for each in self.running:
                each.wait_for("^ready ")
            yield
        finally:
            for each in self.running:
                each.send_signal(signal.SIGCONT)
                each.send_signal(signal.SIGTERM)
                each.join()

    def start_controller(self) -> Controller:
        """Start one."""
        log = self.plane.folder / f"{self.namespace}-{len(self._logs)}.log"
        self._logs.append(log)
        common = ("--kubeconfig", str(self.plane.kubeconfig), "--namespace", self.namespace, "--free")
        return Controller(log, *common, "--bootstrap-server", self.tenure.bootstrap, command=self._command)

    def restart_controller(self, index: int) -> None:
        """SIGKILL, and another one in its place."""
        self.running[index].send_signal(signal.SIGKILL)
        self.running[index].join()
        self.running[index] = self.start_controller()

    def run(self, seconds: float, sabotage: Callable[[Races], None] | None = None) -> None:
        """Let people act for some time, and a saboteur beside them; then let the world come to rest."""
        until = time.monotonic() + seconds
        self._act(lambda: time.monotonic() >= until, sabotage)
        self._rest()

    def run_until(self, is_over: Callable[[], bool]) -> None:
        """Let people act until something has happened."""
        self._act(is_over, None)

    def _act(self, is_over: Callable[[], bool], sabotage: Callable[[Races], None] | None) -> None:
        ended = threading.Event()

        def act(each: RacingSet) -> None:
            while not ended.wait(PAUSE_S * each.random.random()):
                each.act()

        with ThreadPoolExecutor(len(self._sets)) as people:
            acting = [people.submit(act, each) for each in self._sets.values()]
            try:
                while not is_over() and not any(each.done() for each in acting):
                    (sabotage or Races.pause)(self)
            except BaseException:
                self._over.set()  # the API server may be away
                raise
            finally:
                ended.set()
            for each in acting:
                each.result()

    def pause(self, seconds: float = 0.5) -> None:
        """Let time pass: a saboteur does, between two acts."""
        self._over.wait(seconds)

    def _rest(self) -> None:
        """Wait until the wanted pods run, end the programs of others, and wait until no other seat is left."""
        for each in self._sets.values():
            wanted = {f"{each.name}-{ordinal}" for ordinal in each.ordinals}
            pods = wait_until(partial(self._that_run, each.name, wanted), f"{each.name} is at rest", WITHIN_S)
            current = [self._node.processes[uid] for uid in pods]
            for program in each.programs:
                if program not in current:
                    program.is_forced |= program.running
                    program.send_signal(signal.SIGKILL)
            names = {f"{name}-0" for name in wanted}
            within_s = WITHIN_S + self._session_ms / 1000
            wait_until(partial(self._has_seats, each, names), f"{each.name} has the seats of its pods", within_s)

    def _that_run(self, name: str, wanted: set[str]) -> list[str] | None:
        """The uids of a set's pods, if they are those that it wants, and all run."""
        found = [pod for pod in self.plane.api.get(self.pods)["items"] if pod["metadata"]["labels"]["app"] == name]
        runs = all(pod["status"]["phase"] == "Running" for pod in found)
        is_ending = any("deletionTimestamp" in pod["metadata"] for pod in found)
        are_wanted = {pod["metadata"]["name"] for pod in found} == wanted
        return [pod["metadata"]["uid"] for pod in found] if runs and are_wanted and not is_ending else None

    def _has_seats(self, found: RacingSet, names: set[str]) -> bool:
        return found.seats() == names

    def problems(self) -> list[str]:
        """The faults of all groups, and those of the controllers."""
        faults = [
            line for log in self._logs for line in log.read_text().splitlines() if "a fault of this program" in line
        ]
        return [*(text for each in self._sets.values() for text in each.problems()), *faults]

    def late(self) -> list[str]:
        """Seats that ended with their sessions; see RacingSet."""
        return [name for each in self._sets.values() for name in each.late()]

    @property
    def changes(self) -> int:
        """The changes of replicas so far."""
        return sum(len(each.changes) for each in self._sets.values())

    def summary(self) -> str:
        """A line with the counts of a round."""
        programs = sum(len(each.programs) for each in self._sets.values())
        freed = sum(len(each.removals()) for each in self._sets.values())
        return f"{self.changes} changes of replicas, {programs} programs, {freed} seats freed, {len(self.late())} late"
