r"""The user behind a client's certificate: its distinguished name, and what `ssl.principal.mapping.rules` make of it.

`distinguished_name` writes the subject as Java's X500Principal.getName does, because rules and ACLs of a Kafka cluster
are written for that form: RFC 2253, the last part first (`CN=alice,OU=Tests,O=Tenure,C=DE`). It reads the DER itself: a
part whose type Java has no name for is shown as its bytes.

`Mapping` applies the rules. The first rule whose pattern fits the whole name wins:

    RULE:^CN=(.*?),OU=Tests.*$/$1/L,DEFAULT

Patterns are Java's. Python reads nearly all of them; `(?<name>...)`, `\k<name>` and `\Q...\E` are translated. Others
(`\p{Alpha}`, `[a-z&&[^b]]`, `(?i)` inside a pattern) are refused at start. `.` fits U+0085, U+2028 and U+2029 too,
which Java's doesn't.

House rule: no name of a client is an error of ours: what fits no rule is `None`, and its connection ends.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import NamedTuple

VERSION = 0xA0  # context-specific and constructed, number 0

KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The parts that RFC 2253 names. Java shows any other as numbers and hexadecimal digits."""

TEXTS = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""Tags of values that Java shows as text: UTF8, Printable, T61, IA5, General, BMP. It reads all of them as UTF-8."""

_ESCAPED = re.compile(r'[,=+<>#;"\\]')


class Element(NamedTuple):
    """A DER element. whole: with its tag and length."""

    tag: int
    content: bytes
    whole: bytes


def _elements(data: bytes) -> Iterator[Element]:
    """The elements that stand one behind another. Raises ValueError."""
    at = 0
    while at < len(data):
        if len(data) < at + 2:
            raise ValueError("a DER element is cut off")
        length, start = data[at + 1], at + 2
        if length == 0x80:
            raise ValueError("an element has an indefinite length, which DER forbids")
        if length & 0x80:
            start += length & 0x7F
            length = int.from_bytes(data[at + 2 : start], "big")
        end = start + length
        if end > len(data):
            raise ValueError("a DER element is cut off")
        yield Element(data[at], data[start:end], data[at:end])
        at = end


def subject_of(certificate: bytes) -> bytes:
    """The subject of a certificate, both in DER. Raises ValueError."""
    outer = list(_elements(certificate))
    signed = list(_elements(outer[0].content)) if outer else []
    fields = list(_elements(signed[0].content)) if signed else []
    if fields and fields[0].tag == VERSION:
        del fields[0]
    if len(fields) < 5:  # serial number, algorithm, issuer, times, subject
        raise ValueError("a certificate has no subject")
    return fields[4].whole


def distinguished_name(subject: bytes) -> str:
    """A name in DER as text: see the module. Raises ValueError."""
    (name,) = _elements(subject)
    parts = ["+".join(map(_attribute, _elements(part.content))) for part in _elements(name.content)]
    return ",".join(reversed(parts))


def _attribute(attribute: Element) -> str:
    kind, value = _elements(attribute.content)
    numbers = _object_id(kind.content)
    keyword = KEYWORDS.get(numbers)
    if keyword is None or value.tag not in TEXTS:
        return f"{keyword or numbers}=#{value.whole.hex()}"
    text = value.content.decode("utf-8", "replace")
    escaped = _ESCAPED.sub(r"\\\g<0>", text).replace("\0", "\\00")
    inner = escaped.strip(" ")
    left = len(escaped) - len(escaped.lstrip(" "))
    right = len(escaped) - left - len(inner)
    return f"{keyword}=" + "\\ " * left + inner + "\\ " * right


def _object_id(content: bytes) -> str:
    numbers: list[int] = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first, *others = numbers
    top = min(first // 40, 2)
    return ".".join(map(str, (top, first - 40 * top, *others)))


class Rule(NamedTuple):
    """A rule. replacement: texts, and the groups of the pattern between them. case: "L", "U" or ""."""

    pattern: re.Pattern[str]
    replacement: tuple[str | int, ...]
    case: str

    def apply(self, name: str) -> str | None:
        """The user's name, or None if the pattern doesn't fit."""
        if self.pattern.fullmatch(name) is None:
            return None
        made = self.pattern.sub(self._filled, name)  # as Java's replaceAll: `.*` fits a second time, at the end
        return made.lower() if self.case == "L" else made.upper() if self.case == "U" else made

    def _filled(self, found: re.Match[str]) -> str:
        return "".join(each if isinstance(each, str) else found[each] or "" for each in self.replacement)


NAME_MAX = 1_000
"""Characters of a name that rules are tried on. A pattern with several `.*` takes longer than in proportion, and the
loop waits meanwhile; names in certificates have about a hundred characters.
"""


class Mapping:
    """The rules of a listener, from the text of the setting. Raises ValueError."""

    def __init__(self, text: str) -> None:
        self._rules = list(_rules(text))

    def user(self, name: str) -> str | None:
        """The user's name that the first fitting rule makes of a distinguished name.

        None if no rule fits, or if there are rules and the name is too long for them.
        """
        if len(name) > NAME_MAX and self._rules != [None]:
            return None
        for rule in self._rules:
            found = name if rule is None else rule.apply(name)
            if found is not None:
                return found
        return None


_RULE = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)", re.DOTALL)


def _rules(text: str) -> Iterator[Rule | None]:
    """The rules; None is DEFAULT. An empty one is passed over, as in Kafka."""
    at = 0
    while at < len(text):
        rest = text[at:]
        found = _RULE.match(rest)
        if found is not None:
            taken = found.end()
            pattern = _pattern(found[1])
            yield Rule(pattern, tuple(_replacement(found[2], pattern)), found[3])
        elif rest.startswith("DEFAULT"):
            taken = len("DEFAULT")
            yield None
        else:
            taken = 0
        behind = rest[taken:].lstrip()
        if behind and behind[0] != ",":
            raise ValueError(f"{rest.strip()!r} is neither DEFAULT nor RULE:PATTERN/NAME/[LU]")
        at = len(text) - len(behind[1:].lstrip())


def _pattern(java: str) -> re.Pattern[str]:
    """Java's pattern as Python's. Raises ValueError."""
    python = re.sub(r"\\Q(.*?)(?:\\E|$)", lambda quoted: re.escape(quoted[1]), java, flags=re.DOTALL)
    python = re.sub(r"(\\.)|\(\?<(?=[A-Za-z])", lambda found: found[1] or "(?P<", python, flags=re.DOTALL)
    python = re.sub(r"\\k<(\w+)>", r"(?P=\1)", python)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Python warns of a set inside a set, which means something else to Java
            return re.compile(python, re.ASCII)
    except (re.error, FutureWarning, DeprecationWarning) as error:
        raise ValueError(f"{java!r} is no pattern that this server can read: {error}") from None


def _replacement(text: str, pattern: re.Pattern[str]) -> Iterator[str | int]:
    r"""The parts of a replacement: `$1` and `${name}` are groups, `\c` is c. A group that there is not stays text."""
    for found in re.finditer(r"\\(.)|\$\{(\w+)\}|\$(\d+)|(.)", text, re.DOTALL):
        if found[2] is not None:
            if found[2] not in pattern.groupindex:
                raise ValueError(f"the pattern of {text!r} has no group {found[2]}")
            yield pattern.groupindex[found[2]]
        elif found[3] is not None:
            digits = found[3]
            length = max((end for end in range(1, len(digits) + 1) if int(digits[:end]) <= pattern.groups), default=0)
            if length:
                yield int(digits[:length])
                yield digits[length:]
            else:
                yield found[0]
        else:
            yield found[1] or found[4]
