"""summary.json: the result in few numbers, for programs.

House rule: the names in this file are an interface.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from coordinator.audit.audit import AuditResult
from coordinator.audit.check.history import Story

SUMMARY_FILE = "summary.json"


def summary(result: AuditResult) -> dict[str, Any]:
    """The summary as JSON values."""
    stories: dict[str, Story] = {}
    for story in result.stories:
        # A group on two partitions is a finding; the summary has the partition with more records.
        if story.group not in stories or stories[story.group].records < story.records:
            stories[story.group] = story
    return {
        "source": result.source,
        "records_by_type": dict(sorted(result.records_by_type.items())),
        "findings": dict(sorted(result.counts.items())),
        "groups": {group: _of_group(story) for group, story in sorted(stories.items())},
        "partitions": {
            str(partition): {"bytes": size, "groups": sum(each.partition == partition for each in stories.values())}
            for partition, size in sorted(result.sizes.items())
        },
        "notes": result.notes,
    }


def _of_group(story: Story) -> dict[str, Any]:
    return {
        "window": {"first_ms": story.first_ms, "last_ms": story.last_ms},
        "rebalances": story.rebalances,
        "at_least": story.at_least,
        "static_restarts": dict(sorted(story.static_restarts.items())),
        "static_rejoins": dict(sorted(story.static_rejoins.items())),
        "takeovers": dict(sorted(story.takeovers.items())),
        "returns": dict(sorted(story.returns.items())),
        "committed": dict(sorted(story.committed.items())),
        "type": story.group_type,
        "generation": story.generation,
        "members": story.member_count,
        "deleted": story.deleted,
        "partition": story.partition,
        "rebalances_forgotten": story.rebalances_forgotten,
        "causes": dict(sorted(story.causes.items())),
        "causes_told": dict(sorted(story.causes_recorded.items())),
        "bytes": story.bytes,
        "old_clients": story.old_clients,
    }


def write_summary(out: Path, result: AuditResult) -> None:
    """Write summary.json."""
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(summary(result), indent=2, ensure_ascii=False)
    (out / SUMMARY_FILE).write_text(text + "\n", encoding="utf-8")
