"""Keystores and truststores: `ssl.keystore.*` and `ssl.truststore.*` as key and certificates.

A store is PEM, in a file or in the setting itself, or a PKCS12 file, also where the type is JKS, Kafka's default. A PEM
keystore has one private key in PKCS#8 and the certificates from its own up to the CA's; what else stands there is
passed over, as in Kafka. Each fault is a `ConfigError`: one line that names the setting.

House rule: no key, no password and no content of a file in a message.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_private_key,
    pkcs12,
)

from coordinator.config import ConfigError, ListenerConfig

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes

STORE_BYTES_MAX = 4 * 1024 * 1024
"""The largest file that is read: the CAs of all browsers together are 0.3 MB. A wrong path may name anything."""

ASN_1_SEQUENCE = b"\x30"
"""The first byte of a PKCS12 file."""

_SECTION = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)

TYPES = "PEM and PKCS12 are served; keytool -importkeystore -deststoretype PKCS12 makes one of JKS"


class Keystore(NamedTuple):
    """A private key, and the certificates from its own to the CA's."""

    key: PrivateKeyTypes
    chain: Sequence[x509.Certificate]

    def key_pem(self) -> bytes:
        """The key, not encrypted."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def chain_pem(self) -> bytes:
        """The certificates."""
        return b"".join(each.public_bytes(Encoding.PEM) for each in self.chain)


def files_of(config: ListenerConfig) -> list[str]:
    """The files that the stores of a listener are read from."""
    return [path for path in (config.ssl_keystore_location, config.ssl_truststore_location) if path]


def keystore_of(config: ListenerConfig) -> Keystore | None:
    """The keystore; None if no setting names one. Raises ConfigError."""
    path = config.ssl_keystore_location
    where = f"ssl.keystore.location: {path}" if path else "ssl.keystore.key"
    kind = _kind(config.ssl_keystore_type, path)
    key, chain = config.ssl_keystore_key, config.ssl_keystore_certificate_chain
    if not (path or key or chain):
        return None
    if (key or chain) and path:
        raise ConfigError("ssl.keystore.location: ssl.keystore.key and ssl.keystore.certificate.chain exclude it")
    if not path and not chain:
        raise ConfigError("ssl.keystore.certificate.chain: ssl.keystore.key needs it")
    if not path and not key:
        raise ConfigError("ssl.keystore.key: ssl.keystore.certificate.chain needs it")
    _check_type("ssl.keystore.type", kind, inline=not path)
    if kind == "PEM" and config.ssl_keystore_password:
        raise ConfigError("ssl.keystore.password: a keystore of the type PEM has none, only ssl.key.password")
    if kind == "PKCS12":
        store = _pkcs12("ssl.keystore", path, config.ssl_keystore_password)
        own = store.cert
        if store.key is None or own is None:
            raise ConfigError(f"{where} has no private key with its certificate")
        made = Keystore(store.key, _in_order(own.certificate, [each.certificate for each in store.additional_certs]))
    else:
        if path:
            key = chain = _read("ssl.keystore.location", path).decode("latin-1")
        of_chain = where if path else "ssl.keystore.certificate.chain"
        made = Keystore(_key(where, key, config.ssl_key_password), _certificates(of_chain, chain))
    if _public(made.key.public_key()) != _public(made.chain[0].public_key()):
        raise ConfigError(f"{where}: the private key doesn't fit the first certificate")
    return made


def truststore_of(config: ListenerConfig) -> list[x509.Certificate]:
    """The certificates of the truststore; none if no setting names one. Raises ConfigError."""
    path = config.ssl_truststore_location
    kind = _kind(config.ssl_truststore_type, path)
    inline = config.ssl_truststore_certificates
    where = f"ssl.truststore.location: {path}" if path else "ssl.truststore.certificates"
    if not (path or inline):
        return []
    if path and inline:
        raise ConfigError("ssl.truststore.location: ssl.truststore.certificates excludes it")
    _check_type("ssl.truststore.type", kind, inline=not path)
    if kind == "PEM" and config.ssl_truststore_password:
        raise ConfigError("ssl.truststore.password: a truststore of the type PEM has none")
    if kind == "PKCS12":
        store = _pkcs12("ssl.truststore", path, config.ssl_truststore_password)
        found = [each.certificate for each in (store.cert, *store.additional_certs) if each is not None]
        if not found:
            raise ConfigError(f"{where} has no certificate")
        return found
    return _certificates(where, _read("ssl.truststore.location", path).decode("latin-1") if path else inline)


def _kind(kind: str, path: str) -> str:
    """The type of a store. Java's JKS opens PKCS12 too, which keytool makes; so its users set no type."""
    kind = kind.upper()
    if kind == "JKS" and path:
        with suppress(OSError), Path(path).open("rb") as file:
            return "PKCS12" if file.read(1) == ASN_1_SEQUENCE else kind
    return kind


def _check_type(setting: str, kind: str, *, inline: bool) -> None:
    if kind not in {"PEM", "PKCS12"}:
        raise ConfigError(f"{setting}: {kind} is not served: {TYPES}")
    if inline and kind != "PEM":
        raise ConfigError(f"{setting}: a store inside a setting is of the type PEM, not {kind}")


def _read(setting: str, path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            content = file.read(STORE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{setting}: {path}: {(error.strerror or str(error)).lower()}") from None
    if len(content) > STORE_BYTES_MAX:
        raise ConfigError(f"{setting}: {path} is larger than {STORE_BYTES_MAX} bytes")
    return content


def _sections(where: str, text: str, suffix: str) -> list[tuple[str, bytes]]:
    """The PEM sections whose label ends so, each with its label. A setting may have spaces in place of line ends."""
    found: list[tuple[str, bytes]] = []
    for section in _SECTION.finditer(text):
        if section[1].endswith(suffix):
            body = "".join(section[2].split())
            try:
                found.append((section[1], b64decode(body, validate=True)))
            except ValueError:
                raise ConfigError(f"{where}: its {section[1].lower()} is not PEM") from None
    return found


def _certificates(where: str, text: str) -> list[x509.Certificate]:
    found = _sections(where, text, "CERTIFICATE")
    if not found:
        raise ConfigError(f"{where}: there is no certificate (PEM)")
    try:
        return [x509.load_der_x509_certificate(content) for _, content in found]
    except ValueError:
        raise ConfigError(f"{where}: a certificate can't be read") from None


def _key(where: str, text: str, password: str) -> PrivateKeyTypes:
    found = _sections(where, text, "PRIVATE KEY")
    if len(found) != 1:
        raise ConfigError(f"{where}: there are {len(found)} private keys (PEM), not one")
    label, content = found[0]
    if label not in {"PRIVATE KEY", "ENCRYPTED PRIVATE KEY"}:
        raise ConfigError(f"{where}: its key is not PKCS#8 (openssl pkcs8 -topk8 makes it)")
    is_encrypted = label == "ENCRYPTED PRIVATE KEY"
    if is_encrypted and not password:
        raise ConfigError(f"ssl.key.password: it is missing, and the key is encrypted ({where.partition(':')[0]})")
    if password and not is_encrypted:
        raise ConfigError(f"ssl.key.password: the key is not encrypted ({where.partition(':')[0]})")
    try:
        return load_der_private_key(content, password.encode() if is_encrypted else None)
    except UnsupportedAlgorithm:
        raise ConfigError(f"{where}: its key, or its encryption, is of a kind that is not supported") from None
    except (ValueError, TypeError):
        if is_encrypted:
            raise ConfigError("ssl.key.password: it doesn't open the private key") from None
        raise ConfigError(f"{where}: its private key can't be read") from None


def _pkcs12(prefix: str, path: str, password: str) -> pkcs12.PKCS12KeyAndCertificates:
    content = _read(f"{prefix}.location", path)
    if not password and prefix == "ssl.keystore":
        raise ConfigError(f"{prefix}.password: a keystore of the type PKCS12 needs it")
    try:
        return pkcs12.load_pkcs12(content, password.encode() if password else None)
    except UnsupportedAlgorithm:
        raise ConfigError(f"{prefix}.location: {path} is encrypted in a way that is not supported") from None
    except (ValueError, TypeError):
        raise ConfigError(
            f"{prefix}.password: it doesn't open {prefix}.location, {path}, or that is not PKCS12"
        ) from None


def _in_order(own: x509.Certificate, others: list[x509.Certificate]) -> list[x509.Certificate]:
    """The chain from `own` upwards. A PKCS12 store keeps certificates in any order."""
    chain = [own]
    while chain[-1].issuer != chain[-1].subject:
        above = next((each for each in others if each.subject == chain[-1].issuer and each not in chain), None)
        if above is None:
            break
        chain.append(above)
    return chain


def _public(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
