"""Writes the Python source of a struct's functions for one version: decode, encode, and its writer.

The version decides which fields there are, in which form, and whether they may be null. This module evaluates that
once, so the function is straight code for one version:

- Neighbouring fields of fixed size, and the length of the field behind them, are one `struct` call.
- A field calls no function of ours. Exceptions: lengths of 128 and more, tagged fields, arrays of strings.
- An array of structs calls the struct's own function per element.

A decoder is `decode(b, o) -> (message, end)`: `b` the bytes, `o` the offset. It checks at once that an array announces
no more elements than there are bytes. It doesn't compare each read with the end of the buffer: `end` shows it when a
read went too far (see `protocol.primitives`), and `protocol.compile.decode` checks `end`. An encoder is
`encode(m) -> bytes`. A writer makes the same bytes from the values alone, `write(value, ...) -> bytes`.

A large message is decoded and encoded in steps. The generators `decode(b, o, c)` and `encode(m, c)` yield behind each
element of an array. `c[0]` counts down the elements that the message may still have; `c[1]` is the text of the error.
`encode` returns the list of the message's parts, and raises TooLarge as soon as an array of structs has more bytes than
`c`. A nested struct without arrays has no steps, unless it has bytes or records: a decoder copies large ones in steps
too.

Names in the source: m the message; n a length; x an array; s a string's or bytes' content; t tagged fields. For an
array: p its parts, z their bytes, k the parts of elements that may come again. All other names are in the namespace
that comes with the source.

House rule: definitions in, text out; nothing here reads or writes a message.
Source of the rules: Kafka's MessageDataGenerator.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Mapping
from functools import cache
from typing import Any, NamedTuple

from protocol import primitives
from protocol.definition import FIXED, Field, Struct
from protocol.errors import ProtocolError, TooLarge


class _NoTags(dict[int, bytes]):
    """Stays empty, and is one object in copies of a message too."""

    def __setitem__(self, tag: int, value: bytes) -> None:
        raise TypeError("no tagged field can be added: give the message a dict of its own")

    def __reduce__(self) -> str:
        return "NO_TAGS"


NO_TAGS: Mapping[int, bytes] = _NoTags()
"""No unknown tagged fields: one for all messages, because an empty dict for each takes 64 bytes."""

JOINED_MAX = 64 * 1024
"""An element of an array with more bytes stays in parts: to join 100 MB takes 80 ms, and as much memory again."""

REPEATED_MAX = 128
"""An element of so few bytes is encoded again if it comes again: to remember it would take as much memory."""

APART_MIN = 512
"""A part of so many bytes isn't joined to others: its place in a list takes little beside it."""


class Source(NamedTuple):
    """Source that defines one function, its name, and the names that it refers to."""

    name: str
    text: str
    namespace: dict[str, Any]


class Owner(NamedTuple):
    """The struct whose functions are written.

    name: its name in errors. cls: its class. codec: returns the function of the same kind of a nested struct, by its
    name. plain: returns its function without steps. default: returns a new nested struct of defaults, by its name.
    """

    name: str
    cls: type
    codec: Callable[[str], Callable[..., Any]]
    plain: Callable[[str], Callable[..., Any]]
    default: Callable[[str], object]


@cache
def _struct(codes: str) -> struct.Struct:
    """One `Struct` per format for all functions; there are about a hundred."""
    return struct.Struct(">" + codes)


class _Lines:
    """Lines of source, and the names they need."""

    def __init__(self, owner: Owner, version: int, flexible: bool) -> None:
        self.owner = owner
        self.version = version
        self.flexible = flexible
        self.lines: list[str] = []
        self.namespace: dict[str, Any] = {"ProtocolError": ProtocolError}
        self.indent = 1
        self.names = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def name(self, prefix: str) -> str:
        """A name that the function doesn't use yet."""
        self.names += 1
        return f"{prefix}{self.names}"

    def use(self, name: str, value: object) -> str:
        """Give `value` the name `name` in the source."""
        self.namespace[name] = value
        return name

    def primitive(self, name: str) -> str:
        return self.use(name, getattr(primitives, name))

    def function(self, name: str, head: str) -> Source:
        return Source(name, "\n".join([f"def {name}({head}):", *self.lines, ""]), self.namespace)

    def codec(self, nested: Struct) -> str:
        return self.use(f"plain_{nested.name}", self.owner.plain(nested.name))

    def of_field(self, function: Source, field: Field) -> str:
        """The name of a function of this one alone, for a value of a field."""
        return self.use(function.name, build(function, f"{self.owner.name}.{field.name} v{self.version}"))


class _Decoder(_Lines):
    """Writes a decode function.

    A run is a series of fixed fields that one `unpack_from` reads. Its (code, target) pairs wait for `flush`.
    """

    PARAMETERS = "b, o"

    def __init__(self, owner: Owner, version: int, flexible: bool) -> None:
        super().__init__(owner, version, flexible)
        self.run: list[tuple[str, str]] = []
        self.behind_run: list[str] = []

    def struct(self, definition: Struct) -> Source:
        self.line(f"m = {self.use('new', object.__new__)}({self.use('cls', self.owner.cls)})")
        tagged = []
        for field in definition.fields:
            target = f"m.{field.name}"
            if self.version not in field.versions:
                self.line(f"{target} = {self.default(field)}")
            elif field.tag is not None:
                tagged.append(field)
            else:
                self.value(field, target)
        if self.flexible:
            self.tags(tagged)
        else:
            self.flush()
            self.line(f"m.unknown_tagged_fields = {self.use('NO_TAGS', NO_TAGS)}")
        self.line("return m, o")
        return self.function("decode", self.PARAMETERS)

    def flush(self, behind: int = 0) -> None:
        """Write the run. The offset then lies `behind` bytes before the run's end."""
        if not self.run:
            return
        codes = "".join(code for code, _ in self.run)
        targets = [target for _, target in self.run]
        if codes == "B":
            self.line(f"{targets[0]} = b[o]")
        else:
            unpack = self.use(f"unpack_{_identifier(codes)}", _struct(codes).unpack_from)
            self.line(f"{', '.join(targets)}{',' if len(targets) == 1 else ''} = {unpack}(b, o)")
        if _struct(codes).size > behind:
            self.line(f"o += {_struct(codes).size - behind}")
        for text in self.behind_run:
            self.line(text)
        self.run = []
        self.behind_run = []

    def value(self, field: Field, target: str) -> None:
        """Read a field of any type into `target`."""
        if field.array:
            self.array(field, target)
        elif field.struct is not None and field.nullable is not None:
            n = self.name("n")
            self.run.append(("b", n))
            self.flush()
            # A tagged field has another mark in front: 0 for null.
            self.line(f"if {n} < {0 if field.tag is None else 1}:")
            self.line(f"    {target} = None")
            self.line("else:")
            self.indent += 1
            self.nested(field.struct, target)
            self.indent -= 1
        elif field.struct is not None:
            self.flush()
            self.nested(field.struct, target)
        elif field.type == "uuid":
            name = self.name("s")
            self.run.append(("16s", name))
            self.behind_run.append(f"{target} = {self.uuid()}(bytes={name})")
        elif field.type in FIXED:
            self.run.append((FIXED[field.type], target))
        else:
            self.content(field, target)

    def nested(self, struct: Struct, target: str) -> None:
        """Read a struct into `target`."""
        self.line(f"{target}, o = {self.codec(struct)}(b, o)")

    def announced(self, n: str) -> None:
        """An array of `n` elements begins."""

    def appended(self, field: Field, element: str) -> None:
        """An element was appended to an array."""

    def content(self, field: Field, target: str) -> None:
        """A string, bytes or records."""
        n = self.name("n")
        if self.flexible:
            # The offset stays at the length's (last) byte, and the length counts it too.
            size = "decode_string_size" if field.type == "string" else "decode_uvarint"
            self.run.append(("B", n))
            self.flush(behind=1)
            self.line(f"if {n} > 127: {n}, o = {self.primitive(size)}(b, o); o -= 1")
            self.null(field, target, n, "o += 1")
            self.read(field, target, self.cut(field, "o + 1", f"o + {n}"))
            self.line(f"    o += {n}")
        else:
            self.run.append(("h" if field.type == "string" else "i", n))
            self.flush()
            self.null(field, target, n)
            self.line(f"    {n} += o")
            self.read(field, target, self.cut(field, "o", n))
            self.line(f"    o = {n}")

    def read(self, field: Field, target: str, content: str) -> None:
        """Put a content into `target`. A `try` costs nothing for strings in UTF-8; an argument of decode does."""
        if field.type != "string":
            self.line(f"    {target} = {content}")
            return
        size_max = f", {self.primitive('LONG_SIZE_MAX')}" if field.is_long else ""
        self.line(f"    try: {target} = {content}.decode()")
        self.line(f"    except UnicodeDecodeError: {target} = {self.primitive('decode_text')}({content}{size_max})")

    def cut(self, field: Field, start: str, end: str) -> str:  # noqa: ARG002 - see _StepDecoder
        """The expression of the bytes of a string, bytes or records."""
        return f"b[{start} : {end}]"

    def null(self, field: Field, target: str, n: str, step: str = "") -> None:
        """Start the two branches of a length: null, and else. The caller writes the lines of the second.

        A negative length is null, as in Kafka. Flexible versions send the length plus one, so 0 is null there.
        """
        self.line(f"if not {n}:" if self.flexible else f"if {n} < 0:")
        if field.nullable is None or self.version not in field.nullable:
            self.line(f"    raise ProtocolError('{self.owner.name}.{field.name} is null')")
        else:
            self.line(f"    {target} = None")
            if step:
                self.line(f"    {step}")
        self.line("else:")

    def array(self, field: Field, target: str) -> None:
        """An array of any element type. An element takes a byte at least, so more elements than bytes are an error."""
        n = self.name("n")
        self.run.append(("B" if self.flexible else "i", n))
        self.flush()
        if self.flexible:
            self.line(f"if {n} > 127: {n}, o = {self.primitive('decode_uvarint')}(b, o - 1)")
        self.null(field, target, n)
        self.indent += 1
        if self.flexible:
            self.line(f"{n} -= 1")
        size = _struct(FIXED[field.type]).size if field.type in FIXED else 1
        self.line(f"if {n}{f' * {size}' if size > 1 else ''} > len(b) - o:")
        self.line(f"    raise ProtocolError(f'{self.owner.name}.{field.name} announces {{{n}}} elements')")
        self.announced(n)
        if field.type in FIXED and field.type != "uuid":
            unpack = self.use("unpack", struct.unpack_from)
            self.line(f"{target} = list({unpack}(f'>{{{n}}}{FIXED[field.type]}', b, o))")
            self.line(f"o += {n} * {size}" if size > 1 else f"o += {n}")
        else:
            x, element = self.name("x"), self.name("e")
            self.line(f"{target} = {x} = []")
            self.line(f"for _ in range({n}):")
            self.indent += 1
            self.value(field._replace(array=False, nullable=None), element)
            self.flush()
            self.line(f"{x}.append({element})")
            self.appended(field, element)
            self.indent -= 1
        self.indent -= 1

    def tags(self, tagged: list[Field]) -> None:
        """The tagged fields at the end of a struct of a flexible version; usually there are none."""
        self.run.append(("B", "t"))
        self.flush(behind=1)
        for field in tagged:
            self.line(f"m.{field.name} = {self.default(field)}")
        self.line("if t:")
        self.line(f"    t, o = {self.primitive('decode_tags')}(b, o)")
        for field in tagged:
            self.line(f"    if {field.tag} in t: m.{field.name} = {self.tag(field)}(t.pop({field.tag}))")
        self.line("    m.unknown_tagged_fields = t")
        self.line("else:")
        self.line("    o += 1")
        self.line(f"    m.unknown_tagged_fields = {self.use('NO_TAGS', NO_TAGS)}")

    def tag(self, field: Field) -> str:
        """The function that decodes a known tagged field from its bytes; they must hold it and nothing else."""
        inner = _Decoder(self.owner, self.version, self.flexible)
        inner.line("o = 0")
        inner.value(field, "v")
        inner.flush()
        inner.line("if o != len(b):")
        inner.line(f"    raise ProtocolError('{self.owner.name}.{field.name} has another size than its tag says')")
        inner.line("return v")
        return self.of_field(inner.function(f"decode_{field.name}", "b"), field)

    def default(self, field: Field) -> str:
        """An expression of the default; lists and structs are new each time, for a message may be changed."""
        if field.default == ():
            return "[]"
        if field.has_struct:
            return f"{self.use('default', self.owner.default)}({field.type!r})"
        if field.type == "uuid" and not field.array:
            return self.use("ZERO_UUID", zero_uuid())
        return repr(field.default)

    def uuid(self) -> str:
        from uuid import UUID

        return self.use("UUID", UUID)


class _StepDecoder(_Decoder):
    """Writes a decode function that yields behind each element of an array, and limits the number of all elements."""

    PARAMETERS = "b, o, c"

    def struct(self, definition: Struct) -> Source:
        self.line("if False: yield  # a generator, whatever fields follow")
        return super().struct(definition)

    def nested(self, struct: Struct, target: str) -> None:
        if has_arrays(struct) or has_content(struct):
            codec = self.use(f"decode_{struct.name}", self.owner.codec(struct.name))
            self.line(f"{target}, o = yield from {codec}(b, o, c)")
        else:
            super().nested(struct, target)

    def cut(self, field: Field, start: str, end: str) -> str:
        whole = super().cut(field, start, end)
        if field.type == "string":
            return whole
        copied, most = self.primitive("copied"), self.primitive("COPIED_BYTES")
        return f"({whole} if {end} - ({start}) <= {most} else (yield from {copied}(b, {start}, {end})))"

    def announced(self, n: str) -> None:
        self.line(f"c[0] -= {n}")
        self.line("if c[0] < 0: raise ProtocolError(c[1])")

    def appended(self, field: Field, element: str) -> None:
        if field.struct is not None and self.flexible:
            self.line(f"c[0] -= len({element}.unknown_tagged_fields)")
            self.line("if c[0] < 0: raise ProtocolError(c[1])")
        self.line("yield")


class _Encoder(_Lines):
    """Writes an encode function: checks and lengths line by line, then one expression that joins all parts.

    A part is (code, expression): a fixed value with its `struct` code, or bytes, whose code is "" (or "*" for an
    iterable of bytes). Neighbouring fixed parts become one `pack`.
    """

    PARAMETERS = "m"

    def __init__(self, owner: Owner, version: int, flexible: bool) -> None:
        super().__init__(owner, version, flexible)
        self.parts: list[tuple[str, str]] = []

    def struct(self, definition: Struct) -> Source:
        tagged = []
        for field in definition.fields:
            value = f"m.{field.name}"
            if self.version not in field.versions:
                if not field.ignorable:
                    self.line(f"if {self.differs(field, value)}:")
                    self.line(f"    raise AssertionError('{self.owner.name} has no {field.name} here')")
            elif field.tag is not None:
                tagged.append(field)
            else:
                self.value(field, value)
        if self.flexible:
            self.tags(tagged)
        self.line(f"return {self.joined()}")
        return self.function("encode", self.PARAMETERS)

    def joined(self, extra: tuple[str, str] | None = None) -> str:
        """The expression of all parts so far, and `extra`."""
        merged: list[str] = []
        run: list[tuple[str, str]] = []
        for code, value in [*self.parts, *([extra] if extra else []), ("", "")]:
            if code not in ("", "*"):
                run.append((code, value))
                continue
            if run:
                codes = "".join(code for code, _ in run)
                pack = self.use(f"pack_{_identifier(codes)}", _struct(codes).pack)
                merged.append(f"{pack}({', '.join(value for _, value in run if value)})")
                run = []
            if value:
                merged.append(code + value)
        return self.together(merged)

    def together(self, parts: list[str]) -> str:
        """The expression that joins parts."""
        if len(parts) == 1 and not parts[0].startswith("*"):
            return parts[0]
        return f"{self.use('join', b''.join)}(({', '.join(parts)}{',' if parts else ''}))"

    def differs(self, field: Field, value: str) -> str:
        """The condition under which a field differs from its default."""
        if field.default == ():
            return f"{value} != []"
        if field.has_struct:
            return f"{value} != {self.use(f'DEFAULT_{field.type}', self.owner.default(field.type))}"
        if field.type == "uuid" and not field.array:
            return f"{value} != {self.use('ZERO_UUID', zero_uuid())}"
        if field.default is None:
            return f"{value} is not None"
        return f"{value} != {field.default!r}"

    def value(self, field: Field, value: str) -> None:
        """A field of any type."""
        if field.array:
            self.array(field, value)
        elif field.struct is not None and field.nullable is not None:
            null = self.use("NULL_STRUCT", b"\xff") if field.tag is None else self.use("NULL_TAGGED", b"\0")
            present = self.use("STRUCT", b"\1")
            self.parts.append(("", f"({null} if {value} is None else {present} + {self.codec(field.struct)}({value}))"))
        elif field.struct is not None:
            self.parts.append(("", f"{self.codec(field.struct)}({value})"))
        elif field.type == "uuid":
            self.parts.append(("16s", f"{value}.bytes"))
        elif field.type in FIXED:
            self.parts.append((FIXED[field.type], value))
        else:
            self.content(field, value)

    def length(self, field: Field, content: str, name: str, empty: str) -> None:
        """Write the length of `content`, and put its bytes into `name`; null becomes the length of null and `empty`."""
        n = self.name("n")
        string = field.type == "string" and not field.array
        nullable = field.nullable is not None and self.version in field.nullable
        if nullable:
            self.line(f"if {content} is None:")
            self.line(f"    {n} = {self.use('NULL', primitives.UVARINT[0]) if self.flexible else -1}; {name} = {empty}")
            self.line("else:")
            self.indent += 1
        self.line(f"{name} = {content}{'.encode()' if string else ''}")
        self.line(f"{n} = len({name})")
        if self.flexible:
            short = f"{self.primitive('UVARINT')}[{n} + 1]"
            if string:
                self.line(f"{n} = {short} if {n} < 127 else {self.primitive('encode_string_size')}({n})")
            else:
                self.line(f"{n} = {short} if {n} < 127 else {self.primitive('encode_uvarint')}({n} + 1)")
        if nullable:
            self.indent -= 1
        self.parts.append(("" if self.flexible else "h" if string else "i", n))

    def content(self, field: Field, value: str) -> None:
        """A string, bytes or records."""
        s = self.name("s")
        self.length(field, value, s, "b''")
        self.parts.append(("", s))

    def array(self, field: Field, value: str) -> None:
        """An array of any element type."""
        x = self.name("x")
        self.length(field, value, x, "()")
        if field.struct is not None:
            self.structs(field.struct, x)
        elif field.type == "string":
            name = self.primitive("encode_compact_string" if self.flexible else "encode_string")
            self.parts.append(("*", f"map({name}, {x})"))
        elif field.type == "uuid":
            self.parts.append(("*", f"[u.bytes for u in {x}]"))
        elif field.type in FIXED:
            pack = self.use("pack", struct.pack)
            self.parts.append(("", f"{pack}(f'>{{len({x})}}{FIXED[field.type]}', *{x})"))
        else:
            self.parts.append(("*", f"map({self.apart(field._replace(array=False, nullable=None))}, {x})"))

    def structs(self, struct: Struct, x: str) -> None:
        """The elements of an array of structs."""
        self.parts.append(("*", f"map({self.codec(struct)}, {x})"))

    def tags(self, tagged: list[Field]) -> None:
        """The tagged fields: known ones that differ from their default, and unknown ones. Usually none: a zero byte."""
        t = "m.unknown_tagged_fields"
        if tagged:
            self.line(f"t = dict({t})")
            t = "t"
        for field in tagged:
            self.line(f"if {self.differs(field, f'm.{field.name}')}:")
            self.line(
                f"    assert {field.tag} not in t, '{self.owner.name}.{field.name} is among the unknown fields too'"
            )
            self.line(f"    t[{field.tag}] = {self.apart(field)}(m.{field.name})")
        section = f"{self.primitive('encode_tags')}({t})"
        self.line(f"if {t}:")
        self.line(f"    return {self.joined(('', section))}")
        self.parts.append(("x", ""))

    def apart(self, field: Field) -> str:
        """The function that gives the bytes of a field for themselves: a tagged one, or an element of an array."""
        inner = _Encoder(self.owner, self.version, self.flexible)
        inner.value(field, "v")
        inner.line(f"return {inner.joined()}")
        return self.of_field(inner.function(f"encode_{field.name}", "v"), field)


class _Writer(_Encoder):
    """Writes a function that takes the fields' values in place of a message; it writes no tagged fields."""

    def struct(self, definition: Struct) -> Source:
        fields = [field for field in definition.fields if self.version in field.versions and field.tag is None]
        for field in fields:
            self.value(field, field.name)
        if self.flexible:
            self.parts.append(("x", ""))
        self.line(f"return {self.joined()}")
        return self.function("write", ", ".join(field.name for field in fields))


class _StepEncoder(_Encoder):
    """Writes an encode function that yields behind each element of an array of structs.

    An element that is there several times, as the same object, is encoded once, unless it is small.
    """

    PARAMETERS = "m, c"

    def struct(self, definition: Struct) -> Source:
        self.line("if False: yield  # a generator, whatever fields follow")
        return super().struct(definition)

    def structs(self, struct: Struct, x: str) -> None:
        p, k, z = self.name("p"), self.name("k"), self.name("z")
        self.use("TooLarge", TooLarge)
        self.line(f"{p} = []; {k} = {{}}; {z} = 0")
        self.line(f"for e in {x}:")
        self.line(f"    s = {k}.get(id(e))")
        self.line("    if s is None:")
        if has_arrays(struct):
            codec = self.use(f"encode_{struct.name}", self.owner.codec(struct.name))
            self.line(f"        s = yield from {codec}(e, c)")
            self.line("        n = sum(map(len, s))")
            self.line(f"        if n <= {JOINED_MAX}: s = n, ({self.use('join', b''.join)}(s),)")
            self.line(f"        else: s = n, (yield from {self.use('joined', joined)}(s))")
            self.line(f"        if n > {REPEATED_MAX}: {k}[id(e)] = s")
            self.line(f"    {p} += s[1]; {z} += s[0]")
        else:
            self.line(f"        s = {self.codec(struct)}(e)")
            self.line(f"        if len(s) > {REPEATED_MAX}: {k}[id(e)] = s")
            self.line(f"    {p}.append(s); {z} += len(s)")
        self.line(f"    if {z} > c: raise TooLarge(f'{self.owner.name} would have more than {{c}} bytes')")
        self.line("    yield")
        self.parts.append(("*", p))

    def together(self, parts: list[str]) -> str:
        return f"[{', '.join(parts)}]"


decoder, decoder_in_steps, encoder, encoder_in_steps, writer = _Decoder, _StepDecoder, _Encoder, _StepEncoder, _Writer
"""Each writes a function of a struct: decoder(owner, version, flexible).struct(definition).

They are decode(b, o), decode(b, o, c), encode(m), encode(m, c), and write(...) with a parameter for each field that the
version has, in their order.
"""


def joined(parts: list[bytes]) -> Generator[None, None, list[bytes]]:
    """The parts of an element, the small ones joined: it may come ten thousand times. Yields behind each join.

    A part of APART_MIN bytes stays, because others may be the same object: a copy would take memory for each.
    """
    found: list[bytes] = []
    some: list[bytes] = []
    left = JOINED_MAX
    for part in parts:
        size = len(part)
        if size > left or size >= APART_MIN:
            found.append(b"".join(some))
            some, left = [], JOINED_MAX
            yield
        if size >= APART_MIN:
            found.append(part)
        else:
            some.append(part)
            left -= size
    return [*found, b"".join(some)]


def has_arrays(struct: Struct) -> bool:
    """Whether a struct has an array, in itself or in a struct that it holds."""
    return any(field.array or (field.struct is not None and has_arrays(field.struct)) for field in struct.fields)


def has_content(struct: Struct) -> bool:
    """Whether a struct has bytes or records, in itself or in a struct that it holds."""
    return any(
        field.type in {"bytes", "records"} or (field.struct is not None and has_content(field.struct))
        for field in struct.fields
    )


def build(source: Source, label: str) -> Callable[..., Any]:
    """The function that a source defines; `label` stands for the file in a traceback."""
    exec(compile(source.text, f"<{label}>", "exec"), source.namespace)
    function: Callable[..., Any] = source.namespace[source.name]
    return function


def zero_uuid() -> object:
    """The UUID that stands for none. The import stands here since only messages with topic ids need the module."""
    from uuid import UUID

    return UUID(int=0)


def _identifier(codes: str) -> str:
    return codes.replace("?", "t")
