"""With a token HTTP is closed to those without it: every path but those of probes, for programs and for browsers."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from coordinator.site.access import PROBES
from coordinator.site.guard import REFUSALS_MS
from tests.site.test_guard import Web, serving
from tests.support.patience import WITHIN_S

TOKEN = "not-a-secret"
CLOSED = ("/", "/page.js", "/metrics", "/groups", "/groups/g", "/groups/g/events", "/events", "/overview", "/nowhere")


def basic(user: str, password: str) -> str:
    """A Basic header as browsers send it."""
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


class Answer(NamedTuple):
    """An answer of HTTP."""

    status: int
    challenges: list[str]
    body: bytes


async def get(web: Web, path: str, header: str | None) -> Answer:
    """The answer to a request with this Authorization header."""

    def ask() -> Answer:
        connection = HTTPConnection("127.0.0.1", web.port, timeout=WITHIN_S)
        connection.request("GET", path, headers={} if header is None else {"Authorization": header})
        response = connection.getresponse()
        answer = Answer(response.status, response.headers.get_all("www-authenticate") or [], response.read())
        connection.close()
        return answer

    return await asyncio.to_thread(ask)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        TOKEN,
        f"Bearer {TOKEN}x",
        "Bearer",
        f"Token {TOKEN}",
        basic("alice", "wrong"),
        basic(TOKEN, ""),
        "Basic ???",
        f"Basic {TOKEN}",
    ],
)
async def test_without_the_token_every_path_is_closed(tmp_path: Path, header: str | None) -> None:
    """The answer is 401, asks browsers for a password, and is the same for paths that there are not."""
    async with serving(tmp_path, f"tenure.http.token={TOKEN}") as web:
        for path in CLOSED:
            answer = await get(web, path, header)
            assert answer.status == 401, path
            assert answer.challenges[0].startswith("Basic ")
            assert "tenure.http.token" in json.loads(answer.body)["error"]
        for path in PROBES:
            assert (await get(web, path, header)).status == 200


@pytest.mark.parametrize("header", [f"Bearer {TOKEN}", f"bearer {TOKEN}", basic("", TOKEN), basic("alice", TOKEN)])
async def test_the_token_opens(tmp_path: Path, header: str) -> None:
    """As Bearer, and as the password of Basic under any name."""
    async with serving(tmp_path, f"tenure.http.token={TOKEN}") as web:
        for path in ("/", "/metrics", "/groups"):
            assert (await get(web, path, header)).status == 200


async def test_without_a_setting_nothing_is_asked_for(tmp_path: Path) -> None:
    """Without a token all paths are open, whatever header a client sends."""
    async with serving(tmp_path) as web:
        assert (await get(web, "/groups", None)).status == 200
        assert (await get(web, "/groups", "Bearer x")).status == 200


async def test_wrong_tokens_are_one_line(tmp_path: Path) -> None:
    """A line names the peer, and not what it sent; a browser's first request without a token is no line."""
    async with serving(tmp_path, f"tenure.http.token={TOKEN}") as web:
        await get(web, "/groups", None)
        assert web.lines("http_unauthorized") == []
        for _ in range(5):
            await get(web, "/groups", "Bearer guessed")
        (line,) = web.lines("http_unauthorized")
        assert line["peer"].startswith("127.0.0.1:")
        assert "guessed" not in str(line)
    assert REFUSALS_MS > 0


async def test_a_token_is_no_way_around_the_host_check(tmp_path: Path) -> None:
    """Another site's name is refused before the token is looked at: a browser may know the token."""
    async with serving(tmp_path, f"tenure.http.token={TOKEN}") as web:
        request = f"GET /groups HTTP/1.1\r\nHost: evil\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n\r\n"
        answer: Any = await asyncio.to_thread(web._ask, request)
        assert answer.startswith(b"HTTP/1.1 421 ")
