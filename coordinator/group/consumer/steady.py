"""Heartbeats of members that have all that their target gives them: nearly every one repeats the one before.

A member is steady if it is settled at the epoch of the group, and neither topics nor regular expressions ask for
anything. Its heartbeat then has no effect but a later deadline, and the same answer each time. `steady` finds that out
behind a heartbeat that was handled; `Steady.again` looks whether it still holds. Whatever can change the answer changes
one of the few things that `again` compares: members are values, so a changed member is another one.

House rule: `again` is asked for each heartbeat, so it calls nothing and makes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from coordinator.config import GroupConfig, GroupSettings
from coordinator.group.client import Now
from coordinator.group.consumer.group import SETTLED, ConsumerGroup, ConsumerMember
from coordinator.group.group import NEVER
from coordinator.group.topics import Topics


class Keeper(Protocol):
    """The coordinator, as far as the answer to a heartbeat depends on it. Other settings are another object."""

    config: GroupConfig
    group_configs: Mapping[str, GroupSettings]
    groups: dict[str, Any]
    topics: Topics


class Steady:
    """A steady member, as of one heartbeat. epoch: its own. interval_ms: between two heartbeats."""

    __slots__ = (
        "_config",
        "_created_version",
        "_group",
        "_group_id",
        "_keeper",
        "_member",
        "_member_id",
        "_own_config",
        "_session",
        "_until_ms",
        "epoch",
        "interval_ms",
    )

    def __init__(self, keeper: Keeper, group: ConsumerGroup, member: ConsumerMember, until_ms: int) -> None:
        self._keeper = keeper
        self._group = group
        self._group_id = group.group_id
        self._member = member
        self._member_id = member.member_id
        self._session = group.sessions[member.member_id]
        self._config = keeper.config
        self._own_config = keeper.group_configs.get(group.group_id)
        self._created_version = keeper.topics.created_version
        self._until_ms = until_ms
        self.epoch = member.epoch
        self.interval_ms = (self._own_config or keeper.config.group_settings).heartbeat_interval_ms

    def again(self, now_ms: int) -> bool:
        """Whether the same heartbeat has the same answer again: then the member's session is renewed."""
        group, keeper, group_id = self._group, self._keeper, self._group_id
        if (
            group.members.get(self._member_id) is not self._member
            or group.generation != self.epoch
            or group.target_epoch != self.epoch
            or group.is_stale
            or now_ms >= self._until_ms
            or keeper.topics.created_version != self._created_version
            or keeper.config is not self._config
            or keeper.group_configs.get(group_id) is not self._own_config
            or keeper.groups.get(group_id) is not group
        ):
            return False
        session = self._session
        session.deadline_ms = now_ms + session.session_timeout_ms
        return True


def steady(keeper: Keeper, group: ConsumerGroup, member_id: str, now: Now) -> Steady | None:
    """The member, if it is steady; the heartbeat that it has just sent must have been answered without an error."""
    member = group.members.get(member_id)
    if member is None or member.classic is not None or member.state is not SETTLED:
        return None
    if not member.epoch == group.generation == group.target_epoch or group.is_stale:
        return None
    until_ms = asked_ms(keeper, group, now) if group.regex_members or group.resolving else NEVER
    return Steady(keeper, group, member, until_ms) if now.ms < until_ms else None


def asked_ms(keeper: Keeper, group: ConsumerGroup, now: Now) -> int:
    """When a heartbeat asks to resolve the regular expressions anew if nothing changes: see `regex.resolution`."""
    last = next(iter(group.regexes.values()), None)
    if group.resolving or last is None or group.regexes.keys() != group.regex_members.keys():
        return now.ms
    if last.version < keeper.topics.created_version:
        return now.ms
    return now.ms + last.since_ms + keeper.config.group_consumer_regex_refresh_interval_ms - now.wall_ms
