"""axe-core, which reads the page of a browser by the rules of WCAG 2.2.

House rule: `tests/support/axe-core` locks its version, and npm checks what it gets by the lock's hash.
"""

from __future__ import annotations

import functools
from pathlib import Path

from tests.interop.client import build_folder, install_locked
from tests.support.browser import Browser

WIDTHS = (320, 768, 1280)
"""A telephone, a tablet and a screen, in pixels."""

RUN = """
new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))
    .then(() => document.getAnimations().filter((each) => each instanceof CSSTransition).map((each) => each.finished))
    .then((changes) => Promise.allSettled(changes))
    .then(() => axe.run({resultTypes: ["violations"]}))
    .then(({violations}) => violations.flatMap(({id, nodes}) =>
        nodes.map(({target, failureSummary}) => `${id}: ${target.join(" ")}: ${failureSummary}`)))
"""
"""Runs axe-core once colors have their new value: the next drawing begins to change them, slowly."""


@functools.cache
def _source() -> str:
    """The text of axe-core."""
    with build_folder("axe-core") as folder:
        install_locked(Path(__file__).with_name("axe-core"), folder)
        return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


def violations(browser: Browser) -> list[str]:
    """Return each violation in the page of a browser at each width, light and dark: where, the rule, the element.

    Raises AssertionError if the page doesn't follow the scheme.
    """
    found, backgrounds = [], {}
    for width in WIDTHS:
        browser.resize(width, 900, mobile=width == WIDTHS[0])
        for scheme in ("light", "dark"):
            browser.prefer(scheme)
            if not browser.evaluate("typeof axe === 'object'"):
                browser.evaluate(_source())
            found += [f"{width} {scheme}: {each}" for each in browser.evaluate(RUN)]
            backgrounds[scheme] = browser.evaluate("getComputedStyle(document.body).backgroundColor")
        assert backgrounds["light"] != backgrounds["dark"], backgrounds
    browser.resize(1280, 900)
    browser.prefer("light")
    return found
