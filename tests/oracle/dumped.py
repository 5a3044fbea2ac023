"""The output of kafka-dump-log for `__consumer_offsets`: Kafka's tool reads our log or its own.

House rule: no code of ours reads the files here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.oracle.transcript import named_member
from tests.support.apache import VERSION, dump_log_segments

BATCH = re.compile(r"^baseOffset: \d+ .* isvalid: (?P<valid>\w+)$")
RECORD = re.compile(r"^\| offset: \d+ .* key: (?P<key>\{.*\}) payload: (?P<payload>.*)$")
PREAMBLE = ("Dumping ", "Log starting offset: ")
TOMBSTONE = "<DELETE>"
TIMES = {"currentStateTimestamp", "commitTimestamp", "expireTimestamp"}


class DumpedRecord(NamedTuple):
    """A record of `__consumer_offsets` as the tool names its fields; payload None for a tombstone."""

    batch: int
    key: dict[str, Any]
    payload: dict[str, Any] | None

    @property
    def group(self) -> str:
        """Whose record it is."""
        data: dict[str, str] = self.key["data"]
        return data["groupId"] if "groupId" in data else data["group"]


def dump(data_dir: Path, version: str = VERSION) -> list[DumpedRecord]:
    """All records of all partitions below a data folder; fails where the tool of that release complains of anything."""
    segments = sorted(data_dir.glob("__consumer_offsets-*/*.log"))
    assert segments, data_dir
    done = dump_log_segments(*segments, version=version)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return list(_records(done.stdout))


def history(records: list[DumpedRecord], group: str, members: Mapping[str, str]) -> list[str]:
    """A group's records in order, without what two servers may differ in: times, and the random parts of member ids.

    Within a batch records are sorted, and the members within a record: Kafka writes them in no order.
    """
    of_group = [record for record in records if record.group == group]
    shown = [(record.batch, json.dumps([record.key, _comparable(record.payload, "", members)])) for record in of_group]
    return [text for _, text in sorted(shown)]


def last_payloads(records: list[DumpedRecord]) -> dict[str, dict[str, Any]]:
    """Return the group records that a compaction would keep: the newest payload by group id."""
    last = {record.group: record.payload for record in records if record.key["type"] == "2"}
    return {group: payload for group, payload in last.items() if payload is not None}


def _records(text: str) -> Iterator[DumpedRecord]:
    batch = 0
    for line in text.splitlines():
        if match := BATCH.match(line):
            assert match["valid"] == "true", line
            batch += 1
        elif match := RECORD.match(line):
            payload = None if match["payload"] == TOMBSTONE else json.loads(match["payload"])
            yield DumpedRecord(batch, json.loads(match["key"]), payload)
        else:
            assert line.startswith(PREAMBLE), f"kafka-dump-log says: {line}"


def _comparable(value: object, name: str, members: Mapping[str, str]) -> object:
    match value:
        case dict():
            return {name: _comparable(entry, name, members) for name, entry in value.items()}
        case list():
            return sorted((_comparable(entry, name, members) for entry in value), key=json.dumps)
        case str():
            return named_member(value, members)
        case int() if name in TIMES and value > 0:
            return "a time"
    return value
