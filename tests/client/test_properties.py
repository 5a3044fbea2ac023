"""A client properties file: Kafka's names and format; an error names file and key, and no secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.client.properties import NAMES, Properties, PropertiesError, read, read_file

JAAS = r'org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="p\\w\"";'


def test_a_file_as_kafkas_tools_take_it(tmp_path: Path) -> None:
    """Comments, escapes and Latin-1 are those of Java's properties; the values are checked and kept."""
    file = tmp_path / "client.properties"
    file.write_bytes(
        b"# how to connect\nsecurity.protocol = sasl_ssl\nsasl.mechanism=SCRAM-SHA-512\n"
        b"ssl.truststore.type=PEM\nssl.truststore.location=/c\xe4/\\u00fc.pem\n"
        b"ssl.endpoint.identification.algorithm=\nclient.id=caf\xe9\nrequest.timeout.ms=1500\n"
        b"bootstrap.servers=elsewhere:9092\n"
    )
    found = read_file(file)
    assert (found.protocol, found.mechanism, found.checks_host) == ("SASL_SSL", "SCRAM-SHA-512", False)
    assert (found.tls.ssl_truststore_type, found.tls.ssl_truststore_location) == ("PEM", "/c\u00e4/\u00fc.pem")
    assert (found.client_id, found.timeout_s) == ("caf\u00e9", 1.5)
    assert found.warning == ""


def test_an_empty_file_is_no_security() -> None:
    """Kafka's defaults: PLAINTEXT, and the server's host is checked once there is TLS."""
    found = read("", "f")
    assert (found.protocol, found.mechanism, found.checks_host, found.client_id) == ("PLAINTEXT", "", True, None)
    assert found == Properties("f")


def test_other_keys_of_kafka_are_named_in_one_line() -> None:
    """A key that means nothing here is ignored with a warning, which also knows what a typing error may mean."""
    found = read("acks=all\nsasl.mechanims=PLAIN\n", "f")
    assert found.warning == "f: not used here: acks, sasl.mechanims (perhaps sasl.mechanism?)"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("security.protocol=TLS", "f: security.protocol: 'TLS' is none of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("security.protocol=SASL_SSL", "f: sasl.mechanism: 'GSSAPI' is none of PLAIN"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=plain", "f: sasl.mechanism: 'plain' is none of PLAIN"),
        ("ssl.endpoint.identification.algorithm=LDAPS", "algorithm: 'ldaps' is none of https, nothing"),
        ("request.timeout.ms=0", "f: request.timeout.ms: '0' is not a number of ms"),
        ("request.timeout.ms=5s", "f: request.timeout.ms: '5s' is not a number of ms"),
    ],
)
def test_wrong_values(text: str, error: str) -> None:
    """The error names the file, the key and what is wrong."""
    with pytest.raises(PropertiesError) as raised:
        read(text, "f")
    assert error in str(raised.value)


def test_no_file(tmp_path: Path) -> None:
    """A file that isn't there is an error with its path."""
    with pytest.raises(PropertiesError, match=r"no\.properties: No such file"):
        read_file(tmp_path / "no.properties")


def test_a_secret_is_in_no_repr() -> None:
    """A traceback or a log line of the properties shows no password."""
    found = read(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config={JAAS}\n", "f")
    assert "username" not in repr(found)


def test_each_key_is_in_the_documentation() -> None:
    """docs/secure/tls.md names each key that has a meaning."""
    page = Path(__file__).parents[2].joinpath("docs/secure/tls.md").read_text(encoding="utf-8")
    assert not {name for name in NAMES if f"`{name}`" not in page}
