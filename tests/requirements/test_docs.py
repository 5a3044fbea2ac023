"""The hooks of the site, and the site in a browser."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest

from requirements.docs import on_page_markdown
from tests.support.axe import violations
from tests.support.browser import Browser

ROOT = Path(__file__).parents[2]
PAGES = ("index.html", "start/differences.html", "ask-why/explain-watch-doctor.html", "run/settings.html")
"""The start page, and the pages with the most tables, code and headings."""


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, and prints nothing."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Print nothing."""


def test_a_link_out_of_docs_is_plain_text() -> None:
    """Links to pages stay; of a link to a file of the tree only the text stays, and a line break in it."""
    text = "[ACLs](../secure/acls.md#rules), [a\ntest](../../tests/x.py) and [README](../README.md)"
    page = SimpleNamespace(file=SimpleNamespace(src_uri="run/rolling.md"))
    assert on_page_markdown(text, page=page) == "[ACLs](../secure/acls.md#rules), a\ntest and [README](../README.md)"
    top = SimpleNamespace(file=SimpleNamespace(src_uri="README.md"))
    assert on_page_markdown("[Contributing](../CONTRIBUTING.md)", page=top, config=None) == "Contributing"


@pytest.mark.long
@pytest.mark.programs("npm", "mkdocs")
def test_the_site_has_no_violation_and_asks_no_network(browser: Browser, tmp_path: Path) -> None:
    """Four pages have no violation that axe-core knows, fit on a telephone, and load files of the site alone."""
    command = (sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path))
    subprocess.run(command, cwd=ROOT, check=True)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        site = f"http://127.0.0.1:{server.server_port}/"
        for name in PAGES:
            browser.open(site + name)
            assert violations(browser) == []
            browser.resize(360, 900, mobile=True)
            assert browser.evaluate("document.documentElement.scrollWidth") <= 360
        assert browser.errors == []
        assert {each for each in browser.requests if not each.startswith((site, "data:", "about:"))} == set()
