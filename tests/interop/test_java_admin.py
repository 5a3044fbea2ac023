"""Kafka's AdminClient in Java, 3.9.1, gets the same answers from Tenure and from Apache Kafka.

Admin.java sends requests step by step and prints the answers, with their errors.

House rule: both servers are new, and get the same requests in the same order.
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

OWN_DEFAULT = {"offsets.topic.segment.bytes", "queued.max.request.bytes", "socket.listen.backlog.size"}
"""Settings with another default than Kafka's: see docs/start/differences.md."""

NEWER = {"group.consumer.assignors", "group.coordinator.append.linger.ms", "group.coordinator.rebalance.protocols"}
"""Settings of the consumer protocol whose defaults are those of Kafka 4.4."""

Said = dict[str, Any]


def ask(bootstrap: str) -> dict[str, Said]:
    """Return Admin.java's answers by phase and step; static members live in phase three and are dead in four."""
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
    """Return the answers by server."""
    with ApacheKafka(SETTINGS) as kafka:
        apache = ask(kafka.bootstrap)
    with Tenure({**SETTINGS, "tenure.events.enable": "false"}) as tenure:
        yield {"apache": apache, "tenure": ask(tenure.bootstrap)}


@pytest.mark.parametrize("phase", PHASES)
def test_it_hears_the_same(heard: Mapping[str, dict[str, Said]], phase: str) -> None:
    """Values and errors are the same; broker settings are compared if both servers have them with a default."""
    apache, tenure = heard["apache"][phase], heard["tenure"][phase]
    if phase == "settings":
        common = apache["broker"].keys() & tenure["broker"].keys() - OWN_DEFAULT - NEWER
        assert len(common) > 10
        for said in (apache, tenure):
            said["broker"] = {name: said["broker"][name] for name in common}
    assert tenure.keys() == apache.keys()
    assert {step: (tenure[step], apache[step]) for step in apache if tenure[step] != apache[step]} == {}
