"""Reads `sasl.jaas.config`: a login module of Java with its options, from which come the users of PLAIN.

    org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret" "user_bob"="other";

House rule: no value of an option in an exception: it may be a password.
"""

from __future__ import annotations

import re
from typing import NamedTuple

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
BEARER_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
MODULES = {
    "PLAIN": PLAIN_MODULE,
    "SCRAM-SHA-256": SCRAM_MODULE,
    "SCRAM-SHA-512": SCRAM_MODULE,
    "OAUTHBEARER": BEARER_MODULE,
}
"""The login module of each mechanism."""

KAFKAS = "org.apache.kafka."

FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})
USER = "user_"

_TOKEN = re.compile(r"""\s*(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|([^\s=;"']+)|([=;]))""", re.DOTALL)


class Login(NamedTuple):
    """A login module, and its options."""

    module: str
    options: dict[str, str]


def shown(module: str) -> str:
    """A login module as an error may name it: someone may have put a password in its place."""
    return module if module.startswith(KAFKAS) else "the login module"


def read(text: str) -> Login:
    """The one login module of a text. Raises ValueError."""
    words = _words(text)
    if len(words) < 2 or words[0][1] or words[1][1]:
        raise ValueError("a login module and its flag are missing")
    module, flag = words[0][0], words[1][0]
    if flag.lower() not in FLAGS:
        raise ValueError(f"behind {shown(module)} stands none of {', '.join(sorted(FLAGS))}")
    options: dict[str, str] = {}
    at = 2
    while at < len(words) and words[at] != (";", True):
        one = words[at : at + 3]
        if len(one) < 3 or one[0][1] or one[1] != ("=", True) or one[2][1]:
            raise ValueError(f"option {len(options) + 1} of {shown(module)} is not NAME=VALUE")
        if one[0][0] in options:
            raise ValueError(f"{shown(module)} has the option {one[0][0]} twice")
        options[one[0][0]] = one[2][0]
        at += 3
    if at == len(words):
        raise ValueError(f"no semicolon ends the options of {shown(module)}")
    if at + 1 != len(words):
        raise ValueError(f"something stands behind the semicolon of {shown(module)}")
    return Login(module, options)


def users(text: str, mechanism: str) -> dict[str, str]:
    """The passwords by name that the text has, for a mechanism. Raises ValueError if it names another's module."""
    login = read(text)
    if login.module != MODULES[mechanism]:
        raise ValueError(f"{shown(login.module)} is not {MODULES[mechanism]}, the module of {mechanism}")
    found = {name.removeprefix(USER): value for name, value in login.options.items() if name.startswith(USER)}
    if "" in found:
        raise ValueError(f"{USER} has no name")
    return found


def _words(text: str) -> list[tuple[str, bool]]:
    """The words of a text, each with whether it is an unquoted `=` or `;`."""
    words: list[tuple[str, bool]] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at, end)
        if found is None:
            raise ValueError("a quote is not closed")
        quoted = found[1] if found[1] is not None else found[2]
        if quoted is not None:
            words.append((re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL), False))
        else:
            words.append((found[3] or found[4], found[4] is not None))
        at = found.end()
    return words
