"""TLS handshakes with a listener's settings, with Python's own client at the other end."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from coordinator.config import ConfigError, load
from coordinator.security import tls
from coordinator.security.tls import Terms, terms_of
from tests.support.certificates import Authority, Certificates, client_context, handshake


def terms(certificates: Certificates, *settings: str) -> Terms:
    """The terms of a listener that has the server's certificate and trusts the CA."""
    given = [
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={certificates.server}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={certificates.ca}",
    ]
    return terms_of(load(sets=[*given, *settings])[0].security)


def version(server: Terms, client: ssl.SSLContext) -> str | None:
    """The version that both agree on. Raises ssl.SSLError."""
    return handshake(server.context, client)[0].version()


def test_a_listener_shows_its_certificate(certificates: Certificates) -> None:
    """A client that trusts the CA gets through with TLS 1.3; nobody asks it for a certificate."""
    made = terms(certificates)
    server, _ = handshake(made.context, client_context(certificates.ca, certificates.client))
    assert server.version() == "TLSv1.3"
    assert server.getpeercert(binary_form=True) is None
    assert not made.has_ended


@pytest.mark.parametrize(
    ("setting", "newest", "agreed"),
    [
        ("ssl.enabled.protocols=TLSv1.2,TLSv1.3", "TLSv1_3", "TLSv1.3"),
        ("ssl.enabled.protocols=TLSv1.3,TLSv1.2", "TLSv1_2", "TLSv1.2"),
        ("ssl.enabled.protocols=TLSv1.2", "TLSv1_3", "TLSv1.2"),
        ("ssl.enabled.protocols=TLSv1.3", "TLSv1_2", None),
        ("ssl.enabled.protocols=", "TLSv1_3", "TLSv1.3"),
        ("ssl.enabled.protocols=TLSv1.2,TLSv1.3", "TLSv1_1", None),
        ("ssl.protocol=TLS", "TLSv1_3", "TLSv1.3"),
    ],
)
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
def test_only_enabled_versions_are_spoken(
    certificates: Certificates, setting: str, newest: str, agreed: str | None
) -> None:
    """A client of another version is refused; TLS 1.1 always is."""
    client = client_context(certificates.ca)
    client.set_ciphers("ALL:@SECLEVEL=0")
    client.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    client.maximum_version = ssl.TLSVersion[newest]
    if agreed is None:
        with pytest.raises(ssl.SSLError):
            version(terms(certificates, setting), client)
    else:
        assert version(terms(certificates, setting), client) == agreed


def test_suites_are_strong_unless_others_are_asked_for(certificates: Certificates) -> None:
    """Without `ssl.cipher.suites`, each has forward secrecy and an AEAD; a list may have others."""
    served = [each["name"] for each in terms(certificates).context.get_ciphers()]
    assert served[:3] == ["TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"]
    assert len(served) > 3
    assert all(name.startswith("ECDHE-") and ("GCM" in name or "CHACHA20" in name) for name in served[3:])
    asked = terms(certificates, "ssl.cipher.suites=TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA").context
    assert "ECDHE-ECDSA-AES128-SHA" in [each["name"] for each in asked.get_ciphers()]


@pytest.mark.parametrize(
    ("auth", "client", "passes"),
    [
        ("none", None, True),
        ("requested", None, True),
        ("requested", "client", True),
        ("requested", "foreign_client", False),
        ("required", "client", True),
        ("required", None, False),
        ("required", "expired_client", False),
        ("required", "foreign_client", False),
    ],
)
@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_client_auth_is_as_asked_for(
    certificates: Certificates, auth: str, client: str | None, passes: bool, newest: ssl.TLSVersion
) -> None:
    """`requested` lets a client in without a certificate, and never with a wrong one."""
    context = client_context(certificates.ca, getattr(certificates, client) if client else None)
    context.maximum_version = newest
    made = terms(certificates, f"ssl.client.auth={auth}")
    if passes:
        server, _ = handshake(made.context, context)
        assert (server.getpeercert(binary_form=True) is not None) == (client is not None)
    else:
        with pytest.raises(ssl.SSLError):
            handshake(made.context, context)


def test_a_certificate_for_servers_alone_lets_no_client_in(certificates: Certificates, tmp_path: Path) -> None:
    """The extended key usage counts, where a certificate has one."""
    made = terms(certificates, "ssl.client.auth=required")
    for usage, passes in ((ExtendedKeyUsageOID.CLIENT_AUTH, True), (ExtendedKeyUsageOID.SERVER_AUTH, False)):
        (tmp_path / "client.pem").write_text(certificates.authority.issue("c", usage=usage).pem())
        context = client_context(certificates.ca, tmp_path / "client.pem")
        if passes:
            handshake(made.context, context)
        else:
            with pytest.raises(ssl.SSLError, match="purpose"):
                handshake(made.context, context)


def test_whatever_stands_in_a_truststore_is_trusted(certificates: Certificates, tmp_path: Path) -> None:
    """A CA in the middle, without its root, as Java takes it; a client of the root alone is a stranger then."""
    middle = Authority("Middle", certificates.authority)
    (tmp_path / "middle.pem").write_text(middle.pem())
    (tmp_path / "client.pem").write_text(middle.issue("c").pem())
    made = terms(certificates, "ssl.client.auth=required", f"ssl.truststore.location={tmp_path / 'middle.pem'}")
    handshake(made.context, client_context(certificates.ca, tmp_path / "client.pem"))
    with pytest.raises(ssl.SSLError):
        handshake(made.context, client_context(certificates.ca, certificates.client))


def test_an_ended_certificate_is_noticed(certificates: Certificates) -> None:
    """The server may start with it, as Kafka does; whoever runs it has to hear of it."""
    assert terms(certificates, f"ssl.keystore.location={certificates.expired}").has_ended


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["ssl.enabled.protocols=TLSv1.9"], "ssl.enabled.protocols: 'TLSv1.9' is none of TLSv1.2, TLSv1.3"),
        (["ssl.enabled.protocols=TLSv1.1,TLSv1.2"], "ssl.enabled.protocols: 'TLSv1.1'"),
        (["ssl.protocol=SSLv3"], "ssl.protocol: 'SSLv3' is none of"),
        (["ssl.keystore.location="], "ssl.keystore.location: a listener with TLS needs"),
        (["ssl.truststore.location=", "ssl.client.auth=required"], "ssl.truststore.location: .*needs a truststore"),
        (["ssl.truststore.location=/missing"], "ssl.truststore.location: .*no such file"),
        (["ssl.client.auth=required", "ssl.principal.mapping.rules=ALL"], "ssl.principal.mapping.rules: 'ALL'"),
        (["ssl.principal.mapping.rules=ALL"], "ssl.principal.mapping.rules: 'ALL'"),
        (["ssl.principal.mapping.rules=RULE:^CN=(.*$/$1/L"], "ssl.principal.mapping.rules: .*unterminated subpattern"),
        (["ssl.cipher.suites=TLS_NONE"], "ssl.cipher.suites: TLS_NONE is not known"),
        (
            ["ssl.cipher.suites=TLS_AES_128_GCM_SHA256", "ssl.enabled.protocols=TLSv1.2"],
            "ssl.cipher.suites: none of them belongs",
        ),
        (
            ["ssl.cipher.suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ssl.enabled.protocols=TLSv1.3"],
            "ssl.cipher.suites: none of them belongs",
        ),
    ],
)
def test_what_can_not_be_obeyed_is_an_error(certificates: Certificates, settings: list[str], words: str) -> None:
    """One line names the setting; there is no way on with less than was asked for."""
    with pytest.raises(ConfigError, match=words) as caught:
        terms(certificates, *settings)
    assert "\n" not in str(caught.value)


def test_a_key_that_is_too_weak_is_said(certificates: Certificates, tmp_path: Path) -> None:
    """OpenSSL refuses RSA of 1024 bits; the line says so."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    (tmp_path / "weak.pem").write_text(certificates.authority.issue("localhost", key=key).pem())
    with pytest.raises(ConfigError, match=r"ssl.keystore.location: .*too small"):
        terms(certificates, f"ssl.keystore.location={tmp_path / 'weak.pem'}")


@pytest.mark.parametrize("has_memfd", [True, False])
def test_no_file_with_the_key_is_left(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_memfd: bool
) -> None:
    """While OpenSSL reads the key it has no name on a disk, and afterwards it is gone; with and without memfd."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if not has_memfd:
        monkeypatch.delattr(os, "memfd_create")
    seen: list[Path] = []
    real = tls._nameless_file

    @contextmanager
    def watched() -> Iterator[IO[bytes]]:
        with real() as file:
            yield file
            seen.append(Path(f"/proc/self/fd/{file.fileno()}").readlink())
            assert list(tmp_path.iterdir()) == []
            assert os.fstat(file.fileno()).st_nlink == 0
            assert os.fstat(file.fileno()).st_mode & 0o077 == 0 or has_memfd

    monkeypatch.setattr(tls, "_nameless_file", watched)
    terms(certificates)
    assert len(seen) == 2
    assert all(str(path).endswith("(deleted)") for path in seen)
