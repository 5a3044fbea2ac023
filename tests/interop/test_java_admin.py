"""Kafka's AdminClient in Java, 3.9.1: what it is told by Tenure is what it is told by Apache Kafka.

Admin.java asks step by step and prints what it hears, errors among it.

House rule: both servers are new, and hear the same in the same order.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.interop.conftest import SETTINGS
from tests.interop.fleet import ConsumerProcess, Fleet
from tests.interop.java.programs import command
from tests.support.apache import ApacheKafka, jars
from tests.support.tenure import Tenure

pytestmark = pytest.mark.oracle

SEATS = ("seat-0", "seat-1", "seat-2")
PHASES = ("topics", "settings", "live", "gone")

SMALLER = {"offsets.topic.segment.bytes"}
"""What is smaller by default than Kafka's: see docs/settings.md."""

Said = dict[str, Any]


def ask(bootstrap: str) -> dict[str, Said]:
    """What Admin.java heard, by phase and step; three static members live in the third, and are dead in the fourth."""
    said: dict[str, Said] = {}
    members: list[ConsumerProcess] = []
    with (
        subprocess.Popen(
            [*command("Admin", jars()), bootstrap], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process,
        Fleet(bootstrap, "orders", 4) as fleet,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        for phase in PHASES:
            if phase == "live":
                members = [fleet.start("confluent-kafka", "seats", group_instance_id=seat) for seat in SEATS]
                fleet.wait_until_shared(members)
            elif phase == "gone":
                for member in members:
                    member.kill()
            process.stdin.write(phase + "\n")
            process.stdin.flush()
            said[phase] = json.loads(process.stdout.readline())
        process.stdin.close()
        assert process.wait() == 0
    return said


@pytest.fixture(scope="module")
def heard(java: None) -> Iterator[Mapping[str, dict[str, Said]]]:
    """By server."""
    with ApacheKafka(SETTINGS) as kafka:
        apache = ask(kafka.bootstrap)
    with Tenure({**SETTINGS, "tenure.events.enable": "false"}) as tenure:
        yield {"apache": apache, "tenure": ask(tenure.bootstrap)}


@pytest.mark.parametrize("phase", PHASES)
def test_it_hears_the_same(heard: Mapping[str, dict[str, Said]], phase: str) -> None:
    """Values and errors; of the brokers' settings those that both have, if nobody has set them."""
    apache, tenure = heard["apache"][phase], heard["tenure"][phase]
    if phase == "settings":
        common = apache["broker"].keys() & tenure["broker"].keys() - SMALLER
        assert len(common) > 10
        for said in (apache, tenure):
            said["broker"] = {name: said["broker"][name] for name in common}
    assert tenure.keys() == apache.keys()
    assert {step: (tenure[step], apache[step]) for step in apache if tenure[step] != apache[step]} == {}
