"""A healthy group of real consumers beside an unmodified Apache Kafka 4.4, and then one that hangs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.observe.test_churn import CHURN_S, found, play
from tests.support.apache import VERSION_44, ApacheKafka


@pytest.mark.oracle
@pytest.mark.usefixtures("kafka_is_here")
def test_nothing_is_found_while_members_come_and_go(tmp_path: Path) -> None:
    """Nothing is found for CHURN_S, and then the hung member alone."""
    assert CHURN_S >= 60
    with ApacheKafka(version=VERSION_44) as kafka:
        play(kafka.bootstrap, tmp_path)
    assert {each["kind"] for each in found(tmp_path / "events.jsonl")} == {"partition_stuck"}
