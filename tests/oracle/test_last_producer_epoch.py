"""The epoch that follows a producer's last one (fact 10): Kafka and Tenure read the same log of transactional ids.

Thirty thousand requests would lead there. The test writes the record instead, behind the last one of a server that it
has stopped.
"""

from __future__ import annotations

from typing import Any, cast

import pytest

from coordinator.transaction.state import TransactionalId
from schemas.errors import ErrorCode
from tests.oracle.conftest import CONSUMER_NODES, SAME_NAME
from tests.oracle.producer import IDS_PARTITIONS, Producer, producer
from tests.oracle.stage import Stage
from tests.oracle.test_scripts import TRANSACTIONS
from tests.support.apache import VERSION, VERSION_44, ApacheKafka
from tests.support.ids_log import change_id
from tests.support.patience import WITHIN_S
from tests.support.tenure import Tenure, wait_until

pytestmark = pytest.mark.oracle

SETTINGS = CONSUMER_NODES[TRANSACTIONS] | SAME_NAME
BEFORE_LAST = 32_765
"""The last epoch that a producer gets is 32766."""


def raise_epoch(server: ApacheKafka | Tenure, name: str) -> None:
    """Write into the log of a stopped server that a transactional id has the epoch before the last."""
    data_dir = server.data_dir if isinstance(server, Tenure) else server.log_dir

    def change(known: TransactionalId) -> None:
        known.epoch = BEFORE_LAST

    change_id(data_dir, name, IDS_PARTITIONS, change)


def answers(server: ApacheKafka | Tenure, version: int) -> list[tuple[Any, ...]]:
    """The errors and epochs that producers at the last epoch get, and whether their producer id is another one."""
    stage = Stage(server, "last")
    for name in "abc":
        producer(stage, name, version=version).init()
    stage.close()
    server.stop()
    for name in "abc":
        raise_epoch(server, f"last.{name}")
    server.start()
    stage = Stage(server, "last")
    said: list[tuple[Any, ...]] = []

    def error() -> ErrorCode:
        return ErrorCode(cast("Any", stage.transcript.lines[-1][2]).error_code)

    def init(who: Producer, **changes: Any) -> None:
        """InitProducerId, again while Kafka 3.9 has no new producer id at hand."""

        def is_answered() -> bool:
            who.init(**changes)
            return error() is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

        wait_until(is_answered, "InitProducerId is answered", WITHIN_S)

    def note(who: Producer, former: tuple[int, int]) -> None:
        said.append((error().name, who.epoch, who.producer_id != former[0]))

    a, b, c = (producer(stage, name, version=version) for name in "abc")
    for who in (a, b, c):
        init(who)
        note(who, (who.producer_id, who.epoch))
    former = a.producer_id, a.epoch
    init(a)  # another id, and epoch 0
    note(a, former)
    init(a, producer_id=former[0], producer_epoch=former[1])  # too late
    note(a, former)
    former = b.producer_id, b.epoch
    for _ in range(2):  # the claim gets it too, and again
        init(b, producer_id=former[0], producer_epoch=former[1])
        note(b, former)
    former = c.producer_id, c.epoch
    c.add_offsets()
    note(c, former)
    for _ in range(2):
        c.end(producer_id=former[0], producer_epoch=former[1])
        note(c, former)
    stage.close()
    return said


@pytest.mark.parametrize("release, version", [(VERSION, 1), (VERSION_44, 1), (VERSION_44, 2)])
def test_what_follows_the_last_epoch(kafka_is_here: None, release: str, version: int) -> None:
    """The next epoch is 0, of another producer id, for each way to it; both servers answer alike."""
    with ApacheKafka(SETTINGS, version=release) as kafka:
        expected = answers(kafka, version)
    with Tenure(SETTINGS) as tenure:
        found = answers(tenure, version)
    assert found == expected
    assert expected[:4] == [("NONE", BEFORE_LAST + 1, False)] * 3 + [("NONE", 0, True)]
