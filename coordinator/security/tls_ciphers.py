"""`ssl.cipher.suites`: IANA's names of cipher suites, and OpenSSL's.

Kafka has the suites of TLS 1.2 and 1.3 in one list. OpenSSL has a list for each. The names of TLS 1.3 are the same in
both; those of TLS 1.2 are put together from a key exchange and a cipher.

House rule: a suite that can't be served is said at start: OpenSSL passes over names that it doesn't know.
"""

from __future__ import annotations

import _ssl
import ctypes
import ssl
from collections.abc import Sequence
from typing import Any

from coordinator.config import ConfigError

EXCHANGES = {"ECDHE_ECDSA": "ECDHE-ECDSA-", "ECDHE_RSA": "ECDHE-RSA-", "DHE_RSA": "DHE-RSA-", "RSA": ""}
"""Key exchanges of TLS 1.2. DHE is known and never chosen: the server has no parameters for it, as ECDHE is as good."""

CIPHERS = {
    "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
    "AES_128_CCM": "AES128-CCM",
    "AES_256_CCM": "AES256-CCM",
    "AES_128_CBC_SHA256": "AES128-SHA256",
    "AES_256_CBC_SHA256": "AES256-SHA256",
    "AES_256_CBC_SHA384": "AES256-SHA384",
    "AES_128_CBC_SHA": "AES128-SHA",
    "AES_256_CBC_SHA": "AES256-SHA",
}
"""Ciphers of TLS 1.2."""

TLS_1_3 = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_128_CCM_SHA256",
)
"""The suites of TLS 1.3. OpenSSL's default has the first three in this order."""
TLS_1_3_DEFAULT = TLS_1_3[:3]

TLS_1_2_DEFAULT = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""The suites of TLS 1.2 without `ssl.cipher.suites`, in OpenSSL's words: those that keep what was said secret though
the key gets known later, and that no attack on padding concerns. Every client of the last ten years has them.
"""


def openssl_name(iana: str) -> str | None:
    """OpenSSL's name of a suite of TLS 1.2; None if it isn't known."""
    exchange, between, cipher = iana.removeprefix("TLS_").partition("_WITH_")
    if not between or exchange not in EXCHANGES or cipher not in CIPHERS:
        return None
    return EXCHANGES[exchange] + CIPHERS[cipher]


def set_ciphers(context: ssl.SSLContext, suites: Sequence[str]) -> None:
    """Serve these suites only, in this order, and only versions of TLS that have one of them. Raises ConfigError."""
    newer = [suite for suite in suites if suite in TLS_1_3]
    older = {suite: openssl_name(suite) for suite in suites if suite not in TLS_1_3}
    for suite, name in older.items():
        if name is None:
            raise ConfigError(f"ssl.cipher.suites: {suite} is not known here (names are IANA's)")
    if older:
        names = [name for name in older.values() if name is not None]
        try:
            context.set_ciphers(":".join(names))
        except ssl.SSLError:
            raise ConfigError(f"ssl.cipher.suites: {', '.join(older)}: none can be served") from None
    if not older:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if not newer:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    elif tuple(newer) != TLS_1_3_DEFAULT:
        _set_tls_1_3(context, newer)
    served = {each["name"] for each in context.get_ciphers()}
    for suite in suites:
        if (suite if suite in newer else older[suite]) not in served:
            raise ConfigError(f"ssl.cipher.suites: {suite} can't be served: this OpenSSL takes it for too weak")


def _set_tls_1_3(context: ssl.SSLContext, suites: Sequence[str]) -> None:
    """Choose the suites of TLS 1.3. Python's ssl can't before 3.15, so this calls the OpenSSL that Python uses."""
    text = ":".join(suites)
    own: Any = getattr(context, "set_ciphersuites", None)
    if own is not None:
        own(text)
        return
    try:
        function = ctypes.CDLL(_ssl.__file__).SSL_CTX_set_ciphersuites
    except (AttributeError, OSError):
        raise ConfigError(
            f"ssl.cipher.suites: this Python can serve those of TLS 1.3 only together: {', '.join(TLS_1_3_DEFAULT)}"
        ) from None
    function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_char_p], ctypes.c_int
    # The first field behind the head of CPython's SSLContext is its SSL_CTX (Modules/_ssl.c, PySSLContext).
    pointer = ctypes.c_void_p.from_address(id(context) + object.__basicsize__)
    if function(pointer, text.encode()) != 1:
        raise ConfigError(f"ssl.cipher.suites: {', '.join(suites)}: OpenSSL takes not all of them")
