"""Our own doctor on Apache Kafka 3.9 and 4.4 and on Tenure: stalls made on purpose, named, mended, and gone.

The waits that make a finding are short here; tests/story/test_progress_diagnosis.py has them in full.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewPartitions, NewTopic

from coordinator.client import examination
from coordinator.client.client import Client
from coordinator.client.examination import examine
from coordinator.story import progress, progress_diagnosis, tracks
from coordinator.story.progress import Progress
from tests.cli.conftest import at, make_app, run_app
from tests.client.test_ahead import LEVELS, end_transactions
from tests.observe.test_observer import observing
from tests.oracle.conftest import NODES, SAME_NAME
from tests.support.apache import VERSION, VERSION_44, ApacheKafka
from tests.support.patience import WITHIN_S
from tests.support.tenure import Tenure, wait_until

SETTINGS = {**NODES["open"], **SAME_NAME}
STUCK_MS = 2_000

Node = ApacheKafka | Tenure

APACHE = [
    pytest.param(VERSION_44, marks=pytest.mark.oracle),
    pytest.param(VERSION, marks=[pytest.mark.oracle, pytest.mark.nightly]),
]


@pytest.fixture(scope="module", params=[pytest.param("tenure", marks=pytest.mark.long), *APACHE])
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    """A server."""
    made: Node
    if request.param == "tenure":
        made = Tenure(SETTINGS)
    else:
        request.getfixturevalue("kafka_is_here")
        made = ApacheKafka(SETTINGS, version=request.param)
    with made as started:
        yield started


class Scene:
    """A topic with two partitions, to which records come all the time, and a group of it."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.group = self.topic = f"g-{uuid.uuid4().hex[:8]}"
        self.admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
        self.admin.create_topics([NewTopic(self.topic, 2, 1)])[self.topic].result(WITHIN_S)
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._produce)
        self.thread.start()

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self.node.bootstrap, "log_level": 0})
        while not self.over.wait(0.05):
            for partition in (0, 1):
                producer.produce(self.topic, b"x", partition=partition)
            producer.poll(0)
        producer.flush(WITHIN_S)

    def end(self) -> None:
        """No more records come."""
        self.over.set()
        self.thread.join()

    def found(self, kind: str) -> dict[str, Any] | None:
        """The doctor's finding of a kind about the group; None without one."""
        ran = run_app(make_app("doctor"), "doctor", self.group, "--output", "json", *at(self.node.bootstrap))
        return next((each for each in ran.json if each["kind"] == kind), None)

    def is_at_work(self, instance_id: str) -> int:
        """The exit code of the probe."""
        named = ("--group", self.group, "--instance-id", instance_id)
        return run_app(make_app("members"), "members", "alive", *named, *at(self.node.bootstrap)).code

    def until(self, kind: str, says: str = "") -> dict[str, Any]:
        """The finding, once it is there and has these words."""

        def found() -> dict[str, Any] | None:
            it = self.found(kind)
            return it if it is not None and says in it["found"] else None

        return wait_until(found, f"{kind} {says}", WITHIN_S)

    def until_gone(self, kind: str) -> None:
        """Wait until there is no such finding."""
        wait_until(lambda: self.found(kind) is None, f"no {kind}", WITHIN_S)


@pytest.fixture
def scene(node: Node, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """A scene, in which any wait is a long one."""
    for module in (progress, progress_diagnosis, tracks):
        monkeypatch.setattr(module, "STUCK_MS", STUCK_MS)
    monkeypatch.setattr(progress_diagnosis, "TRANSIENT_MS", 0)
    monkeypatch.setattr(progress_diagnosis, "REBALANCES_MS", STUCK_MS)
    monkeypatch.setattr(examination, "WATCHED_MS", 2 * STUCK_MS)
    made = Scene(node)
    yield made
    made.end()


class Program:
    """A consumer that polls on a thread, until it hangs or stops. Only this thread calls it."""

    def __init__(self, scene: Scene, client_id: str, **more: Any) -> None:
        self.scene = scene
        settings = {
            "bootstrap.servers": scene.node.bootstrap, "group.id": scene.group, "client.id": client_id,
            "auto.commit.interval.ms": 200, "auto.offset.reset": "earliest", "log_level": 0,
        }  # fmt: skip
        self.consumer = Consumer(settings | more)
        self.consumer.subscribe([scene.topic])
        self.count = 0
        self.wanted: list[Callable[[], object]] = []
        self.runs, self.over = threading.Event(), threading.Event()
        self.runs.set()
        self.thread = threading.Thread(target=self._poll)
        self.thread.start()

    def _poll(self) -> None:
        while not self.over.is_set():
            self.runs.wait()
            self.consumer.poll(0.05)
            self.count = len(self.consumer.assignment())
            while self.wanted:
                self.wanted.pop()()

    def until_it_has(self, partitions: int) -> None:
        """Wait for its assignment."""
        wait_until(lambda: self.count == partitions, "partitions", WITHIN_S)

    def stop(self) -> None:
        """Leave."""
        self.over.set()
        self.runs.set()
        self.thread.join()
        self.consumer.close()


@contextmanager
def running(scene: Scene, client_id: str, **more: Any) -> Iterator[Program]:
    """A program, until the block ends."""
    made = Program(scene, client_id, **more)
    try:
        yield made
    finally:
        made.stop()


def test_a_program_that_hangs_and_a_partition_that_is_paused(scene: Scene) -> None:
    """Both send heartbeats; the first reads nothing, the second one of two partitions. Each finding ends when it reads.

    The probe of the static member says the same.
    """
    with running(scene, "slow", **{"group.instance.id": "seat"}) as program:
        program.until_it_has(2)
        wait_until(lambda: len(_committed(scene)) == 2, "committed offsets", WITHIN_S)
        scene.until_gone("partition_stuck")
        program.runs.clear()
        # On a busy machine the last commits of the two partitions may be so far apart that one seems to move at first.
        stuck = scene.until("partition_stuck", "none of its partitions moves")
        # Apache Kafka doesn't tell when it last heard of a member.
        pulse = "is alive" if isinstance(scene.node, Tenure) else "is in the group"
        assert f"(slow at 127.0.0.1) {pulse}, but has" in stuck["found"]
        assert "hangs in a handler" in stuck["advice"]
        program.runs.set()
        scene.until_gone("partition_stuck")
        one = [TopicPartition(scene.topic, 1)]
        program.wanted.append(lambda: program.consumer.pause(one))
        stuck = scene.until("partition_stuck")
        assert f"of {scene.topic}-1 at " in stuck["found"]
        assert f"{scene.topic}-0" not in stuck["found"]
        assert "others of its partitions move" in stuck["found"]
        program.wanted.append(lambda: program.consumer.resume(one))
        scene.until_gone("partition_stuck")


@pytest.mark.parametrize("level", LEVELS)
def test_the_end_of_a_transaction_is_no_stall(node: Node, level: str) -> None:
    """tests/client/test_ahead.py has it in full."""
    assert end_transactions(node.bootstrap, level, 30) == "partition_stuck"


def test_a_group_whose_last_member_left(scene: Scene) -> None:
    """Records wait for nobody, until a program comes back."""
    with running(scene, "last") as program:
        program.until_it_has(2)
        wait_until(lambda: _committed(scene) or None, "a committed offset", WITHIN_S)
    silent = scene.until("silent_group")
    assert "records wait" in silent["found"]
    assert "the last members: last at 127.0.0.1" in silent["found"]
    with running(scene, "next") as program:
        program.until_it_has(2)
        scene.until_gone("silent_group")


def _committed(scene: Scene) -> dict[int, int]:
    asked = [ConsumerGroupTopicPartitions(scene.group)]
    given = scene.admin.list_consumer_group_offsets(asked)[scene.group].result(WITHIN_S)
    return {each.partition: each.offset for each in given.topic_partitions}


def test_spare_members_and_partitions_without_one(scene: Scene) -> None:
    """A partition that is new to the clients has no member, until one comes. A fourth member of three is idle."""
    quiet = {"topic.metadata.refresh.interval.ms": -1}
    with running(scene, "a", **quiet) as a, running(scene, "b", **quiet) as b:
        a.until_it_has(1)
        b.until_it_has(1)
        scene.admin.create_partitions([NewPartitions(scene.topic, 3)])[scene.topic].result(WITHIN_S)
        assert f"no member has {scene.topic}-2" in scene.until("partition_ownerless")["found"]
        with running(scene, "c", **quiet) as c:
            c.until_it_has(1)
            scene.until_gone("partition_ownerless")
            with running(scene, "d", **quiet):
                assert " at 127.0.0.1), since " in scene.until("member_ready_but_idle")["found"]
            scene.until_gone("member_ready_but_idle")


def test_members_that_come_and_go_make_a_loop(scene: Scene) -> None:
    """A program that is started again and again is named; a program that came once isn't."""
    with running(scene, "stays") as stays:
        stays.until_it_has(2)
        for _ in range(4):
            with running(scene, "flaps") as flaps:
                flaps.until_it_has(1)
            stays.until_it_has(2)
        loop = scene.until("rebalance_loop")
        assert "flaps at 127.0.0.1" in loop["found"]
        assert "stays at 127.0.0.1" not in loop["found"]


def test_a_rebalance_that_waits_for_a_program_that_hangs(scene: Scene) -> None:
    """Kafka doesn't say for whom a classic group waits; Tenure does, with a finding of its own."""
    kind = "members_not_rejoined" if isinstance(scene.node, Tenure) else "rebalancing"
    with running(scene, "hangs") as hangs:
        hangs.until_it_has(2)
        hangs.runs.clear()
        with running(scene, "comes") as comes:
            found = scene.until(kind)
            assert found["severity"] in {"notice", "error"}
            if kind == "rebalancing":
                wait_until(lambda: scene.until(kind)["severity"] == "error", "an error", WITHIN_S)
            hangs.runs.set()
            comes.until_it_has(1)
        scene.until_gone(kind)


def test_offsets_that_go_back_and_records_that_are_deleted(scene: Scene) -> None:
    """Two looks show the first; the start of the log shows the second. New offsets end both."""
    known, latest = Progress(), OffsetSpec.latest()  # type: ignore[no-untyped-call]

    def place(offset: int) -> TopicPartition:
        return TopicPartition(scene.topic, 0, offset)

    def end() -> int:
        found = scene.admin.list_offsets({place(0): latest})
        return int(next(iter(found.values())).result(WITHIN_S).offset)

    with running(scene, "reads", **{"enable.auto.commit": False}) as program:

        def commit(offset: int) -> None:
            program.wanted.append(lambda: program.consumer.commit(offsets=[place(offset)], asynchronous=False))
            wait_until(lambda: _committed(scene).get(0) == offset, "a committed offset", WITHIN_S)

        program.until_it_has(2)
        wait_until(lambda: end() > 5, "records", WITHIN_S)
        commit(5)
        assert not {"commit_back", "behind_retention"} & _kinds(scene, known)
        commit(1)
        assert "commit_back" in _kinds(scene, known)
        scene.admin.delete_records([place(5)])[place(0)].result(WITHIN_S)
        assert "behind_retention" in _kinds(scene, known)
        commit(5)
        assert not {"commit_back", "behind_retention"} & _kinds(scene, known)


def test_records_that_will_be_deleted_before_anybody_reads_them(scene: Scene) -> None:
    """Their age and the topic's retention.ms say how soon."""
    topic = f"old-{scene.topic}"
    kept = NewTopic(topic, 1, 1, config={"retention.ms": "3600000"})
    scene.admin.create_topics([kept])[topic].result(WITHIN_S)
    producer = Producer({"bootstrap.servers": scene.node.bootstrap, "log_level": 0})
    for number in range(9):
        producer.produce(topic, b"x", partition=0, timestamp=_now_ms() - 3_500_000 + number)
    producer.flush(WITHIN_S)
    committed = ConsumerGroupTopicPartitions(scene.group, [TopicPartition(topic, 0, 5)])
    scene.admin.alter_consumer_group_offsets([committed])[scene.group].result(WITHIN_S)
    found = scene.until("behind_retention")
    assert found["severity"] == "warning"
    assert f"before the group reads them, the first ones within 6 minutes: {topic}-0 at 5" in found["found"]


def _kinds(scene: Scene, known: Progress) -> set[str]:
    """The kinds of the findings at one more look."""
    with Client(scene.node.bootstrap, WITHIN_S) as client:
        now_ms = _now_ms()
        _, found = examine(client, {scene.group: []}, [], now_ms, progress=known)
    return {each.kind for each in found if each.group_id == scene.group}


def test_healthy_churn_has_no_finding_about_progress(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A roll of programs that read: at no look is anything stuck."""
    kinds = {
        "partition_stuck",
        "partition_ownerless",
        "rebalance_loop",
        "commit_back",
        "behind_retention",
        "silent_group",
    }
    monkeypatch.setattr(progress_diagnosis, "TRANSIENT_MS", 10_000)
    known, seen = Progress(), set[str]()
    with running(scene, "stays"):
        for number in range(3):
            with running(scene, f"rolled-{number}") as rolled:
                rolled.until_it_has(1)
                seen |= _kinds(scene, known)
            seen |= _kinds(scene, known)
    assert not kinds & seen


def test_an_observer_names_each_stall_as_an_event(node: Node, tmp_path: Path) -> None:
    """Nobody looks at its page: each finding begins, and the ones that are mended end. `pytest -s` shows the times."""
    file, kinds = tmp_path / "events.jsonl", {}
    scenes = {name: Scene(node) for name in ("hangs", "leaves", "spare", "grown", "back", "lost", "loop", "waits")}
    quiet, by_hand = {"topic.metadata.refresh.interval.ms": -1}, {"enable.auto.commit": False}
    is_tenure = isinstance(node, Tenure)

    def begun(name: str, kind: str) -> dict[str, Any] | None:
        """The event of a finding, once the observer has written it."""
        for line in file.read_text().splitlines():
            event = json.loads(line)
            if (event["type"], event["group"], event.get("kind")) == (began, scenes[name].group, kind):
                return dict(event)
        return None

    began = "finding_began"
    with ExitStack() as stack:
        for scene in scenes.values():
            stack.callback(scene.end)
        file.touch()
        stack.enter_context(observing(node.bootstrap, tmp_path, "--events", str(file)))

        def start(name: str, client_id: str, partitions: int, **more: Any) -> Program:
            program = stack.enter_context(running(scenes[name], client_id, **more))
            program.until_it_has(partitions)
            return program

        def commit(program: Program, offset: int) -> None:
            place = TopicPartition(program.scene.topic, 0, offset)
            program.wanted.append(lambda: program.consumer.commit(offsets=[place], asynchronous=False))
            wait_until(lambda: _committed(program.scene).get(0) == offset, "a committed offset", WITHIN_S)

        hangs, waits = start("hangs", "hangs", 2), start("waits", "hangs", 2)
        back, lost = start("back", "back", 2, **by_hand), start("lost", "lost", 2, **by_hand)
        for partitions in (2, 1):  # the second one takes a partition of the first one
            start("grown", "grown", partitions, **quiet)
            start("spare", "reads", partitions)
        loop = start("loop", "stays", 2)
        commit(back, 5)
        commit(lost, 1)
        wait_until(lambda: len(_committed(scenes["hangs"])) == 2, "committed offsets", WITHIN_S)
        with running(scenes["leaves"], "last") as last:
            last.until_it_has(2)
            wait_until(lambda: _committed(scenes["leaves"]) or None, "a committed offset", WITHIN_S)
        kinds["leaves"] = "silent_group", _now_ms()
        hangs.runs.clear()
        kinds["hangs"] = "partition_stuck", _now_ms()
        stack.callback(waits.runs.set)
        waits.runs.clear()
        stack.enter_context(running(scenes["waits"], "comes"))
        if not is_tenure:  # a finding of its own names the members there
            kinds["waits"] = "rebalancing", _now_ms()
        stack.enter_context(running(scenes["spare"], "spare"))
        kinds["spare"] = "member_ready_but_idle", _now_ms()
        topic = scenes["grown"].topic
        scenes["grown"].admin.create_partitions([NewPartitions(topic, 3)])[topic].result(WITHIN_S)
        kinds["grown"] = "partition_ownerless", _now_ms()
        place = TopicPartition(scenes["lost"].topic, 0, 3)
        scenes["lost"].admin.delete_records([place])[place].result(WITHIN_S)
        kinds["lost"] = "behind_retention", _now_ms()
        for _ in range(4):
            with running(scenes["loop"], "flaps") as flaps:
                flaps.until_it_has(1)
            loop.until_it_has(2)
        kinds["loop"] = "rebalance_loop", _now_ms()

        def named(name: str) -> str:
            kind, since_ms = kinds[name]
            event = wait_until(partial(begun, name, kind), f"{kind} of {name}", WITHIN_S)
            print(f"{kind}: {(event['at_ms'] - since_ms) / 1_000:.1f} s: {event['found']}")
            return str(event["found"])

        found = {name: named(name) for name in kinds}
        owners = {"hangs": "hangs", "leaves": "last", "loop": "flaps"}
        assert [name for name, owner in owners.items() if owner not in found[name]] == []
        commit(back, 1)  # looks have seen the former offset meanwhile
        kinds["back"] = "commit_back", _now_ms()
        assert "from 5 to 1" in named("back")
        began = "finding_ended"
        hangs.runs.set()
        waits.runs.set()
        commit(back, 6)
        commit(lost, 6)
        for name in ("hangs", "back", "lost", *([] if is_tenure else ["waits"])):
            wait_until(partial(begun, name, kinds[name][0]), f"the end of {name}", WITHIN_S)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
