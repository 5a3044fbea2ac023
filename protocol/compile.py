"""Makes a class of a definition, and the functions that read and write its versions.

One class stands for a message in all versions (as in Kafka): a field that a version lacks has its default. Structs
inside a message are classes too, and attributes of the message's class under their own names.

Everything is compiled at first use: a class when a module names it (`protocol.messages`), the decode and the encode
function of a version with the first message of that version, a `writer` or an `alike` when a caller asks for it. See
docs/contribute/decisions.md.

Decoding raises ProtocolError and nothing else, whatever the bytes. Encoding raises AssertionError when the version
can't express the message: null where a value is mandatory, a number out of range, a value that the version has no
field for (the value of an ignorable field is dropped instead).

House rule: a class knows nothing of headers, frames or other classes.
Source: Kafka's MessageDataGenerator.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Mapping
from functools import cache, partial
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, TypeVar

from protocol import source
from protocol.definition import Definition, Field, Struct, structs
from protocol.errors import ProtocolError, TooLarge, UnsupportedVersion

_BROKEN = (IndexError, struct.error, ProtocolError)
"""Errors of a decode function: bytes that end too early, or say what can't be."""

WRONG = (AttributeError, TypeError, ValueError, struct.error)
"""Errors of an encode function: a message with wrong values."""


class Message:
    """The base of all messages and nested structs. Fields are slots; the constructor takes them by keyword.

    NAME: "JoinGroupRequest". API_KEY: None for records. VERSIONS: first and last, inclusive. FLEXIBLE: the first
    flexible version (KIP-482), None if there is none.
    unknown_tagged_fields: tagged fields that the schema doesn't know, by tag, as they came; they are encoded again. It
    can be replaced, but not changed.

    Two messages are equal if their class and all their fields are. A message may change, so it has no hash.
    """

    __slots__ = ("unknown_tagged_fields",)

    NAME: ClassVar[str]
    API_KEY: ClassVar[int | None]
    VERSIONS: ClassVar[tuple[int, int]]
    FLEXIBLE: ClassVar[int | None]
    _values: ClassVar[attrgetter[object]]
    _decoders: ClassVar[_Functions]
    _encoders: ClassVar[_Functions]
    _writers: ClassVar[_Functions]
    _step_decoders: ClassVar[_Functions]
    _step_encoders: ClassVar[_Functions]

    unknown_tagged_fields: Mapping[int, bytes]

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        values = self._values
        return values(self) == values(other)

    def __repr__(self) -> str:
        fields = [f"{name}={getattr(self, name)!r}" for name in type(self).__slots__]
        if self.unknown_tagged_fields:
            fields.append(f"unknown_tagged_fields={self.unknown_tagged_fields!r}")
        return f"{type(self).__qualname__}({', '.join(fields)})"


AnyMessage = TypeVar("AnyMessage", bound=Message)


class _Kind(NamedTuple):
    """A kind of function.

    writer: writes its source. same, plain: where a class keeps functions of this kind, and those for nested structs
    without steps.
    """

    writer: Callable[[source.Owner, int, bool], Any]
    same: str
    plain: str


_DECODE = _Kind(source.decoder, "_decoders", "_decoders")
_ENCODE = _Kind(source.encoder, "_encoders", "_encoders")
_WRITE = _Kind(source.writer, "_encoders", "_encoders")
_STEP_DECODE = _Kind(source.decoder_in_steps, "_step_decoders", "_decoders")
_STEP_ENCODE = _Kind(source.encoder_in_steps, "_step_encoders", "_encoders")


class _Functions(dict[int, Callable[..., Any]]):
    """The functions of one kind of a class by version, each compiled at first use."""

    def __init__(self, cls: type[Message], definition: Struct, kind: _Kind) -> None:
        self._cls = cls
        self._definition = definition
        self._kind = kind

    def __missing__(self, version: int) -> Callable[..., Any]:
        cls = self._cls
        if not cls.VERSIONS[0] <= version <= cls.VERSIONS[1]:
            raise UnsupportedVersion(cls.NAME, cls.API_KEY, version)

        def of(nested: str, kept: str) -> Callable[..., Any]:
            functions: _Functions = getattr(getattr(cls, nested), kept)
            return functions[version]

        kind = self._kind
        codec, plain = partial(of, kept=kind.same), partial(of, kept=kind.plain)
        owner = source.Owner(cls.NAME, cls, codec, plain, lambda nested: getattr(cls, nested)())
        flexible = cls.FLEXIBLE is not None and version >= cls.FLEXIBLE
        text: source.Source = kind.writer(owner, version, flexible).struct(self._definition)
        function = source.build(text, f"{text.name} {cls.NAME} v{version}")
        self[version] = function
        return function


def message_class(definition: Definition) -> type[Message]:
    """The class of a message, with the classes of its nested structs as attributes."""
    name = definition.struct.name
    message = _class(definition.struct, definition, name)
    nested = {inner.name: _class(inner, definition, f"{name}.{inner.name}") for inner in structs(definition.struct)}
    for cls in (message, *nested.values()):
        for inner_name, inner_class in nested.items():
            setattr(cls, inner_name, inner_class)
    return message


def alike(cls: type[AnyMessage], *fields: str) -> Callable[..., AnyMessage]:
    """Make a function that copies a message with other values of `fields`: make(message, value, ...).

    It is for a thousand members that get nearly the same answer: a copy takes a third of the constructor's time. The
    copy shares all other values with its original, lists and structs too.
    """
    assert set(fields) <= set(cls.__slots__), f"{cls.__qualname__} has not all of {fields}"
    lines = [
        f"def make(MESSAGE, {', '.join(fields)}):",
        "    MADE = NEW(CLS)",
        *(
            f"    MADE.{name} = {name if name in fields else f'MESSAGE.{name}'}"
            for name in (*cls.__slots__, *Message.__slots__)
        ),
        "    return MADE",
    ]
    text = source.Source("make", "\n".join(lines), {"NEW": object.__new__, "CLS": cls})
    return source.build(text, f"{cls.__qualname__} alike")


def encode(message: Message, version: int) -> bytes:
    """The bytes of a message's body, or of a nested struct. Raises AssertionError; see the head of this module."""
    try:
        encoded: bytes = message._encoders[version](message)
    except WRONG as error:
        raise AssertionError(f"{message.NAME} v{version}: {error}") from error
    return encoded


@cache
def writer(cls: type[Message], version: int) -> Callable[..., bytes]:
    """The function that encodes the values of a message's fields, or of a nested struct's, without a message.

    It takes the fields of the version in the schema's order, but for tagged ones; nested structs are messages. It is
    for callers that know their values to be right: a wrong value raises any exception.
    """
    return cls._writers[version]


def decode(cls: type[AnyMessage], buffer: bytes, version: int, offset: int = 0) -> AnyMessage:
    """The message whose body starts at `offset`. Raises ProtocolError.

    It ignores bytes behind the body, as Kafka does (AbstractRequest.parseRequest).
    """
    function = cls._decoders[version]
    try:
        message: AnyMessage
        message, end = function(buffer, offset)
    except _BROKEN as error:
        raise _protocol_error(cls, version, error) from None
    if end > len(buffer):
        raise ProtocolError(f"{cls.NAME} v{version}: cut short")
    return message


def decode_in_steps(
    cls: type[AnyMessage], buffer: bytes, version: int, offset: int, elements_max: int
) -> Generator[None, None, AnyMessage]:
    """As `decode`, but in steps: yields behind each element of an array, and returns the message.

    elements_max: elements of all arrays and unknown tagged fields of structs in arrays, together. Raises
    ProtocolError, and does so before it reads an array with more.
    """
    function = cls._step_decoders[version]
    try:
        message: AnyMessage
        message, end = yield from function(buffer, offset, [elements_max, f"more than {elements_max} elements"])
    except _BROKEN as error:
        raise _protocol_error(cls, version, error) from None
    if end > len(buffer):
        raise ProtocolError(f"{cls.NAME} v{version}: cut short")
    return message


def encode_in_steps(message: Message, version: int, bytes_max: int) -> Generator[None, None, list[bytes]]:
    """As `encode`, but in steps: yields behind each element of an array, and returns the parts of the body.

    A large element that an array has several times, as the same object, is encoded once. Raises AssertionError; raises
    TooLarge as soon as the elements of an array of structs have more than `bytes_max`, be they the same or not.
    """
    try:
        encoded: list[bytes] = yield from message._step_encoders[version](message, bytes_max)
    except TooLarge:
        raise
    except WRONG as error:
        raise AssertionError(f"{message.NAME} v{version}: {error}") from error
    return encoded


def _protocol_error(cls: type[Message], version: int, error: Exception) -> ProtocolError:
    """The error for an exception of a decode function."""
    what = str(error) if isinstance(error, ProtocolError) else f"cut short or garbled ({error})"
    return ProtocolError(f"{cls.NAME} v{version}: {what}")


def _class(definition: Struct, message: Definition, qualified_name: str) -> type[Message]:
    """The class of one struct."""
    names = tuple(field.name for field in definition.fields)
    namespace = {
        "__slots__": names,
        "__module__": "protocol.messages",
        "__qualname__": qualified_name,
        "__match_args__": names,
        "NAME": definition.name,
        "API_KEY": message.api_key,
        "VERSIONS": tuple(message.versions),
        "FLEXIBLE": message.flexible,
        "_values": attrgetter(*names, "unknown_tagged_fields"),
    }
    cls: type[Message] = type(definition.name, (Message,), namespace)
    cls.__init__ = _init(cls, definition)  # type: ignore[method-assign]
    cls._decoders = _Functions(cls, definition, _DECODE)
    cls._encoders = _Functions(cls, definition, _ENCODE)
    cls._writers = _Functions(cls, definition, _WRITE)
    cls._step_decoders = _Functions(cls, definition, _STEP_DECODE)
    cls._step_encoders = _Functions(cls, definition, _STEP_ENCODE)
    return cls


def _init(cls: type[Message], definition: Struct) -> Callable[..., None]:
    """`__init__` with a keyword per field. A default that is a list or a struct is new for each message."""
    namespace: dict[str, Any] = {"NEW": object(), "cls": cls, "ZERO": None, "NO_TAGS": source.NO_TAGS}
    if any(field.type == "uuid" for field in definition.fields):
        namespace["ZERO"] = source.zero_uuid()
    parameters = "".join(f"{field.name}={_default(field)}, " for field in definition.fields)
    lines = [
        f"def __init__(self, *, {parameters}unknown_tagged_fields=NO_TAGS):",
        "    self.unknown_tagged_fields = unknown_tagged_fields",
    ]
    for field in definition.fields:
        name = field.name
        if _default(field) == "NEW":
            new = "[]" if field.array else f"cls.{field.type}()"
            lines.append(f"    self.{name} = {new} if {name} is NEW else {name}")
        else:
            lines.append(f"    self.{name} = {name}")
    text = source.Source("__init__", "\n".join(lines), namespace)
    return source.build(text, f"{definition.name}.__init__")


def _default(field: Field) -> str:
    """The default in `__init__`: a literal, or a name of its namespace."""
    if field.default == () or field.has_struct:
        return "NEW"
    return "ZERO" if field.type == "uuid" and not field.array else repr(field.default)
