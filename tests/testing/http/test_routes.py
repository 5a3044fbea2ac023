"""Requests that come to an operation, and those that don't: tokens, pages of browsers, bodies, faults of ours."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from coordinator.testing.http.routes import BODY_BYTES_MAX
from tests.support.patience import WITHIN_S
from tests.support.tenure import wait_until
from tests.testing.http.conftest import Control, controlling

TOKEN = "not-a-secret"


@pytest.fixture
def guarded() -> Iterator[Control]:
    """Yield a control that asks for a token."""
    with controlling(token=TOKEN) as made:
        yield made


@pytest.mark.parametrize("given", [None, "", TOKEN, f"Bearer {TOKEN}x", "Bearer ", f"Token {TOKEN}", "Bearer n\xe4"])
def test_another_token_is_refused(guarded: Control, given: str | None) -> None:
    """Without exactly the token no operation runs, and the document isn't read either."""
    headers = {} if given is None else {"Authorization": given}
    for method, path in (("GET", "/v1"), ("POST", "/v1/reset"), ("GET", "/openapi.json"), ("GET", "/none")):
        status, body = guarded.ask(method, path, **headers)
        assert status == 401
        assert TOKEN not in body["error"]


def test_the_token_opens(guarded: Control) -> None:
    """With the token an operation runs."""
    assert guarded.ask("GET", "/v1", Authorization=f"Bearer {TOKEN}")[0] == 200


def test_a_page_in_a_browser_is_refused(control: Control) -> None:
    """A browser names the page that sends a request: none may, and neither may another host's name."""
    assert control.ask("POST", "/v1/reset", {}, Origin="http://127.0.0.1:1")[0] == 403
    assert control.ask("GET", "/v1", Host="attacker.example")[0] == 421
    for site in ("cross-site", "same-site", "same-origin"):  # an image of a page has no Origin
        assert control.ask("GET", "/v1", **{"Sec-Fetch-Site": site})[0] == 403
    assert control.ask("GET", "/v1", **{"Sec-Fetch-Site": "none"})[0] == 200  # a person typed the address


def test_a_body_that_is_none_is_refused(control: Control) -> None:
    """A body that is no JSON object, or too large, is refused."""
    assert control.ask("POST", "/v1/topics", b"name=u")[0] == 400
    assert control.ask("POST", "/v1/topics", b"[]")[0] == 400
    assert control.ask("POST", "/v1/topics", b" " * (BODY_BYTES_MAX + 1))[0] == 413
    assert control.ask("POST", "/v1/topics", b" " * 9 + b'{"name": "u"}')[0] == 200


def test_a_group_may_have_slashes(control: Control) -> None:
    """A percent-encoded id reaches the operation as it is."""
    control.post("/v1/groups/a%2Fb%20c/fill", count=1)
    look = control.post("/v1/groups/a%2Fb%20c/wait", members=1)
    assert look["group_id"] == "a/b c"
    assert control.get("/v1/groups/a%2Fb%20c")["group_id"] == "a/b c"


def test_a_fault_of_ours_is_status_500(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that no operation should have is in the log, and the answer says so."""
    monkeypatch.setattr(type(control.tenure), "log", property(lambda _: 1 / 0))
    status, body = control.ask("GET", "/v1/log")
    assert (status, body) == (500, {"error": "a fault of this server: its log says more"})
    wait_until(lambda: "ZeroDivisionError" in control.log.getvalue(), "a line with the reason", WITHIN_S)


def test_a_stop_ends_waits(control: Control) -> None:
    """A wait that a stop of the server overtakes ends at once, and says why."""
    members = control.post("/v1/groups/workers/fill", count=1)
    control.post("/v1/groups/workers/wait", state="Stable")
    control.tenure.stop()
    for path, fields in (
        ("/v1/groups/workers/wait", {"members": 2}),
        ("/v1/wait-until-killed", {}),
        (f"/v1/crews/{members['id']}/wait-until-seated", {"generation": 9}),
        ("/v1/kill", {}),
    ):
        assert control.refused(path, **fields)[0] in {400, 409}, path


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/groups/workers/wait", {"members": 9, "timeout": 3600}),
        ("/v1/wait-until-killed", {"timeout": 3600}),
        ("/v1/crews/1/wait-until-seated", {"generation": 9, "timeout": 3600}),
        ("/v1/crews/1/leave", {"index": 0}),
        ("/v1/crews/1/restart", {"index": 0}),
    ],
)
def test_a_wait_ends_with_its_connection(path: str, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """While others wait, operations that don't go on; if their clients are gone, the next wait has its turn."""
    monkeypatch.setattr("coordinator.testing.http.routes.THREADS_MAX", 2)
    with controlling() as control:
        control.post(
            "/v1/groups/workers/fill", count=2, protocol="consumer", topics=["t"], request_timeout_ms=3_600_000
        )
        control.post("/v1/crews/1/wait-until-seated", generation=1)
        control.post("/v1/faults", action="drop-request", apis=["ConsumerGroupHeartbeat"], always=True)
        waiting = [http.client.HTTPConnection("127.0.0.1", control.port, timeout=WITHIN_S) for _ in range(3)]
        for each in waiting:
            each.request("POST", path, json.dumps(fields))
        assert control.get("/v1")["is_running"]
        for each in waiting:
            each.close()
        assert control.post("/v1/groups/none/wait", state="Dead")["members"] == []
        assert control.log.getvalue() == ""
