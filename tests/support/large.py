"""Large requests of every API, as bytes: many elements in one array, long texts, much content, many tagged fields.

A `Shape` names an API, a version and the field that is large: `shapes()` gives all of them. `request` writes the frame.
It writes bytes, not messages: a frame of 100 MB needs no object for each element.

House rule: made from the definitions, so that a schema that is added is tested without a line here. `VALUES` only says
what a request needs so that a server does more than refuse it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from protocol.definition import FIXED, Field, Struct, Versions
from protocol.messages import API_KEYS, definition
from protocol.primitives import encode_uvarint
from schemas.api import SERVED

EMPTY, EQUAL, DISTINCT, LONG = "empty", "equal", "distinct", "long"
"""Elements of an array: without content, the same over and over, each another, and with texts as long as they get."""

CONTENT, TAGS, HEADER = "content", "tags", "header"
"""Large things beside arrays: a field of bytes or records, the unknown tagged fields of a struct, or of the header."""

TEXT_MAX = 32_767
"""Bytes of the longest text."""

TOPIC = "orders"

VALUES: dict[str, str | int] = {
    "acks": -1,
    "configs.name": "retention.ms",
    "configs.value": "1000000",
    "group_id": "large",
    "groups": "large",
    "name": TOPIC,
    "num_partitions": 1,
    "protocol_name": "range",
    "protocol_type": "consumer",
    "protocols.name": "range",
    "rebalance_timeout_ms": 10_000,
    "replication_factor": 1,
    "resource_name": TOPIC,
    "resource_type": 2,
    "session_timeout_ms": 10_000,
    "timeout_ms": 1_000,
    "topic": TOPIC,
    "topic_names": TOPIC,
}
"""Values of fields, by the end of their path."""

OPTIONAL = {"assignments"}
"""Arrays that exclude another field if they have an element."""


class Shape(NamedTuple):
    """The large part of a request.

    path: of the field, or of the struct with the tagged fields. kind: of an array's elements, or CONTENT, TAGS, HEADER.
    """

    api: str
    version: int
    path: tuple[str, ...]
    kind: str

    def __str__(self) -> str:
        return "-".join((f"{self.api}.v{self.version}", ".".join(self.path) or "request", self.kind))


def is_newest(shape: Shape) -> bool:
    """Whether no later version has the field. An older one has the same handler, and codecs of the same compiler."""
    within = definition(f"{shape.api}Request")
    last, fields = within.versions.last, within.struct.fields
    for name in shape.path:
        (field,) = (each for each in fields if each.name == name)
        last = min(last, field.versions.last)
        fields = field.struct.fields if field.struct else ()
    return shape.version == last


def shapes(*apis: str) -> Iterator[Shape]:
    """All shapes of these APIs, or of every API: in the first and in the last version that has the field."""
    for api in apis or SERVED:
        message = definition(f"{api}Request")
        flexible = message.flexible is not None
        if flexible:
            yield Shape(api, message.versions.last, (), HEADER)
        for path, field, has in _fields(message.struct, (), message.versions):
            if field is None:
                if flexible and has.last >= (message.flexible or 0):
                    yield Shape(api, has.last, path, TAGS)
            elif field.array:
                kinds = (EMPTY, EQUAL, DISTINCT, LONG) if _has_text(field) else (EMPTY, EQUAL, DISTINCT)
                yield from (Shape(api, each, path, kind) for each in dict.fromkeys(has) for kind in kinds)
            elif field.type in {"bytes", "records"}:
                yield from (Shape(api, each, path, CONTENT) for each in dict.fromkeys(has))


def _fields(
    within: Struct, path: tuple[str, ...], versions: Versions
) -> Iterator[tuple[tuple[str, ...], Field | None, Versions]]:
    """All fields with their paths and versions; None for each struct itself."""
    yield path, None, versions
    for field in within.fields:
        if field.tag is None:
            has = Versions(max(field.versions.first, versions.first), min(field.versions.last, versions.last))
            yield (*path, field.name), field, has
            if field.struct is not None:
                yield from _fields(field.struct, (*path, field.name), has)


def _has_text(field: Field) -> bool:
    """Whether an element of an array has a text, outside of further arrays."""
    if field.struct is None:
        return field.type == "string"
    return any(each.type == "string" and not each.array for each in field.struct.fields)


def elements_of(shape: Shape) -> int:
    """How many elements of all arrays come with one element of the large one."""
    within = definition(f"{shape.api}Request").struct
    for name in shape.path:
        (inner,) = (field.struct for field in within.fields if field.name == name)
        if inner is None:
            return 1
        within = inner
    inside = [
        field
        for field in within.fields
        if field.array and shape.version in field.versions and field.name not in OPTIONAL
    ]
    return 1 if shape.kind == EMPTY else 1 + len(inside)


def request(
    shape: Shape, count: int, values: Mapping[str, str | int | None] | None = None, *, length: int = TEXT_MAX
) -> bytes:
    """The frame of a request, with its size. count: elements, tagged fields, or bytes of the content.

    values: further ones as in VALUES. length: of the texts, if they are LONG.
    """
    message = definition(f"{shape.api}Request")
    flexible = message.flexible is not None and shape.version >= message.flexible
    writer = _Writer(shape, count, {**VALUES, **(values or {})}, length, flexible=flexible)
    head = struct.pack(">hhih", API_KEYS[shape.api], shape.version, 7, 5) + b"large"
    if flexible:
        head += _tags(count) if shape.kind == HEADER else b"\0"
    body = writer.struct(message.struct, (), 0, bare=False)
    return b"".join(((len(head) + len(body)).to_bytes(4), head, body))


def fitting(shape: Shape, size: int, elements_max: int, values: Mapping[str, str | int | None] | None = None) -> bytes:
    """A request of at most `size` bytes with as much as fits, but no more elements than `elements_max`.

    Texts that are LONG get as long as makes room for the most elements.
    """
    if shape.kind in {CONTENT, TAGS, HEADER}:
        most = size - len(request(shape, 0, values)) - 8
        return request(shape, max(0, most if shape.kind == CONTENT else min(most // 6, elements_max)), values)
    elements_max = (elements_max - len(shape.path)) // elements_of(shape)
    length = min(TEXT_MAX, max(1, size // elements_max))
    none = len(request(shape, 0, values, length=length))
    each = (len(request(shape, 16, values, length=length)) - none) / 16
    return request(shape, max(1, min(int((size - none - 8) / each), elements_max)), values, length=length)


class _Writer:
    """Writes the body of one request."""

    def __init__(
        self, shape: Shape, count: int, values: Mapping[str, str | int | None], length: int, *, flexible: bool
    ) -> None:
        self.shape = shape
        self.count = count
        self.values = values
        self.length = length
        self.flexible = flexible

    def struct(self, written: Struct, path: tuple[str, ...], number: int, *, bare: bool) -> bytes:
        """A struct. number: of the element that it is in, or is. bare: without content."""
        fields = [
            self.field(field, (*path, field.name), number, bare=bare)
            for field in written.fields
            if self.shape.version in field.versions and field.tag is None
        ]
        if self.flexible:
            fields.append(_tags(self.count) if self.shape.kind == TAGS and path == self.shape.path else b"\0")
        return b"".join(fields)

    def field(self, field: Field, path: tuple[str, ...], number: int, *, bare: bool) -> bytes:
        """A field of any type."""
        if not field.array:
            return self.value(field, path, number, bare=bare)
        target = self.shape.path
        one = field._replace(array=False, nullable=None)
        if path == target and self.shape.kind in {EMPTY, EQUAL, DISTINCT, LONG}:
            if self.shape.kind == DISTINCT:
                elements = [self.value(one, path, index, bare=False) for index in range(self.count)]
                return self.size(self.count) + b"".join(elements)
            return self.size(self.count) + self.value(one, path, 0, bare=self.shape.kind == EMPTY) * self.count
        if target[: len(path)] == path or (
            len(path) > 1 and not bare and field.name not in OPTIONAL and target[: len(path) - 1] == path[:-1]
        ):
            return self.size(1) + self.value(one, path, number, bare=bare)
        if field.nullable is not None and self.shape.version in field.nullable:
            return b"\0" if self.flexible else b"\xff\xff\xff\xff"
        return self.size(0)

    def value(self, field: Field, path: tuple[str, ...], number: int, *, bare: bool) -> bytes:
        """A value that is no array, or an element of one."""
        if field.struct is not None:
            return self.struct(field.struct, path, number, bare=bare)
        known = path == self.shape.path or self.shape.path == path[: len(self.shape.path)]
        given = self.values.get(".".join(path[-2:]), self.values.get(path[-1]))
        if field.type in FIXED:
            value = given if given is not None else field.default
            if known and self.shape.kind == DISTINCT and given is None and field.type == "int32":
                value = number
            return bytes(16) if field.type == "uuid" else struct.pack(f">{FIXED[field.type]}", value or 0)
        if field.type in {"bytes", "records"}:
            return self.content(bytes(self.count) if known and self.shape.kind == CONTENT else b"")
        if given is None and field.nullable is not None and self.shape.version in field.nullable:
            return b"\0" if self.flexible else b"\xff\xff"
        text = "" if bare or given is None else str(given)
        if known and self.shape.kind == LONG:
            text = "x" * self.length
        elif known and self.shape.kind == DISTINCT:
            text = f"{text}{number}"
        data = text.encode()
        return (encode_uvarint(len(data) + 1) if self.flexible else len(data).to_bytes(2)) + data

    def size(self, count: int) -> bytes:
        """Of an array."""
        return encode_uvarint(count + 1) if self.flexible else count.to_bytes(4)

    def content(self, data: bytes) -> bytes:
        """Bytes or records."""
        return (encode_uvarint(len(data) + 1) if self.flexible else len(data).to_bytes(4)) + data


def _tags(count: int) -> bytes:
    """A section of unknown tagged fields without content."""
    return encode_uvarint(count) + b"".join(encode_uvarint(1_000 + tag) + b"\0" for tag in range(count))
