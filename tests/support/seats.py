"""Sets how many seats a group has, as kafka-configs does."""

from __future__ import annotations

from typing import cast

from protocol.messages import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from tests.support.raw import Connection

GROUP_RESOURCE = 32
SET = 0


def set_seats(port: int, group: str, size: int) -> None:
    """Set target.group.size of a group."""
    config = IncrementalAlterConfigsRequest.AlterableConfig(
        name="target.group.size", config_operation=SET, value=str(size)
    )
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=GROUP_RESOURCE, resource_name=group, configs=[config]
    )
    with Connection(port) as connection:
        answer = connection.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert cast("IncrementalAlterConfigsResponse", answer).responses[0].error_code == 0
