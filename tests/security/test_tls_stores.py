"""Keystores and truststores: each form that is read, and each fault that is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from coordinator.config import ConfigError, ListenerConfig, load
from coordinator.security.tls_stores import STORE_BYTES_MAX, files_of, keystore_of, truststore_of
from tests.support.certificates import PASSWORD, PLAIN_PASSWORD, Authority, Certificates


def settings(**given: str | Path) -> ListenerConfig:
    """The settings of a listener, as a user gives them; `_` in a name is a dot."""
    return load(sets=[f"ssl.{name.replace('_', '.')}={value}" for name, value in given.items()])[0].security


def own_certificate(config: ListenerConfig) -> x509.Certificate:
    """The first certificate of the keystore."""
    store = keystore_of(config)
    assert store is not None
    return store.chain[0]


def certificate_in(path: Path) -> x509.Certificate:
    """The first certificate of a PEM file, by a reader that is not ours."""
    return x509.load_pem_x509_certificates(path.read_bytes())[0]


def test_each_form_of_a_keystore_is_read(certificates: Certificates) -> None:
    """PEM in a file, with an encrypted key, inside the settings, and PKCS12 have the same certificate."""
    expected = certificate_in(certificates.server)
    text = certificates.server.read_text()
    key, _, chain = text.partition("-----BEGIN CERT")
    forms = (
        settings(keystore_type="PEM", keystore_location=certificates.server),
        settings(keystore_type="PEM", keystore_location=certificates.encrypted, key_password=PASSWORD),
        settings(keystore_type="PEM", keystore_key=key, keystore_certificate_chain=f"-----BEGIN CERT{chain}"),
        settings(keystore_type="PEM", keystore_key=" ".join(key.split("\n")), keystore_certificate_chain=text),
        settings(keystore_type="PKCS12", keystore_location=certificates.server_p12, keystore_password=PLAIN_PASSWORD),
        settings(keystore_type="pkcs12", keystore_location=certificates.server_p12, keystore_password=PLAIN_PASSWORD),
    )
    for form in forms:
        assert own_certificate(form) == expected


def test_each_form_of_a_truststore_is_read(certificates: Certificates) -> None:
    """PEM in a file and inside the settings, and PKCS12, have the same certificate; without settings there is none."""
    expected = [certificates.authority.certificate]
    assert truststore_of(settings(truststore_type="PEM", truststore_location=certificates.ca)) == expected
    assert (
        truststore_of(settings(truststore_type="PEM", truststore_certificates=certificates.ca.read_text())) == expected
    )
    p12 = settings(
        truststore_type="PKCS12", truststore_location=certificates.ca_p12, truststore_password=PLAIN_PASSWORD
    )
    assert truststore_of(p12) == expected
    assert truststore_of(settings()) == []
    assert keystore_of(settings()) is None


def test_a_chain_is_sent_from_its_own_certificate_upwards(certificates: Certificates, tmp_path: Path) -> None:
    """In PEM it is as written; a PKCS12 store is put in order, and what doesn't belong to the chain is left out."""
    middle = Authority("Middle", certificates.authority)
    lower = Authority("Lower", middle)
    made = lower.issue("localhost")
    mixed = (certificates.foreign_authority.certificate, middle.certificate, lower.certificate)
    (tmp_path / "chain.p12").write_bytes(type(made)(made.key, made.certificate, mixed).pkcs12(PLAIN_PASSWORD))
    p12 = settings(keystore_type="PKCS12", keystore_location=tmp_path / "chain.p12", keystore_password=PLAIN_PASSWORD)
    store = keystore_of(p12)
    assert store is not None
    assert list(store.chain) == [made.certificate, lower.certificate, middle.certificate]
    (tmp_path / "chain.pem").write_text(made.chain_pem() + "Bag Attributes\n" + made.key_pem())
    pem = keystore_of(settings(keystore_type="PEM", keystore_location=tmp_path / "chain.pem"))
    assert pem is not None
    assert list(pem.chain) == [made.certificate, lower.certificate]


def test_files_to_watch_are_those_that_are_read(certificates: Certificates) -> None:
    """Both stores' files, and none for what stands in the settings."""
    both = settings(keystore_location=certificates.server, truststore_location=certificates.ca)
    assert files_of(both) == [str(certificates.server), str(certificates.ca)]
    assert files_of(settings(truststore_certificates="x")) == []


def faulty_files(certificates: Certificates, folder: Path) -> dict[str, Path]:
    """Files with one fault each."""
    key = ec.generate_private_key(ec.SECP256R1())
    server = certificates.server.read_text()
    certificate = server[server.index("-----BEGIN CERT") :]
    contents = {
        "traditional": key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()
        + certificate,
        "other_key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode() + certificate,
        "keyless": certificate,
        "two_keys": server + server,
        "bare_key": server[: server.index("-----BEGIN CERT")],
        "cut": server.replace("MIGH", "", 1),
        "not_base64": server.replace("MIG", "M?G", 1),
        "empty": "",
    }
    paths = {"missing": folder / "missing", "folder": folder}
    for name, content in contents.items():
        paths[name] = folder / name
        paths[name].write_text(content)
    paths["large"] = folder / "large"
    with paths["large"].open("wb") as file:
        file.truncate(STORE_BYTES_MAX + 1)
    return paths


def test_a_pkcs12_file_may_be_called_jks(certificates: Certificates) -> None:
    """Java opens PKCS12 where the type is JKS, Kafka's default, so users of keytool's files set no type."""
    keystore = settings(keystore_location=certificates.server_p12, keystore_password=PLAIN_PASSWORD)
    assert own_certificate(keystore) == certificate_in(certificates.server)
    truststore = settings(truststore_location=certificates.ca_p12, truststore_password=PLAIN_PASSWORD)
    assert truststore_of(truststore) == [certificate_in(certificates.ca)]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("keystore_location=missing", "ssl.keystore.location: .*missing: no such file"),
        ("keystore_location=folder", "ssl.keystore.location: .*directory"),
        ("keystore_location=empty", "ssl.keystore.location: .*: there are 0 private keys"),
        ("keystore_location=keyless", "ssl.keystore.location: .*: there are 0 private keys"),
        ("keystore_location=two_keys", "ssl.keystore.location: .*: there are 2 private keys"),
        ("keystore_location=bare_key", "ssl.keystore.location: .*: there is no certificate"),
        ("keystore_location=traditional", "ssl.keystore.location: .*not PKCS#8"),
        ("keystore_location=other_key", "ssl.keystore.location: .*doesn't fit"),
        ("keystore_location=cut", "ssl.keystore.location: .*: its private key can't be read"),
        ("keystore_location=not_base64", "ssl.keystore.location: .*: its private key is not PEM"),
        ("keystore_location=large", "ssl.keystore.location: .*larger than"),
        ("keystore_location=encrypted", "ssl.key.password: it is missing"),
        ("keystore_location=encrypted key_password=wrong", "ssl.key.password: it doesn't open"),
        ("keystore_location=server key_password=wrong", "ssl.key.password: the key is not encrypted"),
        ("keystore_location=server keystore_password=wrong", "ssl.keystore.password: a keystore of the type PEM"),
        ("keystore_location=server keystore_key=x", "ssl.keystore.location: .*exclude"),
        ("keystore_key=x", "ssl.keystore.certificate.chain: ssl.keystore.key needs it"),
        ("keystore_certificate_chain=x", "ssl.keystore.key: ssl.keystore.certificate.chain needs it"),
        ("keystore_location=server keystore_type=JKS", "ssl.keystore.type: JKS is not served"),
        ("keystore_key=x keystore_certificate_chain=x keystore_type=PKCS12", "ssl.keystore.type: a store inside"),
        ("keystore_location=server_p12 keystore_type=PKCS12", "ssl.keystore.password: .*needs it"),
        ("keystore_location=server_p12 keystore_type=PKCS12 keystore_password=wrong", "ssl.keystore.password: .*open"),
        ("keystore_location=server keystore_type=PKCS12 keystore_password=wrong", "ssl.keystore.password: .*PKCS12"),
        ("keystore_location=ca_p12 keystore_type=PKCS12 keystore_password=changeit", "ssl.keystore.location: .*no pri"),
        ("truststore_location=missing", "ssl.truststore.location: .*missing: no such file"),
        ("truststore_location=empty", "ssl.truststore.location: .*: there is no certificate"),
        ("truststore_location=ca truststore_password=x", "ssl.truststore.password: "),
        ("truststore_location=ca truststore_certificates=x", "ssl.truststore.location: .*exclude"),
        ("truststore_certificates=x", "ssl.truststore.certificates: there is no certificate"),
        ("truststore_location=ca truststore_type=JKS", "ssl.truststore.type: JKS is not served"),
        ("truststore_location=ca_p12 truststore_type=PKCS12 truststore_password=wrong", "ssl.truststore.password: "),
    ],
)
def test_each_fault_is_one_line_that_names_its_setting(
    certificates: Certificates, tmp_path: Path, given: str, words: str
) -> None:
    """The line has no password, and nothing of a key."""
    faulty = faulty_files(certificates, tmp_path)
    values = dict(each.split("=") for each in given.split())
    for name, value in values.items():
        if name.endswith("location"):
            values[name] = str(faulty.get(value) or getattr(certificates, value))
    config = settings(**{"keystore_type": "PEM", "truststore_type": "PEM", **values})
    with pytest.raises(ConfigError, match=words) as caught:
        (keystore_of if given.startswith("keystore") else truststore_of)(config)
    assert "\n" not in str(caught.value)
    assert "wrong" not in str(caught.value)
    assert "MI" not in str(caught.value)


def test_an_unreadable_certificate_is_said(certificates: Certificates) -> None:
    """A certificate that is PEM, and is none, names the setting."""
    text = certificates.ca.read_text().replace("MII", "AAA", 1)
    with pytest.raises(ConfigError, match=r"ssl.truststore.certificates: a certificate can't be read"):
        truststore_of(settings(truststore_type="PEM", truststore_certificates=text))
