"""A group's own settings over the network: read them and change them, as `kafka-configs.sh` of Kafka 4 does (KIP-848).

House rule: the server knows which settings there are; here a setting is a name and a text.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import TYPE_CHECKING

from coordinator.client.client import Client
from coordinator.client.errors import error_name
from coordinator.client.topics import GROUP, described_settings
from protocol.messages import DescribeConfigsRequest, IncrementalAlterConfigsRequest

if TYPE_CHECKING:
    from protocol.messages import DescribeConfigsResponse, IncrementalAlterConfigsResponse, Message

OWN = 8
"""The source of a setting that was set for the group itself."""
SET, DELETE = 0, 1
"""Operations of IncrementalAlterConfigs."""


def settings_of(client: Client, group_id: str) -> dict[str, str]:
    """The settings that were set for this group, by name. Raises `Refused`."""
    return {each.name: each.value or "" for each in _described(client, group_id) if each.config_source == OWN}


def names_of(client: Client, group_id: str) -> list[str]:
    """The names of all settings that this group may have, by the server. Raises `Refused`."""
    return [each.name for each in _described(client, group_id)]


def _described(client: Client, group_id: str) -> list[DescribeConfigsResponse.DescribeConfigsResourceResult]:
    (result,) = described_settings(client, GROUP, [group_id])
    _check(client, DescribeConfigsRequest, result.error_code, result.error_message, group_id)
    return sorted(result.configs, key=attrgetter("name"))


def change_settings(client: Client, group_id: str, changes: Mapping[str, str | None]) -> None:
    """Set these settings of a group, or remove those whose value is None: all or none. Raises `Refused`."""
    configs = [
        IncrementalAlterConfigsRequest.AlterableConfig(
            name=name, config_operation=DELETE if value is None else SET, value=value
        )
        for name, value in changes.items()
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=GROUP, resource_name=group_id, configs=configs
    )
    response: IncrementalAlterConfigsResponse = client.request(IncrementalAlterConfigsRequest(resources=[resource]))
    (result,) = response.responses
    _check(client, IncrementalAlterConfigsRequest, result.error_code, result.error_message, group_id)


def _check(client: Client, request: type[Message], error_code: int, message: str | None, group_id: str) -> None:
    """Raises Refused, with the server's reason, if it refused. A reason that only spells out the error adds nothing."""
    if error_code:
        words = (message or "").rstrip(".")
        reason = f": {words}" if words and words.upper().replace(" ", "_") != error_name(error_code) else ""
        raise client.refused(error_code, f"settings of group {group_id!r}{reason}", request, group_id)
