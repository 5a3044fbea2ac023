"""Random histories: what a seed draws. How well their causes are inferred is measured by tests.observe.accuracy."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, cast

import pytest

from tests.observe.random_histories import DEFAULT, Round, traits_of
from tests.observe.stage import Stage


class Program:
    """Stands in for a consumer's process, which a seed may start some thousand times here."""

    def __init__(self, name: str, said: list[str]) -> None:
        self._name = name
        self._said = said
        self.is_running = True

    def tell(self, do: str, **_fields: Any) -> None:
        """Note the command."""
        self._said.append(f"{do} {self._name}")
        self.is_running &= do != "close"

    def kill(self) -> None:
        """Note it."""
        self._said.append(f"kill {self._name}")
        self.is_running = False

    def signal(self, number: int) -> None:
        """Note it."""
        self._said.append(f"signal {number} {self._name}")


class Nowhere:
    """Stands in for the stage: notes what it is told, and its time passes only in pauses."""

    group = "g"

    def __init__(self) -> None:
        self.said: list[str] = []
        self.now_s = 0.0
        self.topics: list[str] = []

    def pause(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds

    def topic(self, partitions: int) -> None:
        """Make a topic."""
        self.topics.append(f"t{len(self.topics)}")
        self.said.append(f"topic {partitions}")

    def start(self, name: str, *, topics: Any, instance_id: str | None, **_settings: Any) -> Program:
        """Start a consumer."""
        self.said.append(f"start {name} {instance_id} {topics}")
        return Program(name, self.said)

    def remove(self, *instance_ids: str) -> None:
        """Note it."""
        self.said.append(f"remove {instance_ids}")

    def grow_by(self, topic: str, more: int, most: int) -> None:
        """Note it."""
        self.said.append(f"grow {topic} {more} {most}")

    def until(self, *_what: Any, **_more: Any) -> None:
        """Nothing to wait for."""


def drawn(seed: int, protocol: str = "classic", *, default: bool = False) -> list[str]:
    """The actions of a round."""
    chance = random.Random(seed)
    traits = traits_of(chance, protocol, default=default)
    stage = Nowhere()
    Round(cast("Stage", stage), traits, chance, lambda: stage.now_s).play()
    assert stage.now_s <= traits.timing.lasts_s
    return stage.said


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_seed_draws_one_round(protocol: str) -> None:
    """The same seed does the same things; another seed does others."""
    assert drawn(1, protocol) == drawn(1, protocol)
    assert drawn(1, protocol) != drawn(2, protocol)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("default", [False, True])
def test_rounds_do_all_that_users_do(protocol: str, default: bool) -> None:
    """Every action comes up, and most rounds do more than a few things."""
    rounds = [drawn(seed, protocol, default=default) for seed in range(200)]
    did = Counter(line.split()[0] for each in rounds for line in each)
    expected = {"topic", "start", "close", "kill", "signal", "remove", "grow", "subscribe"}
    assert expected | (set() if default else {"sleep", "hold"}) == did.keys()
    assert sum(map(len, rounds)) > 20 * len(rounds)
    assert default == (traits_of(random.Random(1), protocol, default=default).timing is DEFAULT)
