"""The requests and answers on a stage, in a form that can be compared between two servers.

A transcript is a list of lines: the name of a connection, the kind (a request, an answer, "waits", "closed") and the
message's fields as plain values. `comparable` removes differences between two servers that behave alike:

- member ids keep their prefix; the random part becomes the name of the connection that got it, numbered: "a.1";
- topic ids, the cluster's id, the server's port and folder, fetch sessions and messages for people become words;
- the group's id becomes "G";
- producer ids are numbered, times of now become words, and transactional records are shown by their batches;
- lists without an order of their own are sorted (ORDERED names the others), the throttle time goes.

Everything else, empty strings and nulls included, must be equal.

House rule: this module alone names the fields that are not compared.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from protocol.messages import Message
from protocol.records.batch import CorruptBatch
from protocol.records.walk import decode_batches
from schemas.errors import ErrorCode

Plain = None | bool | int | str | list["Plain"] | dict[str, "Plain"]

ORDERED = {
    "LeaveGroupResponse.members",
    "FindCoordinatorResponse.coordinators",
    "OffsetFetchResponse.groups",
    "DescribeGroupsResponse.groups",
}
"""Lists that answer the request's entries in their order."""

LEFT_OUT = {
    # Both servers are alone and never throttle.
    "throttle_time_ms",
    # What a server can do beyond groups is its own affair; test_versions.py compares the versions.
    "supported_features",
    "finalized_features",
    "finalized_features_epoch",
    "zk_migration_ready",
    # Kafka lists all settings of a topic, which mean nothing where no records are.
    "CreateTopicsResponse.topics.configs",
    # Kafka mostly leaves it to the code.
    "ProduceResponse.responses.partition_responses.error_message",
    # They change while other programs write.
    "total_bytes",
    "usable_bytes",
    # A server may decline to remember what a client fetches (KIP-227).
    "FetchResponse.session_id",
}
"""Fields by name, or by their path."""

STAYS_MS = 1_800_000
"""The timeouts of a member that stays while other scripts are played: as long as Kafka allows."""
USUAL = {"session_timeout_ms": STAYS_MS, "rebalance_timeout_ms": STAYS_MS, "protocol_type": "consumer"}
"""Usual values of a script's requests: a transcript doesn't show them."""

SAME_WORDS = "SubscribedTopicRegex `"
"""Texts that begin so are Kafka's in both servers, and so are those of DescribeGroups. Other texts may differ."""

ERROR_CODE = "error_code"
"""It is shown even if it is NONE, unless old versions of the response don't have it."""
NEW_ERROR_CODES = {"MetadataResponse.error_code"}
TIMES = ("timestamp", "time_ms")
LONG_AGO_MS = 1_750_000_000_000
"""Scripts send older times, so a later one is the server's own."""
GIVEN_ID = re.compile(r"^[A-Za-z0-9_-]{22}$")
"""A member id that a coordinator of the consumer protocol gave: 16 random bytes."""
MEMBER_ID = re.compile(r"^(?P<prefix>.*)-(?P<random>[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})$")


class Line(NamedTuple):
    """One thing that happened: `who`, `what`, and the fields of the message that was sent or received."""

    who: str
    what: str
    fields: dict[str, Plain]

    @property
    def is_asked(self) -> bool:
        """Whether the script did this, and not the server."""
        return self.what.startswith(">")

    def __str__(self) -> str:
        shown = [f"{name}={_show(value)}" for name, value in self.fields.items()]
        return " ".join([f"{self.who} {self.what}".strip(), *shown])


class Difference(NamedTuple):
    """A field in which two transcripts differ: where, and both values."""

    step: int
    line: str
    path: str
    expected: Plain
    found: Plain

    def __str__(self) -> str:
        return f"step {self.step} ({self.line}) {self.path}: Kafka {_show(self.expected)}, here {_show(self.found)}"


@dataclass
class Transcript:
    """All that happened in one run of a script. `port` is the server's, `group` the script's group id.

    is_timed: the script waits for a short timeout of its own. topics: names for the ids of topics that the script
    knows; other ids are numbered.
    """

    port: int
    group: str
    is_timed: bool = False
    topics: dict[UUID, str] = field(default_factory=dict)
    lines: list[tuple[str, str, Message | None]] = field(default_factory=list)

    def add(self, who: str, what: str, message: Message | None = None) -> None:
        """Note that something happened."""
        self.lines.append((who, what, message))

    def comparable(self) -> list[Line]:
        """The lines without what two servers may differ in."""
        comparing = _Comparing(self.port, self.group, self.member_names(), dict(self.topics))
        return [
            Line(who, what, {} if message is None else comparing.message(message)) for who, what, message in self.lines
        ]

    def member_names(self) -> dict[str, str]:
        """The random parts of member ids, each with the name of the connection that it was given to."""
        names: dict[str, str] = {}
        given: Counter[str] = Counter()
        for who, what, message in self.lines:
            member_id = getattr(message, "member_id", None) or "" if what.startswith("<") else ""
            match = MEMBER_ID.match(member_id)
            random = match["random"] if match else member_id if GIVEN_ID.match(member_id) else None
            if random is not None and random not in names:
                given[who] += 1
                names[random] = f"{who}.{given[who]}"
        return names


@dataclass
class _Comparing:
    """Makes plain values of the messages of a transcript."""

    port: int
    group: str
    members: dict[str, str]
    topics: dict[UUID, str]
    producers: dict[int, str] = field(default_factory=dict)

    def message(self, message: Message) -> dict[str, Plain]:
        return self._fields(message, message.NAME, is_answer=message.NAME.endswith("Response"))

    def _fields(self, message: Message, path: str, *, is_answer: bool) -> dict[str, Plain]:
        default = type(message)()
        fields: dict[str, Plain] = {}
        for name in type(message).__slots__:
            value = getattr(message, name)
            # What a version doesn't have holds the default: it isn't shown, and neither is a default that was sent.
            left_out = name in LEFT_OUT or f"{path}.{name}" in LEFT_OUT
            usual = not is_answer and USUAL.get(name) == value
            always = name == ERROR_CODE and f"{path}.{name}" not in NEW_ERROR_CODES
            if not left_out and not usual and (always or value != getattr(default, name)):
                fields[name] = self._value(value, name, f"{path}.{name}", is_answer=is_answer)
        if message.unknown_tagged_fields:
            fields["unknown_tagged_fields"] = str(message.unknown_tagged_fields)
        return fields

    def _value(self, value: object, name: str, path: str, *, is_answer: bool) -> Plain:
        match value:
            case bool() | None:
                return value
            case int():
                return self._number(value, name)
            case str():
                return self._text(value, name, path)
            case bytes():
                return self._bytes(value, name)
            case UUID():
                return self.topics.setdefault(value, f"topic {len(self.topics) + 1}") if value.int else "no topic"
            case list():
                if path == "ApiVersionsResponse.api_keys" and len(value) > 1:
                    return "the versions it knows"
                entries = [self._value(entry, name, path, is_answer=is_answer) for entry in value]
                return entries if not is_answer or path in ORDERED else sorted(entries, key=_show)
            case Message():
                return self._fields(value, path, is_answer=is_answer)
        raise AssertionError(f"{path}: {value!r}")

    def _number(self, value: int, name: str) -> Plain:
        if name == ERROR_CODE:
            return ErrorCode(value).name
        if name == "port" and value == self.port:
            return "its port"
        if name == "session_id" and value != 0:
            return "a session"
        if name == "producer_id" and value >= 0:
            return self.producers.setdefault(value, f"producer {len(self.producers) + 1}")
        return "a moment" if value > LONG_AGO_MS and name.endswith(TIMES) else value

    def _bytes(self, value: bytes, name: str) -> Plain:
        """Bytes; if there are transactional batches, or those of today, what is in each batch."""
        batches = []
        if name == "records":
            with suppress(CorruptBatch):
                batches = list(decode_batches(value))
        if not any(each.header.is_transactional or each.header.max_timestamp_ms > LONG_AGO_MS for each in batches):
            return repr(value)
        return [
            {
                "offset": each.header.base_offset,
                "attributes": each.header.attributes,
                "producer_id": self._number(each.header.producer_id, "producer_id"),
                "epoch": each.header.producer_epoch,
                "sequence": each.header.base_sequence,
                "records": [f"{record.key!r}: {record.value!r}" for record in each.records],
            }
            for each in batches
        ]

    def _text(self, value: str, name: str, path: str) -> str:
        if value == self.group or value.startswith(f"{self.group}."):
            return value.replace(self.group, "G", 1)
        if name == "cluster_id":
            return "its cluster"
        if value.startswith(SAME_WORDS) or path == "DescribeGroupsResponse.groups.error_message":
            return value.replace(self.group, "G")
        if name in {"error_message", "batch_index_error_message"} and value not in {"", "NONE"}:
            return "in its words"
        if name in {"log_dir", "path"}:
            return "its folder" if value.startswith("/") and value != "/nowhere" else value
        return named_member(value, self.members)


def named_member(member_id: str, names: Mapping[str, str]) -> str:
    """A member id with its random part replaced by its name; any other text as it is."""
    match = MEMBER_ID.match(member_id)
    if not match and GIVEN_ID.match(member_id):
        return names.get(member_id, member_id)
    return f"{match['prefix']}-{names.get(match['random'], 'nobody')}" if match else member_id


def differences(expected: list[Line], found: list[Line]) -> list[Difference]:
    """Where two transcripts differ: every field of each line, up to the first line that is another one altogether."""
    result: list[Difference] = []
    for step, (one, other) in enumerate(zip(expected, found, strict=False), start=1):
        if (one.who, one.what) != (other.who, other.what):
            return [*result, Difference(step, f"{one.who} {one.what}", "what happened", str(one), str(other))]
        for path, left, right in _different(one.fields, other.fields, ""):
            result.append(Difference(step, f"{one.who} {one.what}", path, left, right))
    if len(expected) != len(found):
        step = min(len(expected), len(found)) + 1
        rest = [str((expected if len(expected) > len(found) else found)[step - 1])]
        left, right = (rest[0], "nothing") if len(expected) > len(found) else ("nothing", rest[0])
        result.append(Difference(step, "", "what happened", left, right))
    return result


def _different(left: Plain, right: Plain, path: str) -> Iterator[tuple[str, Plain, Plain]]:
    if isinstance(left, dict) and isinstance(right, dict):
        for name in {**left, **right}:
            yield from _different(
                left.get(name, "(default)"), right.get(name, "(default)"), f"{path}.{name}".strip(".")
            )
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for index, (one, other) in enumerate(zip(left, right, strict=True)):
            yield from _different(one, other, f"{path}[{index}]")
    elif left != right:
        yield path, left, right


def _show(value: Plain) -> str:
    match value:
        case dict():
            return "{" + " ".join(f"{name}={_show(entry)}" for name, entry in value.items()) + "}"
        case list():
            return "[" + ", ".join(_show(entry) for entry in value) + "]"
        case str():
            return value if value.isupper() or value.startswith(("b'", 'b"')) else repr(value)
    return str(value)
