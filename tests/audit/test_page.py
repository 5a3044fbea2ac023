"""The HTML page is well formed, needs nothing else, and shows what the log holds as text."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

from coordinator.audit import page as module
from coordinator.audit.audit import Options, Outcome, audit
from coordinator.audit.page import page, write_page
from tests.audit.scenes import Scene, clean, group_on, static_members


class Tags(HTMLParser):
    """Every element with its attributes; fails on one that isn't closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element begins."""
        self.found.append((tag, dict(attrs)))
        if tag != "meta":
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element without content."""
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """An element ends."""
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Text."""
        self.texts.append(data)

    def count(self, tag: str, style: str) -> int:
        """How many such elements have that class."""
        return sum(name == tag and attributes.get("class") == style for name, attributes in self.found)


def outcome_of(scene: Scene, folder: Path) -> Outcome:
    """What is found in a scene's log."""
    return audit(scene.write(folder), None, Options(), lambda _done: None)


def test_page_shows_findings_generations_and_seats(tmp_path: Path) -> None:
    """A dot for each generation, a bar for each time a seat was taken, a triangle for each restart."""
    tags = Tags(page(outcome_of(clean().commit(5).commit(4), tmp_path)))
    assert tags.count("circle", "dot") == 4
    assert tags.count("rect", "seat") == 1 + 5
    assert tags.count("path", "restart") == 2
    assert tags.count("line", "deleted") == 1
    assert "commit_back" in tags.texts
    assert "Findings: 1" in tags.texts


def test_page_needs_nothing_else(tmp_path: Path) -> None:
    """No script, no style sheet, no picture from anywhere."""
    path = write_page(tmp_path / "out", outcome_of(clean(), tmp_path / "log"))
    tags = Tags(path.read_text(encoding="utf-8"))
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in tags.found}
    assert not {"src", "href"} & {name for _, attributes in tags.found for name in attributes}


def test_what_the_log_says_is_text(tmp_path: Path) -> None:
    """Elements in the names of groups and topics are none."""
    group_id = group_on(0, '<script>alert("1")</script>')
    scene = Scene().group(static_members(a=1), 1, group_id).commit(5, group_id, "<b>").commit(4, group_id, "<b>")
    tags = Tags(page(outcome_of(scene, tmp_path)))
    assert not {"script", "b"} & {tag for tag, _ in tags.found}
    assert group_id in tags.texts


def test_page_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And says what it left out."""
    for name in ("FINDINGS_MAX", "BARS_MAX", "GROUPS_MAX"):
        monkeypatch.setattr(module, name, 2)
    scene = Scene()
    for number in range(5):
        group_id = group_on(0, f"n{number}")
        scene.commit(5, group_id).commit(4, group_id)
    tags = Tags(page(outcome_of(scene, tmp_path)))
    assert {"and 3 more", "and 3 smaller groups", "3 quieter groups are not drawn."} <= set(tags.texts)


def test_empty_log_has_a_page(tmp_path: Path) -> None:
    """Nothing to draw is no error."""
    assert "Findings: none" in Tags(page(outcome_of(Scene(), tmp_path))).texts
