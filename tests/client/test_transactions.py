"""What a client learns of transactions, from a server with an open one."""

from __future__ import annotations

import pytest

from coordinator.client.client import Client
from coordinator.client.errors import Refused
from coordinator.client.transactions import abort, hanging_transactions, list_transactions, open_transactions
from schemas.errors import ErrorCode
from tests.oracle.producer import producer
from tests.oracle.stage import Stage
from tests.support.patience import WITHIN_S
from tests.support.tenure import Tenure


def test_an_open_transaction_is_no_hanging_one() -> None:
    """Both its coordinator and its partitions have it, offsets too. An older epoch can't end it."""
    with Tenure({"tenure.topics": "orders:1"}) as tenure, Client(tenure.bootstrap, WITHIN_S) as client:
        stage = Stage(tenure, "client")
        a = producer(stage, "a", version=2)
        a.init(transaction_timeout_ms=900_000)
        a.init(transaction_timeout_ms=900_000)
        a.send("orders", b"one")
        a.commit("orders", 1)
        stage.close()
        (own,) = [each for each in list_transactions(client) if each.transactional_id == "client.a"]
        assert [topic for topic, _ in own.partitions] == ["__consumer_offsets", "orders"]
        offsets, records = open_transactions(client)
        assert (offsets.topic, records.topic) == ("__consumer_offsets", "orders")
        assert {offsets.producer_id, records.producer_id} == {own.producer_id}
        assert hanging_transactions(client) == []
        assert abort(client, records._replace(producer_epoch=0)) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert abort(client, records) == ErrorCode.NONE
        assert open_transactions(client, ["orders"]) == []
        with pytest.raises(Refused, match="UNKNOWN_TOPIC_OR_PARTITION"):
            open_transactions(client, ["nobody-made-this"])
