"""`tenure observe` beside an unmodified Apache Kafka with real consumers, over a restart, and with ACLs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.observe.test_observer import observing
from tests.observe.test_rights import GROUP, PLAIN, SECURED, consuming, observe_with_rights
from tests.support.apache import AUTHORIZER, ApacheKafka
from tests.support.patience import WITHIN_S
from tests.support.tenure import wait_until

pytestmark = pytest.mark.oracle


@pytest.mark.usefixtures("kafka_is_here")
def test_the_page_tells_why_a_group_of_kafka_rebalanced(tmp_path: Path) -> None:
    """Joins and a leave have their causes on the page, before and after the broker's restart."""
    with ApacheKafka() as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("orders", 6, 1)])["orders"].result(WITHIN_S)
        with (
            observing(kafka.bootstrap, tmp_path, "--events", "topic", "--broker-log", str(kafka.log_file)) as observer,
            consuming(kafka.bootstrap, "one"),
        ):
            (first,) = observer.entries(GROUP, 1)
            assert (first["cause"]["kind"], first["cause"]["client_id"]) == ("member_joined", "one")
            kafka.stop()
            wait_until(lambda: "cluster_away" in observer.lines, "a line", WITHIN_S)
            kafka.start()
            wait_until(lambda: "cluster_back" in observer.lines, "a line", WITHIN_S)
            with consuming(kafka.bootstrap, "two"):
                joined = _newest(observer, members=2)
                assert (joined["cause"]["kind"], joined["cause"]["client_id"]) == ("member_joined", "two")
            gone = _newest(observer, members=1)
            assert gone["cause"]["client_id"] == "two"
            assert (gone["cause"]["kind"], gone["cause"]["told"]) == ("member_left", True)
            assert gone["moved_partitions"] == 3
            # The page's answer about a group may be 2 s old (asking.FRESH_S).
            wait_until(lambda: observer.get(f"/groups/{GROUP}")["state"] == "Stable", "a stable group", WITHIN_S)
        said = [line for line in observer.lines if line.startswith("cluster_")]
        assert said == ["cluster_away", "cluster_back"]


def _newest(observer: Any, members: int) -> dict[str, Any]:
    """The newest rebalance, once it led to so many members."""

    def found() -> dict[str, Any] | None:
        entry: dict[str, Any] = observer.entries(GROUP, 1)[-1]
        return entry if entry.get("members_after") == members else None

    return wait_until(found, f"a rebalance to {members} members", WITHIN_S)


@pytest.mark.usefixtures("kafka_is_here")
def test_the_documented_rights_are_enough(tmp_path: Path) -> None:
    """As on a server of ours (tests/observe/test_rights.py)."""
    properties = SECURED.format(module=PLAIN, authorizer=AUTHORIZER)
    with ApacheKafka(listeners={"SASL": "SASL_PLAINTEXT"}, properties=properties) as kafka:
        assert observe_with_rights(kafka.bootstrap_of("SASL"), tmp_path) == 1
