"""`tenure seats` in races and under faults, on a real control plane: nothing is freed wrongly, everything late at most.

`make test-kubernetes` has seconds of each, `make nightly` minutes, and 1,000 races. Planted faults show that the judge
would tell (judge.py).
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.planted import FAULTS
from tests.kubernetes.races import Races
from tests.kubernetes.stage import SETTINGS, Stage, names
from tests.support.length import rounds
from tests.support.patience import WITHIN_S
from tests.support.tenure import Tenure, wait_until

pytestmark = pytest.mark.kubernetes

SECONDS = rounds(8.0, 8.0, 120.0)
AWAY_S = rounds(4.0, 4.0, 60.0)
"""The time for which a server is away, in seconds."""
SETS = 6
on_tenure = pytest.mark.parametrize("broker", ["tenure"], indirect=True)
SESSION_MS = rounds(10_000, 10_000, 20_000)
"""Of members: the longest that a seat stays which nobody may free."""


@pytest.fixture(scope="module")
def tenure() -> Iterator[Tenure]:
    """Yield a server of groups for members of this process."""
    with Tenure(SETTINGS | {"group.initial.rebalance.delay.ms": "0"}) as started:
        yield started


def most_are_nightly() -> list[Any]:
    """The planted faults; `make test-kubernetes` has those that show soon."""
    soon = {"frees_on_terminating", "forgets_the_member_id"}
    return [each if each in soon else pytest.param(each, marks=pytest.mark.nightly) for each in FAULTS]


def controllers_end(races: Races) -> None:
    """Kill a controller, or let it stand still, at a random moment."""
    races.pause(3.0 * races.random.random())
    index = races.random.randrange(len(races.running))
    if races.random.random() < 0.5:
        races.restart_controller(index)
        return
    races.running[index].send_signal(signal.SIGSTOP)
    races.pause(4.0 * races.random.random())
    races.running[index].send_signal(signal.SIGCONT)


def api_server_goes(races: Races) -> None:
    """The API server is away for some time; nobody can go on from an old version then: etcd has forgotten it."""
    races.pause(3.0 * races.random.random())
    races.plane.kill_api_server()
    races.plane.compact()
    races.pause(AWAY_S)
    races.plane.start_api_server()
    races.pause(AWAY_S)


def kafka_goes(races: Races) -> None:
    """The server of groups is away for some time, or stands still."""
    races.pause(2.0 * races.random.random())
    if races.random.random() < 0.5:
        races.tenure.kill()
        races.pause(AWAY_S / 2)
        races.tenure.start()
    else:
        races.tenure.send_signal(signal.SIGSTOP)
        races.pause(AWAY_S / 2)
        races.tenure.send_signal(signal.SIGCONT)
    races.pause(AWAY_S)


def test_races_free_no_seat_wrongly(plane: ControlPlane, tenure: Tenure) -> None:
    """Two controllers free all seats of random scale-downs at once, but those of pods that were forced out."""
    with Races(plane, tenure, 1, sets=SETS, session_ms=SESSION_MS) as races:
        with races.controllers(2):
            races.run(SECONDS)
        print(races.summary())
        assert races.problems() == []
        assert races.late() == []


@pytest.mark.parametrize("fault", [controllers_end, api_server_goes, kafka_goes])
def test_faults_free_no_seat_wrongly(plane: ControlPlane, tenure: Tenure, fault: Callable[[Races], None]) -> None:
    """A seat that a controller can't free at once ends with its session at the latest."""
    with Races(plane, tenure, 2, sets=SETS, session_ms=SESSION_MS, forces=False) as races:
        with races.controllers(2):
            races.run(SECONDS, fault)
        print(races.summary())
        assert races.problems() == []


@on_tenure
def test_an_api_server_that_was_away_is_followed_again(stage: Stage) -> None:
    """Nothing is freed for it, though all watches begin anew; the next scale-down frees a seat."""
    stage.create(3)
    since = stage.broker.mark()
    with stage.controller("--free") as controller:
        stage.plane.kill_api_server()
        controller.wait_for("^.*pods: trying again")
        stage.plane.compact()
        stage.plane.pause(AWAY_S)
        stage.plane.start_api_server()
        controller.wait_for("pods: it works again")
        controller.wait_for("sets: it works again")
        assert stage.broker.rebalances(stage.group_id, since) == 0
        stage.change({"replicas": 2})
        controller.wait_for("freed w-2 of group")
        assert len(controller.lines("pods: trying again")) == 1
    assert set(stage.wait_until_members(2)) == set(names(0, 1))


@on_tenure
def test_old_news_frees_nothing(stage: Stage) -> None:
    """A controller stands still while a pod ends, and its set grows again: it hears of the end when the pod is back."""
    stage.create(3)
    since = stage.broker.mark()
    with stage.controller("--free") as controller:
        before = stage.wait_until_members(3)
        controller.send_signal(signal.SIGSTOP)
        stage.change({"replicas": 2})
        stage.wait_until_running(set(names(0, 1)))
        stage.change({"replicas": 3})
        stage.wait_until_running(set(names(0, 1, 2)))
        wait_until(lambda: stage.wait_until_members(3)["w-2"] != before["w-2"], "it is back", WITHIN_S)
        controller.send_signal(signal.SIGCONT)
        stage.delete_pod("w-0")
        controller.wait_for("kept w-0 of group")  # what was before it has been heard of
        assert controller.lines("freed") == []
    assert stage.broker.rebalances(stage.group_id, since) == 0


@pytest.mark.nightly
def test_a_thousand_races(plane: ControlPlane, tenure: Tenure) -> None:
    """The same holds for other seeds, until sets have changed 1,000 times."""
    changes, seed = 0, 100
    while changes < 1_000:
        seed += 1
        with Races(plane, tenure, seed, sets=2 * SETS, session_ms=SESSION_MS) as races:
            with races.controllers(2):
                races.run(60.0)
            print(f"seed {seed}: {races.summary()}")
            assert races.problems() == []
            changes += races.changes


@pytest.mark.parametrize("fault", most_are_nightly())
def test_a_planted_fault_is_found(plane: ControlPlane, tenure: Tenure, fault: str) -> None:
    """The judge names each planted fault."""
    command = (sys.executable, "-m", "tests.kubernetes.planted", fault)
    with Races(plane, tenure, 3, sets=SETS, session_ms=SESSION_MS, command=command) as races, races.controllers(1):
        until = time.monotonic() + WITHIN_S
        races.run_until(lambda: races.problems() != [] or time.monotonic() > until)
        assert any("removed" in each for each in races.problems())
