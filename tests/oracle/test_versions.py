"""The versions of each API, on Apache Kafka and on Tenure."""

from __future__ import annotations

from typing import cast

import pytest

from protocol.messages import API_KEYS, ApiVersionsRequest, ApiVersionsResponse
from tests.support.apache import ApacheKafka
from tests.support.raw import Connection
from tests.support.tenure import Tenure

pytestmark = pytest.mark.oracle


def test_api_versions_are_within_apache_kafkas(open_kafka: ApacheKafka, open_tenure: Tenure) -> None:
    """Every API has Kafka's oldest version and none that Kafka 3.9 lacks, but for those of Kafka 4 (KIP-848, 1043)."""
    kafka, tenure = _api_versions(open_kafka.port), _api_versions(open_tenure.port)
    newer = {
        API_KEYS["ApiVersions"]: 5,
        API_KEYS["DeleteGroups"]: 3,
        API_KEYS["OffsetCommit"]: 10,
        API_KEYS["OffsetFetch"]: 10,
        API_KEYS["DescribeGroups"]: 6,
        API_KEYS["ConsumerGroupHeartbeat"]: 1,
        API_KEYS["ConsumerGroupDescribe"]: 1,
        API_KEYS["ListConfigResources"]: 1,
    }
    for key, (first, last) in tenure.items():
        if key == API_KEYS["Fetch"]:
            assert first == 4  # older ones answer in message formats of before Kafka 0.11
        else:
            assert first == kafka[key][0], key
        assert last <= newer.get(key, kafka[key][1]), key


def _api_versions(port: int) -> dict[int, tuple[int, int]]:
    with Connection(port) as connection:
        answer = cast("ApiVersionsResponse", connection.ask(ApiVersionsRequest(), 0))
    return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
