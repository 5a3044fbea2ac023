"""What a listener with TLS offers to `openssl s_client`, which asks for what no client should get.

The default settings count, those that a server has without `ssl.enabled.protocols` and `ssl.cipher.suites`.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.support.certificates import Certificates
from tests.support.patience import WITHIN_S
from tests.support.tenure import Tenure

pytestmark = [pytest.mark.interop, pytest.mark.programs("openssl")]

ANY = "ALL:COMPLEMENTOFALL:@SECLEVEL=0"
"""All that OpenSSL itself can do, however weak."""

SUITES = [
    *("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"),
    *("ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
]
"""The suites for a certificate with a key of an elliptic curve, of TLS 1.3 and 1.2, in the server's order."""

Ask = Callable[..., str]


@pytest.fixture(scope="module")
def ask(certificates: Certificates) -> Iterator[Ask]:
    """Yield a function that connects with further arguments of s_client, and returns all that it printed."""
    properties = f"ssl.keystore.type=PEM\nssl.keystore.location={certificates.server}\n"
    with Tenure(listeners={"SSL": "SSL"}, properties=properties) as tenure:

        def connect(*arguments: str, typed: str = "") -> str:
            command = ["openssl", "s_client", "-connect", tenure.bootstrap, "-CAfile", str(certificates.ca), *arguments]
            done = subprocess.run(
                command, input=typed, capture_output=True, text=True, errors="replace", timeout=WITHIN_S, check=False
            )
            return done.stdout + done.stderr

        yield connect


def suite(said: str) -> str | None:
    """The cipher suite of a connection; None if there was none."""
    found = re.search(r"^New, \S+, Cipher is (\S+)", said, re.MULTILINE)
    return None if found is None or found[1] == "(NONE)" else found[1]


@pytest.mark.parametrize("version", ["-tls1", "-tls1_1"])
def test_old_versions_are_refused(ask: Ask, version: str) -> None:
    """TLS 1.0 and 1.1 get an alert, also from a client that would take any suite."""
    said = ask(version, "-cipher", ANY)
    assert suite(said) is None
    assert "alert protocol version" in said


def test_only_strong_suites_are_offered(ask: Ask) -> None:
    """Each has a key exchange of its own (forward secrecy) and authenticated encryption; the server chooses."""
    found: list[str] = []
    of_1_3 = [*SUITES[:3], "TLS_AES_128_CCM_SHA256", "TLS_AES_128_CCM_8_SHA256"]
    while name := suite(ask("-tls1_3", "-ciphersuites", ":".join(of_1_3))):
        found.append(name)
        of_1_3.remove(name)
    while name := suite(ask("-tls1_2", "-cipher", ":".join([ANY, *(f"!{each}" for each in found[3:])]))):
        found.append(name)
    assert found == SUITES


@pytest.mark.parametrize("group", ["secp224r1", "prime192v1", "secp256k1", "brainpoolP256r1"])
def test_weak_curves_are_refused(ask: Ask, group: str) -> None:
    """A key exchange has at least the strength of P-256."""
    for version in ("-tls1_2", "-tls1_3"):
        assert suite(ask(version, "-groups", group)) is None


@pytest.mark.parametrize("algorithm", ["ECDSA+SHA1", "RSA+SHA1"])
def test_signatures_with_sha1_are_refused(ask: Ask, algorithm: str) -> None:
    """The server signs no handshake with it."""
    assert suite(ask("-tls1_2", "-sigalgs", algorithm, "-cipher", ANY)) is None


def test_nothing_is_compressed_or_renegotiated(ask: Ask) -> None:
    """A client that begins another handshake is refused, and the extension against its misuse is there (RFC 5746)."""
    assert "Compression: NONE" in ask("-tls1_2", "-comp")
    said = ask("-tls1_2", typed="R\n")
    assert "RENEGOTIATING" in said
    assert "no renegotiation" in said
    assert "Secure Renegotiation IS supported" in said


def test_a_client_that_was_talked_into_an_older_version_is_told(ask: Ask) -> None:
    """A stranger between the two can't have them speak TLS 1.2 (RFC 7507)."""
    assert "inappropriate fallback" in ask("-tls1_2", "-fallback_scsv")


def test_the_certificate_is_the_one_for_the_name(ask: Ask) -> None:
    """The chain is whole: s_client checks it against the CA alone, and the host's name in it."""
    said = ask("-verify_return_error", "-verify_ip", "127.0.0.1", "-verify_hostname", "localhost")
    assert "Verify return code: 0 (ok)" in said
