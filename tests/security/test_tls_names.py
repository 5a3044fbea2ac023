"""Names of certificates as Java writes them, and the rules that make users of them.

The expected names are what X500Principal.getName of a JDK 17 gave for the same bytes; the expected users are those of
Kafka's SslPrincipalMapper for the same rules.
"""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from coordinator.security.tls_names import NAME_MAX, Mapping, distinguished_name, subject_of
from tests.support.certificates import Authority, client_name, with_subject_in_ber

IN_JAVA = (
    (
        (
            "306f310b30090603550406130244453110300e06035504080c0748616d62757267310b300906035504070c024848310e300c0603"
            "5504090c05576567203131153013060355040a0c0c54656e7572652c20496e632e310a3008060355040b0c0141310e300c060355"
            "04030c05616c696365"
        ),
        "CN=alice,OU=A,O=Tenure\\, Inc.,STREET=Weg 1,L=HH,ST=Hamburg,C=DE",
    ),
    (
        (
            "305831133011060a0992268993f22c64011916036f726731173015060a0992268993f22c64011916076578616d706c6531123010"
            "060a0992268993f22c6401010c0275313114301206092a864886f70d01090116056140622e63"
        ),
        "1.2.840.113549.1.9.1=#16056140622e63,UID=u1,DC=example,DC=org",
    ),
    (
        "301f311d301b06035504030c14206c6561642c2b225c3c3e3b3d23747261696c20",
        'CN=\\ lead\\,\\+\\"\\\\\\<\\>\\;\\=\\#trail\\ ',
    ),
    (
        "300e310c300a06035504030c03237823",
        "CN=\\#x\\#",
    ),
    (
        "30133111300f06035504030c086120206220202063",
        "CN=a  b   c",
    ),
    (
        "301e311c301a06035504030c134ac3bc7267656e20e697a5e69cac20f09f9880",
        "CN=J\xfcrgen \u65e5\u672c \U0001f600",
    ),
    (
        "3029311b300806035504030c0162300f060a0992268993f22c6401010c0161310a3008060355040a0c0178",
        "O=x,CN=b+UID=a",
    ),
    (
        (
            "30493116300806035504030c0178300a06035504051303313233310b3009060355040c0c024472310a3008060355042a0c014731"
            "0a300806035504040c0153310a3008060355042e130171"
        ),
        "2.5.4.46=#130171,2.5.4.4=#0c0153,2.5.4.42=#0c0147,2.5.4.12=#0c024472,CN=x+2.5.4.5=#1303313233",
    ),
    (
        "30153113301106035504031e0a0062006d0070002000fc",
        "CN=\\00b\\00m\\00p\\00 \\00\ufffd",
    ),
    (
        "300e310c300a06035504031403743631",
        "CN=t61",
    ),
    (
        "30173115301306035504031c0c000000750000006e00000069",
        "CN=#1c0c000000750000006e00000069",
    ),
    (
        "300f310d300b0603550403160469613540",
        "CN=ia5@",
    ),
    (
        "3015311330110603550403130a7072696e207461626c65",
        "CN=prin table",
    ),
    (
        "30123110300e06035504031a0776697369626c65",
        "CN=#1a0776697369626c65",
    ),
    (
        "300e310c300a06035504031203313233",
        "CN=#1203313233",
    ),
    (
        "300e310c300a06035504030c03610062",
        "CN=a\\00b",
    ),
    (
        "3010310e300c06035504030c05610a62017f",
        "CN=a\nb\x01\x7f",
    ),
    (
        "301f3111300f06092b06010401868d1f010c027a7a310a300806035504030c0161",
        "CN=a,1.3.6.1.4.1.99999.1=#0c027a7a",
    ),
    (
        "300c310a300806035504030c0120",
        "CN=\\ ",
    ),
    (
        "300d310b300906035504030c022020",
        "CN=\\ \\ ",
    ),
    (
        "30193117301506035504030c0e612f6227633a2864293f2a5f4021",
        "CN=a/b'c:(d)?*_@!",
    ),
    (
        "3017310a300806035504030c017831093007060355040a0c00",
        "O=,CN=x",
    ),
)


@pytest.mark.parametrize(("subject", "name"), IN_JAVA)
def test_a_name_is_written_as_java_writes_it(subject: str, name: str) -> None:
    """Order, escapes, keywords, and hexadecimal digits for what has no keyword or is no text."""
    assert distinguished_name(bytes.fromhex(subject)) == name


def test_the_subject_is_found_in_a_certificate() -> None:
    """In a certificate of version 3, and in one with no version, as version 1 has none."""
    made = Authority("CA").issue(client_name("alice")).certificate
    subject = subject_of(made.public_bytes(Encoding.DER))
    assert subject == made.subject.public_bytes()
    assert distinguished_name(subject) == "CN=alice,OU=Tests,O=Tenure,C=DE"


@pytest.mark.parametrize("cut", [0, 1, 2, 5, 40, 100])
def test_broken_bytes_are_an_error_of_their_own(cut: int) -> None:
    """A cut certificate is a ValueError, and nothing else."""
    made = Authority("CA").issue("a").certificate.public_bytes(Encoding.DER)
    with pytest.raises(ValueError, match=r"cut off|no subject"):
        subject_of(made[:cut])


def test_a_name_in_ber_is_an_error() -> None:
    """OpenSSL accepts a subject of indefinite length. Here it is refused, and not read as an empty name."""
    authority = Authority("CA")
    with pytest.raises(ValueError, match="indefinite length"):
        subject_of(with_subject_in_ber(authority, authority.issue("a")))


ALICE = "CN=Alice,OU=Tests,O=Tenure,C=DE"


@pytest.mark.parametrize(
    ("rules", "name", "user"),
    [
        ("DEFAULT", ALICE, ALICE),
        ("RULE:^CN=(.*?),OU=Tests.*$/$1/", ALICE, "Alice"),
        ("RULE:^CN=(.*?),OU=Tests.*$/$1/L", ALICE, "alice"),
        ("RULE:^CN=(.*?),OU=Tests.*$/$1@tests/U", ALICE, "ALICE@TESTS"),
        ("RULE:^CN=(.*?),OU=Others.*$/$1/", ALICE, None),
        ("RULE:^CN=(.*?),OU=Others.*$/$1/ , DEFAULT", ALICE, ALICE),
        ("RULE:CN=(\\w+)/$1/,RULE:^CN=(\\w+),.*$/second $1/", ALICE, "second Alice"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$5/", ALICE, "Alice@$5"),
        ("RULE:^CN=(.*?),.*$/$12/", ALICE, "Alice2"),
        ("RULE:^CN=(.*?),.*$/\\$1/", ALICE, "$1"),
        ("RULE:^CN=(?<who>.*?),.*$/${who}/", ALICE, "Alice"),
        ("RULE:^CN=(?<who>.)(?:\\k<who>|.)*$/$1/", ALICE, "A"),
        ("RULE:^CN=a\\/b$/x\\/y/", "CN=a/b", "x/y"),
        ("RULE:\\QCN=a.b\\E/hit/", "CN=a.b", "hit"),
        ("RULE:\\QCN=a.b\\E/hit/", "CN=axb", None),
        ("RULE:.*/x/", "abc", "xx"),
        (",, DEFAULT,", ALICE, ALICE),
        ("", ALICE, None),
        ("RULE:^CN=(\\d+)$/$1/", "CN=\u0661", None),
    ],
)
def test_rules_make_users_as_in_kafka(rules: str, name: str, user: str | None) -> None:
    """The first rule that fits the whole name makes the user; without one there is none."""
    assert Mapping(rules).user(name) == user


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ("ALL", "neither DEFAULT nor RULE"),
        ("RULE:a/b", "neither DEFAULT nor RULE"),
        ("RULE:a/b/X", "neither DEFAULT nor RULE"),
        ("DEFAULT RULE:a/b/", "neither DEFAULT nor RULE"),
        ("RULE:(/b/", "no pattern"),
        (r"RULE:\p{Alpha}+/b/", "no pattern"),
        ("RULE:[a-z&&[^b]]+/b/", "no pattern"),
        ("RULE:(a)/${b}/", "no group b"),
    ],
)
def test_a_wrong_rule_is_an_error(rules: str, words: str) -> None:
    """A pattern that can't be read, or is Java's alone, is refused before any client comes."""
    with pytest.raises(ValueError, match=words):
        Mapping(rules)


def test_a_very_long_name_gets_no_user_by_rules() -> None:
    """A pattern could keep the loop busy with it. Without rules it is the user, however long it is."""
    name = f"CN={'a' * NAME_MAX}"
    assert Mapping("RULE:^CN=(.*)$/$1/,DEFAULT").user(name) is None
    assert Mapping("DEFAULT").user(name) == name
