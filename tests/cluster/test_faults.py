"""Each kind of fault of a cluster, with the same demand: no rebalance, no lost commit, no late yes (stage.py).

Each test has a short form, for `make test-cluster`, and a long one for `make nightly`, with more seeds and longer
faults. A seed decides which node or member it hits.

House rule: real processes alone, and no assertion about a time.
"""

from __future__ import annotations

import base64
import io
import itertools
import random
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.log.cluster.keys import parse_head
from tests.cluster.random_faults import play
from tests.cluster.stage import IS_LONG, REAL_SESSION_TIMEOUT_MS, SESSION_TIMEOUT_MS, Stage
from tests.support.cluster_history import SANDWICH_S
from tests.support.etcd import ROOT, EtcdError
from tests.support.patience import WITHIN_S
from tests.support.tenure import tenure_command, wait_until
from tests.support.tenure_cluster import LEASE_MS

pytestmark = [pytest.mark.etcd, pytest.mark.cluster]

SEEDS = range(5) if IS_LONG else range(1)
FROZEN_S = 8.0
"""Longer than a lease (3 s) and an election of etcd."""
LEASE_S = LEASE_MS / 1000
WITHOUT_QUORUM_S = 30.0 if IS_LONG else 12.0
"""Longer than a session timeout (10 s): no member may expire."""
NOT_AVAILABLE = 15
NO_SPACE = "database space exceeded"
"""etcd's words for a write that it refuses until it has space again."""
ALTERED = [sys.executable, "-m", "tests.cluster.altered_node"]
HOUR_S = 3_600
COMMITS_AGO = 20
PACKAGES = ("coordinator", "protocol", "schemas")


class Shared:
    """The stage of most tests, made when one needs it. After a test that fails, the next one gets a new stage."""

    def __init__(self) -> None:
        self._stage: Stage | None = None

    def take(self) -> Stage:
        """The stage, in order."""
        if self._stage is not None and not self._stage.is_sound:
            self.close()
        if self._stage is None:
            self._stage = Stage(proxied=True).__enter__()
        self._stage.is_sound = False
        return self._stage

    def close(self) -> None:
        """End all that it started."""
        stage, self._stage = self._stage, None
        if stage is not None:
            stage.__exit__(None, None, None)


@pytest.fixture(scope="module")
def shared() -> Iterator[Shared]:
    """Yield the stage of this process."""
    made = Shared()
    yield made
    made.close()


@pytest.fixture
def stage(shared: Shared) -> Stage:
    """Return a stage in order; the test calls its `check` last."""
    return shared.take()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_is_killed_and_comes_back(stage: Stage, seed: int) -> None:
    """SIGKILL: the others take its groups over; it comes back and gets its share."""
    node = random.Random(seed).choice(stage.cluster.nodes)
    node.kill()
    stage.recover()
    node.start()
    stage.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_that_was_frozen_says_no_more_yes(stage: Stage, seed: int) -> None:
    """SIGSTOP for longer than its lease; clients send it requests all the time, and it gets them when it wakes up."""
    node = random.Random(seed).choice(stage.cluster.nodes)
    stage.probe.anchor(FROZEN_S + 3)
    node.freeze()
    stage.probe.wait(FROZEN_S)
    node.thaw()
    stage.probe.wait(3)
    stage.check()


def test_a_busy_node_that_was_frozen_says_no_more_yes(stage: Stage) -> None:
    """It has a new lease before its loop has heard of all partitions that it has lost."""
    node = stage.cluster.nodes[0]
    node.stop()
    node.program, node.environment["ALTERED"] = ALTERED, "busy"
    node.start()
    stage.cluster.wait_until_settled()
    stage.recover()
    stage.probe.anchor(FROZEN_S + 3)
    node.freeze()
    stage.probe.wait(FROZEN_S)
    node.thaw()
    stage.cluster.wait_until_settled()
    stage.recover()
    # A group that moves to the node and away at once looks as if the node had answered late.
    stage.probe.wait(SANDWICH_S)
    node.stop()
    node.program = tenure_command()
    del node.environment["ALTERED"]
    node.start()
    stage.check()


def test_a_wall_clock_steps(stage: Stage, tmp_path: Path) -> None:
    """By an hour, back and forth, on a node that serves, and while it is frozen: it keeps its lease, and is never late.

    The machine of the other nodes keeps its time.
    """
    node = stage.cluster.nodes[0]
    offset = tmp_path / "offset"
    offset.write_text("0")
    mark = node.mark()
    node.stop()
    node.program = ALTERED
    node.environment["WALL_CLOCK"] = str(offset)
    node.start()
    stage.cluster.wait_until_settled()
    stage.recover()
    before = epochs(stage)
    stage.probe.anchor(3 * FROZEN_S)
    for step_s in (HOUR_S, -HOUR_S):
        offset.write_text(str(step_s))
        stage.probe.wait(LEASE_S + 2)
        stage.recover()
    assert epochs(stage) == before
    node.freeze()
    stage.probe.wait(FROZEN_S)
    offset.write_text(str(HOUR_S))
    node.thaw()
    stage.cluster.wait_until_settled()
    stage.recover()
    # A group that moves to the node and away at once looks as if the node had answered late.
    stage.probe.wait(SANDWICH_S)
    node.stop()
    assert len({line["ts"][:13] for line in node.events(since=mark)}) > 1, "its log shows that the clock stepped"
    node.program = tenure_command()
    node.start()
    stage.check()


def epochs(stage: Stage) -> dict[str, int]:
    """Of each partition: a claim raises it."""
    heads = stage.etcd.values(f"/{stage.cluster.name}/head/")
    return {name: parse_head(value).epoch for name, value in heads.items()}


def test_nodes_of_two_versions_roll(stage: Stage, old_version: Path) -> None:
    """Down to an older commit and up again, a node at a time: nodes of both serve together, and no group rebalances."""
    for path in (str(old_version), ""):
        for node in stage.cluster.nodes:
            assert node.stop() == 0
            node.environment["PYTHONPATH"] = path
            node.start()
            stage.recover()
    stage.check()


def git(*arguments: str) -> bytes:
    """Run git in this repository."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout


@pytest.fixture(scope="module")
def old_version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of COMMITS_AGO commits ago; of the oldest commit there is, if a clone has fewer."""
    folder = tmp_path_factory.mktemp("old")
    commits = git("rev-list", f"--max-count={COMMITS_AGO + 1}", "HEAD").decode().split()
    packed = git("archive", commits[-1], *PACKAGES)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder)
    # A node's program begins with the interpreter and the path that it has here.
    asked = [sys.executable, "-P", "-c", "import coordinator.cli.main as main; print(main.__file__)"]
    found = subprocess.run(asked, env={"PYTHONPATH": str(folder)}, capture_output=True, text=True, check=True).stdout
    assert Path(found.strip()).is_relative_to(folder), found
    return folder


@pytest.mark.parametrize("seed", SEEDS)
def test_a_member_of_etcd_that_was_frozen_brings_no_old_value_back(stage: Stage, seed: int) -> None:
    """Each member in turn is frozen with writes under way in it, which the nodes send again through another one."""
    numbers = [0, 1, 2]
    random.Random(seed).shuffle(numbers)
    for number in numbers:
        stage.etcd.members[number].freeze()
        stage.recover()
        stage.probe.wait(1)
        stage.etcd.members[number].thaw()
        stage.etcd.wait_for(number)
    stage.check()


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_etcd_loses_its_leader(stage: Stage, how: str) -> None:
    """The leader dies, or stands still for long: the others elect one."""
    leader = stage.etcd.leader()
    member = stage.etcd.members[leader]
    if how == "killed":
        member.kill()
        stage.recover()
        stage.etcd.restart(leader)
    else:
        member.freeze()
        stage.recover()
        stage.probe.wait(3)
        member.thaw()
        stage.etcd.wait_for(leader)
    stage.check()


@pytest.mark.parametrize("count", [2, 3])
def test_etcd_has_no_majority_for_long(stage: Stage, count: int) -> None:
    """Two or all members are dead for longer than a session timeout: nothing goes on, and no member expires."""
    for member in stage.etcd.members[:count]:
        member.kill()
    stage.probe.wait(WITHOUT_QUORUM_S)
    for number in range(count):
        stage.etcd.restart(number)
    stage.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_is_cut_off_from_etcd(stage: Stage, seed: int) -> None:
    """Its clients stay connected, and hear NOT_COORDINATOR; others take its groups over."""
    node = random.Random(seed).choice(stage.cluster.nodes)
    stage.probe.anchor(FROZEN_S + 3)
    node.cut()
    stage.probe.wait(FROZEN_S)
    node.heal()
    stage.probe.wait(3)
    stage.check()


def test_etcd_has_no_space() -> None:
    """etcd refuses writes: commits get COORDINATOR_NOT_AVAILABLE, heartbeats a yes. With space again, all goes on."""
    quota = 16 << 20
    with Stage(etcd_arguments=["--quota-backend-bytes", str(quota)]) as stage:
        began = stage.probe.now()
        numbers = itertools.count()
        value = base64.b64encode(bytes(1 << 20)).decode()

        def is_full() -> bool:
            key = base64.b64encode(b"other/%d" % next(numbers)).decode()
            try:
                stage.etcd.ask("/v3/kv/put", {"key": key, "value": value})
            except (EtcdError, OSError) as error:  # a slow disk has other reasons
                return NO_SPACE in str(error)
            return False

        wait_until(is_full, "etcd has no space", WITHIN_S)
        refused = lambda: any(  # noqa: E731 - two words for two loops
            each.error == NOT_AVAILABLE and each.kind == "commit" and each.sent > began for each in stage.probe.history
        )
        wait_until(refused, "a commit is refused", WITHIN_S)
        full = stage.probe.now()
        wait_until(
            lambda: any(each.kind == "heartbeat" and each.is_yes and each.sent > full for each in stage.probe.history),
            "a heartbeat is answered",
            WITHIN_S,
        )
        make_space(stage, b"other/", b"other0")
        stage.check()


def make_space(stage: Stage, first: bytes, last: bytes) -> None:
    """Remove these keys, compact, defragment each member, and disarm the alarm."""
    keys = {"key": base64.b64encode(first).decode(), "range_end": base64.b64encode(last).decode()}
    revision = stage.etcd.ask("/v3/kv/deleterange", keys)["header"]["revision"]
    stage.etcd.ask("/v3/kv/compaction", {"revision": revision, "physical": True})
    for number in range(3):
        stage.etcd.ask("/v3/maintenance/defragment", {}, number)
    for alarm in stage.etcd.ask("/v3/maintenance/alarm", {"action": "GET"}).get("alarms", []):
        stage.etcd.ask("/v3/maintenance/alarm", {**alarm, "action": "DEACTIVATE"})


@pytest.mark.parametrize("seed", SEEDS)
def test_one_partition_of_a_busy_node_is_fenced(stage: Stage, seed: int) -> None:
    """A foreign head appears on one partition: its owner is fenced there, and all others go on, each write once."""
    chance = random.Random(seed)
    for _ in range(5):
        heads = stage.etcd.values(f"/{stage.cluster.name}/head/")
        name, value = chance.choice(sorted(heads.items()))
        epoch = int(value.split(b":")[0])
        pair = {"key": base64.b64encode(name.encode()).decode()}
        foreign = f"{epoch + 1}:0:999/1".encode()
        stage.etcd.ask("/v3/kv/put", {**pair, "value": base64.b64encode(foreign).decode()})
        stage.recover()
    stage.check()


def test_nodes_and_etcd_roll() -> None:
    """SIGTERM and start of each node, then of each member of etcd, under many static members."""
    # One loop plays the 1,000 members of the long form: beside other programs it may be silent for more than 10 s.
    groups, members, pause_s, session_ms = (
        (50, 20, 1.0, REAL_SESSION_TIMEOUT_MS) if IS_LONG else (20, 5, 0.5, SESSION_TIMEOUT_MS)
    )
    with Stage(groups=groups, members=members, pause_s=pause_s, session_timeout_ms=session_ms) as stage:
        for node in stage.cluster.nodes:
            assert node.stop() == 0
            node.start()
            stage.recover()
        for number, member in enumerate(stage.etcd.members):
            member.stop()
            stage.recover()
            stage.etcd.restart(number)
        stage.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_random_faults(stage: Stage, seed: int) -> None:
    """Faults of all kinds, one after the other and on top of each other: 20 s, or 4 minutes for each seed."""
    chance = random.Random(seed)
    until = stage.probe.now() + (240.0 if IS_LONG else 20.0)
    play(stage, chance, until)
    stage.check()
