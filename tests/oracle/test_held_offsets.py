"""Our own doctor on Apache Kafka 3.9 and 4.4 and on Tenure, about transactions in which offsets are pending."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from coordinator.story import transaction_diagnosis
from tests.cli.conftest import Ran, at, make_app, run_app
from tests.oracle.conftest import CONSUMER_NODES, SAME_NAME
from tests.oracle.producer import producer
from tests.oracle.stage import Stage
from tests.support.apache import VERSION, VERSION_44, ApacheKafka
from tests.support.patience import WITHIN_S
from tests.support.tenure import Tenure, wait_until
from tests.support.topics import make_topics

SETTINGS = {
    **CONSUMER_NODES["transactions"],
    **SAME_NAME,
    # Else Kafka lets nobody write offsets of a transaction that its coordinator doesn't have.
    "transaction.partition.verification.enable": "false",
}

Node = ApacheKafka | Tenure


APACHE = [pytest.param(version, marks=pytest.mark.oracle) for version in (VERSION, VERSION_44)]


@pytest.fixture(scope="module", params=["tenure", *APACHE])
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    """A server with a topic."""
    made: Node
    if request.param == "tenure":
        made = Tenure(SETTINGS)
    else:
        request.getfixturevalue("kafka_is_here")
        made = ApacheKafka(SETTINGS, version=request.param)
    with made as started:
        make_topics(started.bootstrap, {"t": 1})
        yield started


@pytest.fixture
def run(node: Node, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Runs a command, to which any wait is a long one."""
    monkeypatch.setattr(transaction_diagnosis, "AWAITED_MS", 0)
    return lambda *arguments: run_app(make_app(arguments[0]), *arguments, *at(node.bootstrap))


def found(run: Callable[..., Ran], group: str) -> list[dict[str, Any]]:
    """The findings of the doctor about transactions, which `explain` has too."""
    told = [each for each in run("doctor", group, "--output", "json").json if each["kind"] == "hanging_transaction"]
    ran = run("explain", group)
    assert all(each["found"] in ran.out and each["advice"] in ran.out for each in told)
    assert run("explain", group, "--output", "json").json["held_back"] == told
    return told


def test_the_program_of_an_open_transaction_is_started_again(node: Node, run: Callable[..., Ran]) -> None:
    """Its group's offsets are pending, though it never committed before: the finding names it, until it is back."""
    group = f"group-{uuid.uuid4().hex[:8]}"
    common = {"bootstrap.servers": node.bootstrap}
    consumer = Consumer({**common, "group.id": group, "isolation.level": "read_committed"})
    consumer.subscribe(["t"])
    wait_until(lambda: consumer.poll(0.1) or consumer.assignment(), "the consumer has its partition", WITHIN_S)
    first = Producer({**common, "transactional.id": f"{group}-mover"})
    first.init_transactions(WITHIN_S)
    first.begin_transaction()
    assert found(run, group) == []
    first.send_offsets_to_transaction([TopicPartition("t", 0, 7)], consumer.consumer_group_metadata(), WITHIN_S)
    (told,) = found(run, group)
    assert (told["severity"], told["group_id"]) == ("warning", group)
    assert re.fullmatch(
        rf"since \S+ \S+Z offsets of t-0 are pending, in a transaction of transactional id {group}-mover "
        r"\(producer id \d+\): consumers that start there wait for its end",
        told["found"],
    )
    assert f"start the program with the transactional id {group}-mover again" in told["advice"]
    again = Producer({**common, "transactional.id": f"{group}-mover"})
    again.init_transactions(WITHIN_S)
    wait_until(lambda: found(run, group) == [], "the offsets are free", WITHIN_S)
    consumer.close()


@pytest.mark.parametrize("node", APACHE, indirect=True)
def test_a_transaction_without_a_coordinator_is_aborted(
    node: Node, run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old enough, it is an error; the command of the advice ends it.

    No client can make one on Tenure, and Tenure's first start aborts those of a broker's folder.
    """
    monkeypatch.setattr(transaction_diagnosis, "HANGS_MS", 0)
    stage = Stage(node, "hanging")
    a = producer(stage, "a")
    a.init()
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "hanging"})
    consumer.commit(offsets=[TopicPartition("t", 0, 5)], asynchronous=False)
    consumer.close()
    a.commit("t", 7, version=3)
    stage.close()
    (told,) = found(run, "hanging")
    assert told["severity"] == "error"
    assert f"producer id {a.producer_id}, which no coordinator shows as open" in told["found"]
    command = re.match(r"`tenure (.+?)`", told["advice"])
    assert command
    assert run(*command[1].split()).code == 0
    assert found(run, "hanging") == []
