"""Certificates for tests, in a folder: a CA, what it signed, what another CA signed, and stores of each form.

    files = make_certificates(tmp_path)
    f"ssl.keystore.location={files.server}", f"ssl.truststore.location={files.ca}"

A PEM file of a program has its private key (PKCS#8), then its certificate, as Kafka's `ssl.keystore.location` and most
clients take it. Keys are of the curve P-256: a thousand handshakes in a test cost little. `Authority` makes more: other
names, other times, chains.

House rule: nothing here imports Tenure, so that Kafka and its clients can be given the same files.
"""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

PASSWORD = "paßword \\ of a test"  # Latin-1 and a backslash, which properties files and PKCS12 write differently
PLAIN_PASSWORD = "changeit"
"""The password of all files whose readers may know ASCII alone."""

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True)
class Identity:
    """A private key with its certificate, and the certificates between that and a CA that others trust."""

    key: Key
    certificate: x509.Certificate
    between: tuple[x509.Certificate, ...] = ()

    def chain_pem(self) -> str:
        """The certificates, its own first."""
        return "".join(each.public_bytes(Encoding.PEM).decode() for each in (self.certificate, *self.between))

    def key_pem(self, password: str = "") -> str:
        """The private key in PKCS#8, encrypted if there is a password."""
        encryption: KeySerializationEncryption = NoEncryption()
        if password:
            encryption = BestAvailableEncryption(password.encode())
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    def pem(self, password: str = "") -> str:
        """Key and certificates."""
        return self.key_pem(password) + self.chain_pem()

    def pkcs12(self, password: str) -> bytes:
        """A PKCS12 store with key and certificates."""
        encryption = BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(
            b"tenure", self.key, self.certificate, list(self.between), encryption
        )


class Authority:
    """A CA. parent: the one that signed its certificate, None for a root."""

    def __init__(self, name: str, parent: Authority | None = None) -> None:
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.key = ec.generate_private_key(ec.SECP256R1())
        self._parent = parent
        self.certificate = (parent or self)._signed(self.name, self.key, extensions=[_ca()])

    def issue(
        self,
        name: x509.Name | str,
        *,
        hosts: tuple[str, ...] = (),
        days: int = 30,
        key: Key | None = None,
        usage: x509.ObjectIdentifier | None = None,
    ) -> Identity:
        """An identity that this CA signed.

        name: a distinguished name, or a common name alone. hosts: its alternative names. days: how long it holds from
        today; below 0 it has expired. key: a fresh one of P-256 by default.
        """
        if isinstance(name, str):
            name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        key = key or ec.generate_private_key(ec.SECP256R1())
        extensions: list[x509.ExtensionType] = [x509.BasicConstraints(ca=False, path_length=None)]
        if hosts:
            extensions.append(x509.SubjectAlternativeName([_general_name(host) for host in hosts]))
        if usage is not None:
            extensions.append(x509.ExtendedKeyUsage([usage]))
        between = () if self._parent is None else (self.certificate,)
        return Identity(key, self._signed(name, key, extensions=extensions, days=days), between)

    def pem(self) -> str:
        """Its certificate."""
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def _signed(
        self, name: x509.Name, key: Key, *, extensions: list[x509.ExtensionType], days: int = 30
    ) -> x509.Certificate:
        end = datetime.now(UTC) + timedelta(days=days)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(datetime.now(UTC), end) - timedelta(days=1))
            .not_valid_after(end)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()),
                critical=False,
            )
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        return builder.sign(self.key, hashes.SHA256())


def with_subject_in_ber(authority: Authority, identity: Identity) -> bytes:
    """The certificate of an identity, signed anew: its subject has an indefinite length, which DER forbids."""
    assert isinstance(authority.key, ec.EllipticCurvePrivateKey)
    made = identity.certificate
    subject = made.subject.public_bytes()
    before, found, behind = made.tbs_certificate_bytes.rpartition(subject)
    assert found == subject
    signed = _sequence(_content(before + b"\x30\x80" + _content(subject) + b"\0\0" + behind))
    signature = b"\0" + authority.key.sign(signed, ec.ECDSA(hashes.SHA256()))
    algorithm = _content(made.public_bytes(Encoding.DER))[len(made.tbs_certificate_bytes) :][:12]
    return _sequence(signed + algorithm + b"\x03" + bytes([len(signature)]) + signature)


def _content(element: bytes) -> bytes:
    """The content of a DER element."""
    return element[2 + (element[1] & 0x7F if element[1] & 0x80 else 0) :]


def _sequence(content: bytes) -> bytes:
    """A DER sequence of 256 to 65,535 bytes."""
    return b"\x30\x82" + len(content).to_bytes(2, "big") + content


def _ca() -> x509.BasicConstraints:
    return x509.BasicConstraints(ca=True, path_length=None)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


@dataclass(frozen=True)
class Certificates:
    """Paths of PEM files, and what made them.

    ca: of the CA that server and client trust. server, client: signed by it. expired, expired_client: as these two, but
    they ended yesterday. foreign_ca: of a CA that nobody trusts. foreign, foreign_client: signed by that.
    encrypted: as server, its key encrypted with PASSWORD. server_p12, client_p12, ca_p12: PKCS12 stores with
    PLAIN_PASSWORD.
    """

    folder: Path
    authority: Authority
    foreign_authority: Authority
    ca: Path
    server: Path
    client: Path
    expired: Path
    expired_client: Path
    foreign_ca: Path
    foreign: Path
    foreign_client: Path
    encrypted: Path
    server_p12: Path
    client_p12: Path
    ca_p12: Path


HOSTS = ("localhost", "127.0.0.1", "::1")
"""The names of each server's certificate."""


def make_certificates(folder: Path) -> Certificates:
    """Write the files of `Certificates` into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    authority, foreign = Authority("Tenure Test CA"), Authority("Foreign Test CA")
    server = authority.issue("localhost", hosts=HOSTS)
    client = authority.issue(client_name("alice"))

    def write(name: str, content: str | bytes) -> Path:
        path = folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        path.chmod(0o600)
        return path

    return Certificates(
        folder,
        authority,
        foreign,
        ca=write("ca.pem", authority.pem()),
        server=write("server.pem", server.pem()),
        client=write("client.pem", client.pem()),
        expired=write("expired.pem", authority.issue("localhost", hosts=HOSTS, days=-1).pem()),
        expired_client=write("expired-client.pem", authority.issue(client_name("late"), days=-1).pem()),
        foreign_ca=write("foreign-ca.pem", foreign.pem()),
        foreign=write("foreign.pem", foreign.issue("localhost", hosts=HOSTS).pem()),
        foreign_client=write("foreign-client.pem", foreign.issue(client_name("mallory")).pem()),
        encrypted=write("encrypted.pem", server.pem(PASSWORD)),
        server_p12=write("server.p12", server.pkcs12(PLAIN_PASSWORD)),
        client_p12=write("client.p12", client.pkcs12(PLAIN_PASSWORD)),
        ca_p12=write("ca.p12", trusted_p12(authority, PLAIN_PASSWORD)),
    )


def client_name(user: str) -> x509.Name:
    """The distinguished name of a client: CN=user,OU=Tests,O=Tenure,C=DE, as Java and Kafka write it."""
    parts = (
        (NameOID.COUNTRY_NAME, "DE"),
        (NameOID.ORGANIZATION_NAME, "Tenure"),
        (NameOID.ORGANIZATIONAL_UNIT_NAME, "Tests"),
        (NameOID.COMMON_NAME, user),
    )
    return x509.Name([x509.NameAttribute(kind, value) for kind, value in parts])


def trusted_p12(authority: Authority, password: str) -> bytes:
    """A PKCS12 store of a CA's certificate, marked as trusted, as keytool writes it and Java asks for it."""
    certificate = pkcs12.PKCS12Certificate(authority.certificate, b"ca")
    return pkcs12.serialize_java_truststore([certificate], BestAvailableEncryption(password.encode()))


def handshake(server_context: ssl.SSLContext, client_context: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """A whole handshake in memory: the server's side, then the client's. Raises ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    client = client_context.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    for side in (client, server) * 4:
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return server, client


def client_context(trusted: Path, own: Path | None = None) -> ssl.SSLContext:
    """The context of a client's handshakes. own: its key and certificate."""
    context = ssl.create_default_context(cafile=trusted)
    if own is not None:
        context.load_cert_chain(own)
    return context
