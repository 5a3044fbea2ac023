"""Writes messages.pyi, from which type checkers learn the fields of every message.

    python -m protocol.stub > protocol/messages.pyi

Run it after a change of a schema; a test fails while the file is stale.

House rule: the text depends on the schemas alone, and has the form that `ruff format` gives.
"""

from __future__ import annotations

import sys

from protocol.definition import Field, Struct, structs
from protocol.messages import NAMES, definition

HEAD = """\
# Written by `python -m protocol.stub` from the schemas. Change those and run it again.

from types import ModuleType
from typing import ClassVar, Final
from uuid import UUID

from protocol.compile import Message as Message
from protocol.compile import alike as alike
from protocol.compile import decode as decode
from protocol.compile import decode_from as decode_from
from protocol.compile import decode_in_steps as decode_in_steps
from protocol.compile import encode as encode
from protocol.compile import encode_in_steps as encode_in_steps
from protocol.compile import writer as writer
from protocol.definition import Definition

API_KEYS: Final[dict[str, int]]
NAMES: Final[tuple[str, ...]]

def api_schema(api_key: int) -> ModuleType: ...
def definition(name: str) -> Definition: ...
def request_class(api_key: int) -> type[Message]: ...
def response_class(api_key: int) -> type[Message]: ...
"""

TYPES = {"bool": "bool", "float64": "float", "string": "str", "bytes": "bytes", "records": "bytes", "uuid": "UUID"}
"""Python's types for those on the wire; all others are int."""


def stub() -> str:
    """The text of messages.pyi."""
    lines = HEAD.splitlines()
    for name in NAMES:
        message = definition(name)
        lines += ["", f"class {name}(Message):"]
        if message.api_key is not None:
            lines += ["    API_KEY: ClassVar[int]", ""]
        for nested in structs(message.struct):
            lines += [f"    class {nested.name}(Message):", *_members(nested, name, " " * 8), ""]
        lines += _members(message.struct, name, " " * 4)
    return "\n".join(lines) + "\n"


def _members(struct: Struct, message: str, indent: str) -> list[str]:
    """The fields of a class and its constructor."""
    fields = [(field.name, _type(field, message)) for field in struct.fields]
    lines = [f"{name}: {type_name}" for name, type_name in fields]
    lines += ["def __init__(", "    self,", "    *,"]
    lines += [f"    {name}: {type_name} = ...," for name, type_name in fields]
    lines += ["    unknown_tagged_fields: dict[int, bytes] = ...,", ") -> None: ..."]
    return [indent + line for line in lines]


def _type(field: Field, message: str) -> str:
    """A field's type as Python knows it."""
    name = f"{message}.{field.type}" if field.struct is not None else TYPES.get(field.type, "int")
    if field.array:
        name = f"list[{name}]"
    return name if field.nullable is None else f"{name} | None"


if __name__ == "__main__":
    sys.stdout.write(stub())
