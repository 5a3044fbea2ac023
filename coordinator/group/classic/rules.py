"""The rules of the classic protocol, one for each thing that can happen to a group.

`Coordinator` finds the rules of a group by its kind. Another protocol brings another table like this one.
"""

from __future__ import annotations

from coordinator.group import offsets
from coordinator.group.classic import expire, heartbeat, join, leave, residence, sync
from coordinator.group.group import Group
from coordinator.group.rules import Rules
from schemas.errors import ErrorCode

CLASSIC_RULES: Rules[Group] = Rules(
    join=join.join,
    sync=sync.sync,
    heartbeat=heartbeat.heartbeat,
    beat=heartbeat.beat,
    leave=leave.leave,
    timer_fired=expire.fired,
    load=residence.load,
    serve=residence.serve,
    resume=residence.resume,
    unload=residence.unload,
    settings_changed=residence.settings_changed,
    bury=residence.bury,
    admit=offsets.admit,
    fetch_error=lambda *_: ErrorCode.NONE,  # anybody may ask for committed offsets
)
