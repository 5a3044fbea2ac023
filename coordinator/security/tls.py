"""An `ssl.SSLContext` from the settings of a listener, or of a client of our own.

TLS 1.2 and 1.3 are served, without renegotiation and compression; the server chooses the cipher suite. A client's
certificate is checked against the truststore; each certificate there is trusted, also one that is no root, as in Java.
There is no check of revocation.

Python's ssl reads a private key from files only. The key goes there through memory that has no name on any disk
(memfd; where that isn't, an unlinked file with mode 0600), and is gone when the context is made.

House rule: a setting that can't be obeyed is a `ConfigError`: one line that names it, without any secret.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import IO, NamedTuple

from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import Certificate, load_der_x509_certificate

from coordinator.config import ConfigError, ListenerConfig
from coordinator.security.tls_ciphers import TLS_1_2_DEFAULT, set_ciphers
from coordinator.security.tls_names import Mapping
from coordinator.security.tls_stores import Keystore, keystore_of, truststore_of

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
"""The versions that are served, by Kafka's names, oldest first."""

PROTOCOLS = ("TLS", *VERSIONS)
"""Values of ssl.protocol."""

CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class Terms(NamedTuple):
    """The demands of a listener on a TLS connection.

    context: makes handshakes. names: makes a user of a client's certificate; None if it names no user.
    ends: when the server's own certificate ends.
    """

    context: ssl.SSLContext
    names: Mapping | None
    ends: datetime

    @property
    def has_ended(self) -> bool:
        """Whether the server's own certificate has ended: nobody will trust it."""
        return self.ends < datetime.now(UTC)


def terms_of(config: ListenerConfig) -> Terms:
    """The demands of these settings, with all files read. Raises ConfigError."""
    keystore = keystore_of(config)
    if keystore is None:
        raise ConfigError("ssl.keystore.location: a listener with TLS needs a private key and its certificate")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_ciphers(TLS_1_2_DEFAULT)
    _set_versions(context, config)
    if config.ssl_cipher_suites:
        set_ciphers(context, config.ssl_cipher_suites)
        if context.minimum_version > context.maximum_version:
            raise ConfigError("ssl.cipher.suites: none of them belongs to a version of ssl.enabled.protocols")
    _load_keystore(context, keystore)
    _set_client_auth(context, config)
    try:
        names = Mapping(config.ssl_principal_mapping_rules)  # a wrong rule is said though nobody needs it yet
    except ValueError as error:
        raise ConfigError(f"ssl.principal.mapping.rules: {error}") from None
    return Terms(context, names, keystore.chain[0].not_valid_after_utc)


def has_ended(certificate: bytes) -> bool:
    """Whether a certificate, in DER, has ended. OpenSSL looks once, and not again when its session is resumed."""
    return load_der_x509_certificate(certificate).not_valid_after_utc < datetime.now(UTC)


def client_context(config: ListenerConfig, *, checks_host: bool) -> ssl.SSLContext:
    """The context with which a client of our own makes handshakes. Raises ConfigError.

    It trusts the truststore, or the CAs of this machine if there is none, and shows the certificate of the keystore, if
    there is one. checks_host: whether the server's certificate has to name the server's host.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = checks_host
    context.set_ciphers(TLS_1_2_DEFAULT)
    _set_versions(context, config)
    if config.ssl_cipher_suites:
        set_ciphers(context, config.ssl_cipher_suites)
    trusted, keystore = truststore_of(config), keystore_of(config)
    if trusted:
        _trust(context, trusted)
    else:
        context.load_default_certs()
    if keystore is not None:
        _load_keystore(context, keystore)
    return context


def _set_versions(context: ssl.SSLContext, config: ListenerConfig) -> None:
    if config.ssl_protocol not in PROTOCOLS:
        raise ConfigError(f"ssl.protocol: {config.ssl_protocol!r} is none of {', '.join(PROTOCOLS)}")
    enabled = config.ssl_enabled_protocols or tuple(VERSIONS)
    for name in enabled:
        if name not in VERSIONS:
            raise ConfigError(f"ssl.enabled.protocols: {name!r} is none of {', '.join(VERSIONS)}")
    versions = [version for name, version in VERSIONS.items() if name in enabled]
    context.minimum_version, context.maximum_version = versions[0], versions[-1]


def _set_client_auth(context: ssl.SSLContext, config: ListenerConfig) -> None:
    context.verify_mode = CLIENT_AUTH[config.ssl_client_auth]
    trusted = truststore_of(config)  # a wrong store is said though nobody may need it yet
    if context.verify_mode is ssl.CERT_NONE:
        return
    if not trusted:
        raise ConfigError(f"ssl.truststore.location: ssl.client.auth={config.ssl_client_auth} needs a truststore")
    _trust(context, trusted)


def _trust(context: ssl.SSLContext, trusted: Sequence[Certificate]) -> None:
    # Java trusts whatever stands in a truststore. OpenSSL by itself wants the chain to end at a root.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=b"".join(each.public_bytes(Encoding.DER) for each in trusted))
    except ssl.SSLError as error:
        raise ConfigError(f"ssl.truststore.location: OpenSSL refuses it: {_words(error)}") from None


def _load_keystore(context: ssl.SSLContext, keystore: Keystore) -> None:
    try:
        with _nameless(keystore.chain_pem()) as chain, _nameless(keystore.key_pem()) as key:
            context.load_cert_chain(chain, key)
    except ssl.SSLError as error:
        raise ConfigError(f"ssl.keystore.location: OpenSSL refuses key and certificates: {_words(error)}") from None


def _words(error: ssl.SSLError) -> str:
    return (error.reason or "it can't be used").replace("_", " ").lower()


@contextmanager
def _nameless(content: bytes) -> Iterator[str]:
    """A path to `content` that holds inside the block only, and only for this process: see the module."""
    with _nameless_file() as file:
        file.write(content)
        file.flush()
        file.seek(0)
        yield f"/dev/fd/{file.fileno()}"


def _nameless_file() -> IO[bytes]:
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("tenure", os.MFD_CLOEXEC), "w+b")
    return tempfile.TemporaryFile()
