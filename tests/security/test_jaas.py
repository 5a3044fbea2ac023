"""Login modules of Java, as settings have them."""

from __future__ import annotations

import pytest

from coordinator.security.jaas import PLAIN_MODULE, SCRAM_MODULE, users


@pytest.mark.parametrize(
    "options, expected",
    [
        ('user_alice="one"', {"alice": "one"}),
        ('username="a" password="b" user_alice="one" "user_bob smith"="two"', {"alice": "one", "bob smith": "two"}),
        (r'user_a="say \"hi\" \\;="', {"a": r'say "hi" \;='}),
        ("user_a=plain\n\tuser_b='single'", {"a": "plain", "b": "single"}),
        ('user_ren\u00e9="\u00fc"', {"ren\u00e9": "\u00fc"}),
        ("", {}),
    ],
)
def test_users_of_plain(options: str, expected: dict[str, str]) -> None:
    """Names and values may be quoted, quotes escaped; other options are no users."""
    assert users(f"{PLAIN_MODULE} required {options};", "PLAIN") == expected


def test_scram_module_is_bare() -> None:
    """SCRAM's users are elsewhere."""
    assert users(f"{SCRAM_MODULE} required;", "SCRAM-SHA-512") == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        f"{PLAIN_MODULE};",
        f"{PLAIN_MODULE} sometimes;",
        f'{PLAIN_MODULE} required user_a="hidden"',
        f'{PLAIN_MODULE} required user_a="hidden;',
        f'{PLAIN_MODULE} required user_a "hidden";',
        f'{PLAIN_MODULE} required user_a="hidden" user_a="hidden";',
        f'{PLAIN_MODULE} required user_="hidden";',
        f'{PLAIN_MODULE} required user_a="hidden"; more',
        f'{SCRAM_MODULE} required user_a="hidden";',
    ],
)
def test_a_wrong_text_is_refused_without_its_secrets(text: str) -> None:
    """The message names the fault and no value."""
    with pytest.raises(ValueError, match=r".") as raised:
        users(text, "PLAIN")
    assert "hidden" not in str(raised.value)


def test_a_password_in_the_place_of_the_module_is_not_shown() -> None:
    """Only names of Kafka's own modules are."""
    for text in ('S3CRET required user_a="b";', 'S3CRET user_a="b";', "S3CRET required x"):
        with pytest.raises(ValueError) as raised:  # noqa: PT011 - the text is looked at
            users(text, "PLAIN")
        assert "S3CRET" not in str(raised.value)
