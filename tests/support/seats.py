"""Sets how many seats a group has, and other settings of a group, as kafka-configs does."""

from __future__ import annotations

from typing import cast

from protocol.messages import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from tests.support.raw import Connection

GROUP_RESOURCE = 32
SET = 0


def set_seats(port: int, group: str, size: int) -> None:
    """Set target.group.size of a group."""
    set_of_group(port, group, "target.group.size", str(size))


def set_of_group(port: int, group: str, name: str, value: str) -> None:
    """Set a setting of a group."""
    config = IncrementalAlterConfigsRequest.AlterableConfig(name=name, config_operation=SET, value=value)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=GROUP_RESOURCE, resource_name=group, configs=[config]
    )
    with Connection(port) as connection:
        answer = connection.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert cast("IncrementalAlterConfigsResponse", answer).responses[0].error_code == 0
