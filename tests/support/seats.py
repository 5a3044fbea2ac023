"""Sets how many seats a group has, and other settings of a group."""

from __future__ import annotations

from collections.abc import Mapping

from coordinator.client.client import Client
from coordinator.client.group_settings import change_settings
from tests.support.patience import WITHIN_S


def set_seats(port: int, group: str, size: int) -> None:
    """Set target.group.size of a group."""
    set_of_group(port, group, {"target.group.size": str(size)})


def set_of_group(port: int, group: str, settings: Mapping[str, str]) -> None:
    """Set settings of a group, all with one request."""
    with Client(f"127.0.0.1:{port}", WITHIN_S) as client:
        change_settings(client, group, settings)
