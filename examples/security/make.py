"""Makes a folder with all that a secured server and its first users need: docs/secure/ten-minutes.md has the steps.

    python examples/security/make.py secure --host localhost --host kafka.example.org

The folder gets a CA with its key, the server's key and certificate, the server's properties file, and two files for
each user: NAME.properties for Kafka's tools and `tenure --command-config`, NAME.json for librdkafka (confluent-kafka).
Passwords are random. Only its owner can read the folder, and git ignores it, wherever it is.

House rule: an existing folder is left alone, because others may already trust its CA.
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

CA_DAYS, SERVER_DAYS = 3_650, 365
PASSWORD_BYTES = 24
MODULES = "org.apache.kafka.common.security"

SERVER = """\
# Without a host: all addresses of this machine. SASL_SSL://127.0.0.1:{port} is for clients on this machine alone.
listeners=SASL_SSL://:{port}
advertised.listeners=SASL_SSL://{host}:{port}
log.dirs={folder}/data
ssl.keystore.type=PEM
ssl.keystore.location={folder}/server.pem
sasl.enabled.mechanisms=SCRAM-SHA-512,PLAIN
listener.name.sasl_ssl.plain.sasl.jaas.config={modules}.plain.PlainLoginModule required user_admin="{password}";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:admin
"""
CLIENT = """\
security.protocol=SASL_SSL
ssl.truststore.type=PEM
ssl.truststore.location={folder}/ca.pem
sasl.mechanism={mechanism}
sasl.jaas.config={modules}.{module} required username="{user}" password="{password}";
"""


def certificate(
    name: str, key: ec.EllipticCurvePrivateKey, issuer: x509.Name, issuer_key: ec.EllipticCurvePrivateKey,
    days: int, extensions: list[x509.ExtensionType],
) -> x509.Certificate:  # fmt: skip
    """A certificate for that common name."""
    now = datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=days))
    key_ids: list[x509.ExtensionType] = [
        x509.SubjectKeyIdentifier.from_public_key(key.public_key()),
        x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
    ]
    for extension in (*extensions, *key_ids):
        builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
    return builder.sign(issuer_key, hashes.SHA256())


def pem(made: x509.Certificate) -> str:
    """A certificate as PEM."""
    return made.public_bytes(Encoding.PEM).decode()


def key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    """A private key as PEM (PKCS#8), not encrypted."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def host_name(host: str) -> x509.GeneralName:
    """How a certificate names a host."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def of_user(folder: Path, user: str, password: str, mechanism: str, module: str) -> dict[str, str]:
    """The files with which a user's clients connect: name -> text."""
    librdkafka = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": f"{folder}/ca.pem",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }
    return {
        f"{user}.properties": CLIENT.format(
            folder=folder, mechanism=mechanism, modules=MODULES, module=module, user=user, password=password
        ),
        f"{user}.json": json.dumps(librdkafka, indent=4) + "\n",
    }


def make(folder: Path, hosts: list[str], port: int, users: list[str]) -> None:
    """Make the folder and everything in it."""
    folder.mkdir(0o700, parents=True)
    folder = folder.resolve()
    ca_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "CA of this folder")])
    authority = x509.BasicConstraints(ca=True, path_length=0)
    ca = certificate("CA of this folder", ca_key, ca_name, ca_key, CA_DAYS, [authority])
    names = x509.SubjectAlternativeName([host_name(host) for host in hosts])
    no_authority = x509.BasicConstraints(ca=False, path_length=None)
    server = certificate(hosts[0], server_key, ca_name, ca_key, SERVER_DAYS, [no_authority, names])
    admin = secrets.token_urlsafe(PASSWORD_BYTES)
    texts = {
        ".gitignore": "*\n",
        "ca.pem": pem(ca),
        "ca-key.pem": key_pem(ca_key),
        "server.pem": key_pem(server_key) + pem(server),
        "server.properties": SERVER.format(folder=folder, host=hosts[0], port=port, password=admin, modules=MODULES),
        **of_user(folder, "admin", admin, "PLAIN", "plain.PlainLoginModule"),
    }
    for user in users:
        password = secrets.token_urlsafe(PASSWORD_BYTES)
        texts[f"{user}.password"] = password
        texts |= of_user(folder, user, password, "SCRAM-SHA-512", "scram.ScramLoginModule")
    for name, text in texts.items():
        path = folder / name
        path.touch(0o600)
        path.write_text(text, encoding="latin-1")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Make certificates, users and a server's properties in a new folder.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--host", action="append", help="a name or address of the server; the first is advertised")
    parser.add_argument("--port", type=int, default=9093)
    parser.add_argument("--user", action="append", help="a user that gets a file; default alice")
    given = parser.parse_args()
    try:
        make(given.folder, given.host or ["localhost", "127.0.0.1"], given.port, given.user or ["alice"])
    except FileExistsError:
        parser.error(f"{given.folder} is there already")


if __name__ == "__main__":
    main()
