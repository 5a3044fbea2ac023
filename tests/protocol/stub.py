"""Writes messages.pyi, from which type checkers learn the fields of every message, and the table of the keys of APIs.

    python -m tests.protocol.stub > build/messages.pyi
    python -m tests.protocol.stub keys    prints schemas/api_keys.py

`make stubs` writes both, after a change of a schema; a test fails while a file is stale.

House rule: the texts depend on the schemas alone, and have the form that `ruff format` gives.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pkgutil import iter_modules

import schemas.api
from protocol.definition import Field, Struct, structs
from protocol.messages import NAMES, definition

HEAD = """\
# Written by `make stubs` from the schemas. Change those and run it again.

from collections.abc import Mapping
from types import ModuleType
from typing import ClassVar, Final
from uuid import UUID

from protocol.compile import Message as Message
from protocol.compile import alike as alike
from protocol.compile import decode as decode
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

KEYS = """\
\"""The key of each API, by its name. Written by `make stubs` from the files in schemas/api.\"""

API_KEYS = {
"""


def keys() -> str:
    """The text of schemas/api_keys.py."""
    modules = [import_module(f"schemas.api.{name}") for _, name, _ in iter_modules(schemas.api.__path__)]
    apis = sorted((each.API_KEY, each.NAME) for each in modules)
    return KEYS + "".join(f'    "{name}": {key},\n' for key, name in apis) + "}\n"


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
    lines += ["    unknown_tagged_fields: Mapping[int, bytes] = ...,", ") -> None: ..."]
    return [indent + line for line in lines]


def _type(field: Field, message: str) -> str:
    """A field's type as Python knows it."""
    name = f"{message}.{field.type}" if field.struct is not None else TYPES.get(field.type, "int")
    if field.array:
        name = f"list[{name}]"
    return name if field.nullable is None else f"{name} | None"


if __name__ == "__main__":
    sys.stdout.write(keys() if sys.argv[1:] == ["keys"] else stub())
