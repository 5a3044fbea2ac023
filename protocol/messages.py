"""The classes of all messages and records. Each is made when a module first names it.

    from protocol.messages import JoinGroupRequest, decode

A request or response is called after its API: `JoinGroupRequest`, `JoinGroupResponse`; a record as Kafka calls it. To
name one imports its schema module and no other.

Type checkers read messages.pyi, which `make stubs` writes from the schemas.

House rule: this module imports only modules that every message needs.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import ModuleType

from protocol.compile import (
    Message,
    alike,
    decode,
    decode_in_steps,
    encode,
    encode_in_steps,
    message_class,
    writer,
)
from protocol.definition import Definition, define
from protocol.errors import UnknownApi
from schemas.api import API_KEYS, module_name
from schemas.records import RECORDS

__all__ = [
    "API_KEYS",
    "NAMES",
    "Message",
    "alike",
    "api_schema",
    "decode",
    "decode_in_steps",
    "definition",
    "encode",
    "encode_in_steps",
    "request_class",
    "response_class",
    "writer",
]

NAMES = (*(api + kind for api in API_KEYS for kind in ("Request", "Response")), *RECORDS)
"""The names of all classes: requests and responses, then records."""

_API_NAMES = {key: name for name, key in API_KEYS.items()}


@cache
def api_schema(api_key: int) -> ModuleType:
    """The schema module of an API: NAME, API_KEY, VERSIONS, FLEXIBLE, CHANGES. Raises UnknownApi.

    It makes no class: answering ApiVersions and reading a header need none.
    """
    if api_key not in _API_NAMES:
        raise UnknownApi(api_key)
    return import_module(f"schemas.api.{module_name(_API_NAMES[api_key])}")


def request_class(api_key: int) -> type[Message]:
    """The class of an API's requests. Raises UnknownApi."""
    return _class(api_schema(api_key).NAME + "Request")


def response_class(api_key: int) -> type[Message]:
    """The class of an API's responses. Raises UnknownApi."""
    return _class(api_schema(api_key).NAME + "Response")


def definition(name: str) -> Definition:
    """The definition of a message or record. Raises KeyError if there is none of this name."""
    if name in RECORDS:
        schema = import_module(f"schemas.records.{RECORDS[name]}")
        versions, flexible, table = schema.RECORDS[name]
        return define(name, table, versions, flexible)
    kind = "Request" if name.endswith("Request") else "Response"
    schema = api_schema(API_KEYS[name.removesuffix(kind)])
    return define(name, getattr(schema, kind.upper()), schema.VERSIONS, schema.FLEXIBLE, schema.API_KEY)


def __getattr__(name: str) -> type[Message]:
    """Make a class at its first use; from then on it is an ordinary attribute."""
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    cls = globals()[name] = message_class(definition(name))
    return cls


def __dir__() -> list[str]:
    """The names of all classes, whether they are made yet or not."""
    return sorted({*__all__, *NAMES})


def _class(name: str) -> type[Message]:
    cls: type[Message] = globals().get(name) or __getattr__(name)
    return cls
