"""The certificates of tests are what their names say, to a TLS library that is not ours."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import pkcs12

from tests.support.certificates import (
    PASSWORD,
    PLAIN_PASSWORD,
    Certificates,
    client_context,
    handshake,
)


def shake(server_file: Path, trusted: Path, client_file: Path | None = None, *, password: str | None = None) -> None:
    """A handshake with these files. Raises ssl.SSLError. Where there is a client's file, the server asks for it."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(server_file, password=password)
    if client_file is not None:
        server.verify_mode = ssl.CERT_REQUIRED
        server.load_verify_locations(trusted)
    handshake(server, client_context(trusted, client_file))


def test_what_should_be_trusted_is(certificates: Certificates) -> None:
    """Server and client of one CA accept each other, with an encrypted key too."""
    shake(certificates.server, certificates.ca)
    shake(certificates.server, certificates.ca, certificates.client)
    shake(certificates.encrypted, certificates.ca, password=PASSWORD)
    shake(certificates.foreign, certificates.foreign_ca)


@pytest.mark.parametrize(
    ("server", "trusted", "client", "words"),
    [
        ("expired", "ca", None, "expired"),
        ("server", "foreign_ca", None, "unable to get local issuer"),
        ("foreign", "ca", None, "unable to get local issuer"),
        ("server", "ca", "expired_client", "expired"),
        ("server", "ca", "foreign_client", "unable to get local issuer"),
    ],
)
def test_what_should_not_be_trusted_is_not(
    certificates: Certificates, server: str, trusted: str, client: str | None, words: str
) -> None:
    """Each wrong certificate is wrong for the reason of its name."""
    with pytest.raises(ssl.SSLError, match=words):
        shake(
            getattr(certificates, server),
            getattr(certificates, trusted),
            getattr(certificates, client) if client else None,
        )


def test_stores_hold_what_the_files_hold(certificates: Certificates) -> None:
    """A store has the certificate of the file with its name, and opens with its password only."""
    password = PLAIN_PASSWORD.encode()
    key, certificate, _ = pkcs12.load_key_and_certificates(certificates.server_p12.read_bytes(), password)
    assert key is not None
    assert certificate is not None
    trusted = pkcs12.load_pkcs12(certificates.ca_p12.read_bytes(), password)
    assert [each.certificate for each in trusted.additional_certs] == [certificates.authority.certificate]
    with pytest.raises(ValueError, match="password"):
        pkcs12.load_pkcs12(certificates.ca_p12.read_bytes(), b"another")
