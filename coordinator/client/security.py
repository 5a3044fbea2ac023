"""How a client speaks to a server that asks for TLS or SASL, from a client properties file.

`wrap` makes TLS of a connected socket. `begin_login` starts a SASL dialogue; coordinator.client.connection carries its
tokens. A token in a file is read anew at each login, because it expires.

House rule: what is wrong in the file is found when a `Security` is made, before anything connects.
"""

from __future__ import annotations

import re
import secrets
import ssl
from collections.abc import Callable
from pathlib import Path
from socket import socket
from urllib.parse import unquote, urlsplit

from coordinator.client.errors import Unauthenticated, Unreachable
from coordinator.client.properties import JAAS, LOCATIONS, TOKEN_URL, Properties, PropertiesError
from coordinator.config import ConfigError
from coordinator.group.client import ANONYMOUS
from coordinator.security import jaas
from coordinator.security.sasl.client import Dialogue, Untrusted, oauthbearer, plain, scram

NONCE_BYTES = 24
TOKEN_MAX = 65_536
"""Characters of a token: far more than any, far less than a file that was named by mistake."""

ALERT = re.compile(r"(?:SSLV3|TLSV1|TLSV13)_ALERT_(\w+)")
"""OpenSSL's name of an error that the server sent; the version in it says when the error was invented."""

EXTENSION = "extension_"
"""An option of OAUTHBEARER's login module that begins with it is an extension (KIP-342)."""

CERTIFIED, TOKEN = "the user of this client's certificate", "the user of this client's token"
"""The server makes the name from them, by its own rules."""


class Security:
    """How to connect to the servers of a cluster. Raises PropertiesError.

    protocol: Kafka's name of TLS with or without SASL. mechanism: of SASL; "" if the client doesn't log in. client_id,
    timeout_s: None if the file has none. of_kafka: all of it for a client of Kafka's own, whatever its working folder
    is. user: the client's name for the servers, for a person. context: TLS in place of the file's.
    """

    def __init__(self, properties: Properties, context: ssl.SSLContext | None = None) -> None:
        self.protocol = properties.protocol
        self.mechanism = properties.mechanism
        self.client_id = properties.client_id
        self.timeout_s = properties.timeout_s
        self.of_kafka = properties.texts | {
            key: str(Path(properties.texts[key]).absolute()) for key in LOCATIONS if properties.texts.get(key)
        }
        self._context = _tls_context(properties) if properties.protocol.endswith("SSL") else context
        shows_certificate = properties.protocol == "SSL" and properties.tls.ssl_keystore_location
        self.user = CERTIFIED if shows_certificate else ANONYMOUS
        self._begin = None
        if properties.mechanism:
            self.user, self._begin = _login(properties)

    def wrap(self, connected: socket, host: str) -> socket:
        """The socket to speak through, after the TLS handshake if there is TLS.

        Raises Unauthenticated, Unreachable if the server ends the connection, and OSError.
        """
        if self._context is None:
            return connected
        try:
            return self._context.wrap_socket(connected, server_hostname=host)
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError):
            hint = f"perhaps it speaks no TLS, which security.protocol={self.protocol} asks for"
            raise Unreachable(f"closed the connection in the TLS handshake, {hint}") from None
        except ssl.SSLError as error:
            raise _refusal(error) or error from None

    def refusal(self, error: OSError, connected: socket) -> Unauthenticated | None:
        """The refusal behind an error of a connection; None if the connection is only lost.

        If a server refuses the client and closes the connection, a request that comes too late fails to be sent. The
        refusal can still be read then.
        """
        if self._context is None:
            return None
        if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ConnectionError):
            try:
                connected.recv(1)
            except OSError as found:
                error = found
        return _refusal(error)

    def log_in(self, exchange: Callable[[bytes], bytes]) -> None:
        """Log in; `exchange` sends a token and returns the server's. Raises Unauthenticated."""
        assert self._begin is not None
        dialogue = self._begin()
        try:
            token = next(dialogue)
            while True:
                token = dialogue.send(exchange(token))
        except StopIteration:
            return
        except Untrusted as error:
            raise Unauthenticated(str(error)) from None


def _refusal(error: OSError) -> Unauthenticated | None:
    if isinstance(error, ssl.SSLCertVerificationError):
        return Unauthenticated(f"the server's certificate: {error.verify_message}")
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        alert = ALERT.fullmatch(error.reason or "")
        if alert is not None:
            said = alert[1].replace("_", " ").lower()
            return Unauthenticated(f"the server refuses the TLS handshake: {said}")
        return Unauthenticated(f"TLS: {error.reason or error}")
    return None


def _login(properties: Properties) -> tuple[str, Callable[[], Dialogue]]:
    """The user, and what begins the dialogue of the mechanism."""
    mechanism = properties.mechanism
    wanted = jaas.MODULES[mechanism]
    if not properties.jaas:
        raise properties.wrong(JAAS, f"{mechanism} needs it: {wanted} required ...;")
    try:
        login = jaas.read(properties.jaas)
    except ValueError as error:
        raise properties.wrong(JAAS, error) from None
    if login.module != wanted:
        raise properties.wrong(JAAS, f"{jaas.shown(login.module)} is not {wanted}, the module of {mechanism}")
    if mechanism == "OAUTHBEARER":
        return TOKEN, _token_login(properties, login.options)
    for option in ("username", "password"):
        if not login.options.get(option):
            raise properties.wrong(JAAS, f"{login.module} has no {option}")
    user, password = login.options["username"], login.options["password"]
    if mechanism == "PLAIN":
        return f"User:{user}", lambda: plain(user, password)
    return f"User:{user}", lambda: scram(mechanism, user, password, secrets.token_urlsafe(NONCE_BYTES))


def _token_login(properties: Properties, options: dict[str, str]) -> Callable[[], Dialogue]:
    """Begins OAUTHBEARER, with the token of an option or of a file."""
    names = (name for name in options if name.startswith(EXTENSION))
    extensions = {name.removeprefix(EXTENSION): options[name] for name in names}
    token = options.get("token", "")
    if token:
        return lambda: oauthbearer(token, extensions)
    url = urlsplit(properties.token_url)
    if url.scheme != "file":
        has = f"{properties.token_url!r} is" if properties.token_url else "there is"
        raise properties.wrong(TOKEN_URL, f"{has} no URL of a file, and {JAAS} has no option token")
    path = Path(unquote(url.path))

    def begin() -> Dialogue:
        try:
            with path.open(encoding="ascii") as file:
                read = file.read(TOKEN_MAX).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Unauthenticated(f"token of {path}: {getattr(error, 'strerror', None) or error}") from None
        return oauthbearer(read, extensions)

    return begin


def _tls_context(properties: Properties) -> ssl.SSLContext:
    """TLS as the file asks for it."""
    from coordinator.security.tls import client_context  # noqa: PLC0415 - costs 0.1 s, which SASL alone needn't pay

    try:
        return client_context(properties.tls, checks_host=properties.checks_host)
    except ConfigError as error:
        raise PropertiesError(f"{properties.name}: {error}") from None
