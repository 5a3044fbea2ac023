"""The page of a server with a token, in a real browser: the token opens all of it, and nothing opens without."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.browser import Browser
from tests.support.cases import each
from tests.support.patience import WITHIN_S
from tests.support.scripted import Member, hang_up, settle
from tests.support.tenure import Tenure, wait_until

TOKEN = "not-a-secret"
GROUP, LATE = "a-group", "a-late-group"
PATHS = ("groups", "overview", f"groups/{GROUP}/events", "events", "metrics")
STATUSES = f"Promise.all({list(PATHS)}.map((each) => fetch('/' + each).then((answer) => answer.status)))"
STREAM = (
    "new Promise((done) => { const source = new EventSource('/events');"
    " source.onopen = () => done('open'); source.onerror = () => done('refused'); })"
)


@pytest.fixture
def server() -> Iterator[Tenure]:
    """Yield a server with a token, and a group of one member."""
    with Tenure({"tenure.http.token": TOKEN}, arguments=["--http", "127.0.0.1:0"]) as server:
        settle(Member(server.port, GROUP, "one", 5))
        yield server
        hang_up()


def url(server: Tenure) -> str:
    """The page's address."""
    (line,) = wait_until(lambda: server.events("http_listening"), "HTTP is there", WITHIN_S)
    return str(line["url"])


def listed(browser: Browser) -> str:
    """The text of the list of groups."""
    return str(browser.evaluate("document.querySelector('#groups')?.innerText ?? ''"))


def test_the_page_with_the_token(own_browser: Browser, server: Tenure) -> None:
    """A person logs in once, under any name; page and live events work, and neither address nor page has the token."""
    own_browser.log_in_as(("anybody", TOKEN))
    own_browser.open(url(server))
    wait_until(lambda: GROUP in listed(own_browser), "the group is listed", WITHIN_S)
    wait_until(lambda: own_browser.text("#live") == "live", "events", WITHIN_S)
    settle(Member(server.port, LATE, "one", 5))
    wait_until(lambda: LATE in listed(own_browser), "a group that came later is listed", WITHIN_S)
    assert own_browser.evaluate(STATUSES.replace("'events', ", "")) == [200] * (len(PATHS) - 1)
    assert not any(TOKEN in address for address in own_browser.requests)
    assert TOKEN not in own_browser.evaluate("document.documentElement.outerHTML + document.cookie + location.href")
    assert own_browser.errors == []


@each("login", [None, ("anybody", "wrong"), (TOKEN, "")])
def test_the_page_without_the_token(own_browser: Browser, server: Tenure, login: tuple[str, str] | None) -> None:
    """Without the token, or with another, there is neither page nor data, and no event."""
    own_browser.log_in_as(login)
    own_browser.open(url(server))
    said = own_browser.evaluate("document.documentElement.innerText")
    assert "Authorization: Bearer TOKEN is missing or wrong" in said
    assert own_browser.evaluate("document.querySelector('#groups') === null")
    assert own_browser.evaluate(STATUSES) == [401] * len(PATHS)
    assert own_browser.evaluate(STREAM) == "refused"
