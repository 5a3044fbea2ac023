"""Cipher suites by IANA's names: which are served, and what a wrong one says."""

from __future__ import annotations

import ssl

import pytest

from coordinator.config import ConfigError
from coordinator.security.tls_ciphers import CIPHERS, EXCHANGES, TLS_1_3, TLS_1_3_DEFAULT, openssl_name, set_ciphers
from tests.support.certificates import Certificates, client_context, handshake

ECDSA_128 = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
ECDSA_256 = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"


def agreed(certificates: Certificates, suites: list[str], newest: ssl.TLSVersion) -> str:
    """The suite of a handshake with a client that takes every suite, up to a version of TLS."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificates.server)
    set_ciphers(server, suites)
    client = client_context(certificates.ca)
    client.maximum_version = newest
    used = handshake(server, client)[0].cipher()
    assert used is not None
    return used[0]


@pytest.mark.parametrize("suite", TLS_1_3)
def test_one_suite_of_tls_1_3_is_served_alone(certificates: Certificates, suite: str) -> None:
    """Its name alone leaves no other, whatever the client would take, and no TLS 1.2."""
    client_takes_it = suite in TLS_1_3_DEFAULT
    if client_takes_it:
        assert agreed(certificates, [suite], ssl.TLSVersion.TLSv1_3) == suite
    with pytest.raises(ssl.SSLError):
        agreed(certificates, [suite], ssl.TLSVersion.TLSv1_2)


def test_the_order_of_the_list_is_the_order_of_choice(certificates: Certificates) -> None:
    """The server takes the first of its list that the client knows, in both versions."""
    for first, second in ((0, 2), (2, 0)):
        suites = [TLS_1_3[first], TLS_1_3[second]]
        assert agreed(certificates, suites, ssl.TLSVersion.TLSv1_3) == suites[0]
    for suites in ([ECDSA_128, ECDSA_256], [ECDSA_256, ECDSA_128]):
        assert agreed(certificates, suites, ssl.TLSVersion.TLSv1_2) == openssl_name(suites[0])


def test_suites_of_both_versions_stand_in_one_list(certificates: Certificates) -> None:
    """Each version has its own suite of the list; a list without one of TLS 1.3 serves TLS 1.2 only."""
    both = [ECDSA_256, "TLS_AES_128_GCM_SHA256"]
    assert agreed(certificates, both, ssl.TLSVersion.TLSv1_3) == "TLS_AES_128_GCM_SHA256"
    assert agreed(certificates, both, ssl.TLSVersion.TLSv1_2) == openssl_name(ECDSA_256)
    assert agreed(certificates, [ECDSA_256], ssl.TLSVersion.TLSv1_3) == openssl_name(ECDSA_256)


def test_names_are_translated_as_openssl_has_them() -> None:
    """Each name that is made exists in OpenSSL, where the combination exists at all."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:@SECLEVEL=0")
    known = {each["name"] for each in context.get_ciphers()}
    made = {openssl_name(f"TLS_{exchange}_WITH_{cipher}") for exchange in EXCHANGES for cipher in CIPHERS}
    assert len(made) == len(EXCHANGES) * len(CIPHERS)
    assert made & known >= {
        "ECDHE-RSA-AES128-GCM-SHA256",
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        "ECDHE-RSA-CHACHA20-POLY1305",
        "ECDHE-RSA-AES256-SHA384",
        "DHE-RSA-AES256-SHA256",
        "AES128-GCM-SHA256",
        "AES256-SHA",
    }
    for cipher in CIPHERS.values():
        assert any(name.endswith(cipher) for name in made & known if name), cipher


@pytest.mark.parametrize(
    ("suites", "words"),
    [
        (["TLS_NULL_WITH_NULL_NULL"], "TLS_NULL_WITH_NULL_NULL is not known"),
        (["ECDHE-RSA-AES128-GCM-SHA256"], "is not known here .names are IANA's"),
        (["TLS_RSA_WITH_CHACHA20_POLY1305_SHA256"], "none can be served"),
        ([ECDSA_128, "TLS_RSA_WITH_CHACHA20_POLY1305_SHA256"], "TLS_RSA_WITH_CHACHA20_POLY1305_SHA256 can't be served"),
    ],
)
def test_a_suite_that_can_not_be_served_is_said(suites: list[str], words: str) -> None:
    """Never does the server go on with fewer suites than the list has."""
    with pytest.raises(ConfigError, match=words):
        set_ciphers(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), suites)
