"""Records: what one client produces, another one consumes.

Produced are records with and without keys, values, headers, packed and not, by idempotent producers where the client
has one; a consumer of a group reads them from the start, its next run goes on where it committed.

House rule: conftest.py's.
"""

from __future__ import annotations

import pytest

from tests.interop.brokers import Broker
from tests.interop.client import Ability
from tests.interop.clients import CLIENTS, clients_that
from tests.interop.fleet import Fleet, ordered
from tests.interop.worker import Record

COMPRESSIONS = ("none", "gzip")


def records_for(client: str) -> list[Record]:
    """Return records of all kinds that the client can produce."""
    plain = [Record(b"key-%d" % number, b"value-%d" % number * (number % 50)) for number in range(300)]
    odd = [
        Record(None, b"no key"),
        Record(b"no value", None),
        Record(b"", b""),
        Record(b"h", b"v", (("name", b"x"), ("n", b""))),
    ]
    large = Record(b"large", b"x" * 900_000)
    return [*plain, *([] if Ability.HEADERS in CLIENTS[client].cannot else odd), large]


@pytest.mark.parametrize("client", clients_that(often={"aiokafka"}, long={"kafka-python"}), indirect=True)
def test_what_is_produced_is_consumed(broker: Broker, fleet: Fleet, client: str, group: str) -> None:
    """The client and another one consume its records whole and once; it consumes the other client's records too."""
    other = "kafka-python" if client == "confluent-kafka" else "confluent-kafka"
    workers = [fleet.start(name, f"{group}-{name}", records=True) for name in (client, other)]
    sent: list[Record] = []
    for worker in workers:
        for compression in COMPRESSIONS:
            records = records_for(worker.client)
            fleet.produce(worker, records, compression)
            sent += records
    for worker in workers:
        assert fleet.wait_until_consumed(worker, len(sent)) == ordered(sent)


@pytest.mark.parametrize("client", clients_that(often=(), long={"confluent-kafka"}), indirect=True)
def test_a_group_goes_on_where_it_committed(broker: Broker, fleet: Fleet, client: str, group: str) -> None:
    """A group's next consumer goes on at the committed offset, also after the server was killed."""
    first = [Record(b"%d" % number, b"first") for number in range(50)]
    second = [Record(b"%d" % number, b"second") for number in range(50)]
    consumer = fleet.start(client, group, records=True)
    fleet.produce(consumer, first)
    assert fleet.wait_until_consumed(consumer, len(first)) == ordered(first)
    if Ability.COMMIT not in CLIENTS[client].cannot:
        ends = {partition: offset + 1 for partition, offset, _record in consumer.consumed}
        committed = fleet.commit(consumer, {partition: (end, "") for partition, end in ends.items()})
        assert committed["event"] == "committed"
    fleet.close(consumer)

    broker.kill()
    broker.start()
    consumer = fleet.start(client, group, records=True)
    fleet.produce(consumer, second)
    assert fleet.wait_until_consumed(consumer, len(second)) == ordered(second)
