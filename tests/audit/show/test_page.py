"""The HTML page is well formed and limited in size, loads nothing, and shows all names as text.

If a browser is installed, further tests look at the page as a person sees it.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from coordinator.audit.audit import AuditResult, Options
from coordinator.audit.check.checks import CHECKS, finding
from coordinator.audit.check.history import LANES_MAX, MARKS_MAX, STEPS_MAX, Step, Story
from coordinator.audit.check.limits import Limits
from coordinator.audit.show import page as module
from coordinator.audit.show.page import page, publish, write_page
from coordinator.story.lanes import Lane, Mark
from tests.audit.audited import audited
from tests.audit.scenes import (
    GROUP,
    HOUR_MS,
    START_MS,
    Scene,
    clean,
    group_key,
    group_on,
    newer_key,
    share_value,
    static,
    static_members,
    two_consumers,
)
from tests.support.axe import violations
from tests.support.browser import Browser

HOSTILE = """<script>alert("1")</script>'"><b onclick=alert(1)>&amp;\u202e\x00\x1b[2J"""
MANY = 10_000
PAGE_SIZE_MAX = 5_000_000


class Tags(HTMLParser):
    """Every element with its attributes; fails if an element isn't closed."""

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
        if tag not in {"meta", "input", "br"}:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element without content."""
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """An element ends."""
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Keep text."""
        self.texts.append(data)

    def count(self, tag: str, style: str) -> int:
        """Return how many elements with that tag have that class."""
        return sum(name == tag and attributes.get("class") == style for name, attributes in self.found)

    def values(self, name: str) -> list[str]:
        """Return the values of an attribute."""
        return [value for _, attributes in self.found if (value := attributes.get(name)) is not None]

    @property
    def text(self) -> str:
        """Return the visible text."""
        return " ".join(self.texts)


def drawn(text: str) -> Tags:
    """Return the drawings, without the legend that explains their marks."""
    return Tags(text[text.index("<section class='card' id='group-0'") : text.index("<h2 id='bytes'>")])


def test_page_shows_findings_rebalances_and_seats(tmp_path: Path) -> None:
    """The page draws a bar for each time in a seat, a mark for each restart, and lines over all for generations."""
    text = page(audited(clean().commit(5).commit(4).write(tmp_path)))
    tags = drawn(text)
    assert tags.count("line", "when") == 3, "the end of one and the begin of the next are on one pixel"
    assert sum(each.count("members: ") + each.count("member: ") for each in tags.texts) == 5, "each says what happened"
    assert tags.count("rect", "seat") == 5
    assert tags.values("href") == ["#mark-return"] * 2
    assert tags.count("line", "deleted") == 1
    assert "commit_back" in Tags(text).texts
    assert "5 committed" not in tags.text
    assert "Generation 1, 2 members. At least 4 rebalances (1 joined, 1 removed), at least 2 returns" in tags.text


def test_drawings_have_words_too(tmp_path: Path) -> None:
    """A table has a row for each record of the group, and each drawing has a name."""
    tags = drawn(page(audited(clean().write(tmp_path))))
    assert tags.text.count("removed") == 3  # in the totals, at the mark, and as a step
    assert {"generation", "return", "empty", "deleted"} <= set(tags.texts)
    labels = [attributes.get("aria-label") for _, attributes in tags.found if attributes.get("role") == "img"]
    assert labels[1:] == [
        "a: taken 2 times, 1 return", "b: taken 2 times, 1 return",
        "c: taken 1 time, 0 returns",
    ]  # fmt: skip
    assert labels[0] is not None
    assert labels[0].startswith("Generation from 1 to 3, at least 4 rebalances, 2023-11-14 22:13:20 to ")


def test_each_finding_says_what_to_do() -> None:
    """Every check has a link to its advice, and every link has a target."""
    result = AuditResult("log", findings=[finding(check, 0, 1, "g", 1) for check in CHECKS])
    tags = Tags(page(result))
    ids = tags.values("id")
    assert len(ids) == len(set(ids))
    assert {f"#check-{check}" for check in CHECKS} <= set(tags.values("href"))
    assert {href for href in tags.values("href") if href[1:] not in ids} == set()
    text = tags.text.replace(" ", "")
    advices = {name: check.advice.replace("`", "").replace(" ", "") for name, check in CHECKS.items()}
    assert [name for name, advice in advices.items() if advice not in text] == []


def test_page_needs_nothing_else(tmp_path: Path) -> None:
    """The page loads no style sheet and no picture, links only to itself, and has a policy that forbids the rest."""
    path = write_page(tmp_path / "out", audited(clean().commit(5).commit(4).write(tmp_path / "log")))
    tags = Tags(path.read_text(encoding="utf-8"))
    assert not {"link", "img", "iframe", "object", "base"} & {tag for tag, _ in tags.found}
    assert not {"src", "style", "srcset", "action"} & {name for _, attributes in tags.found for name in attributes}
    assert [href for href in tags.values("href") if not href.startswith("#")] == []
    policy = tags.values("content")[0].split("; ")
    assert policy[:3] == ["default-src 'none'", "base-uri 'none'", "form-action 'none'"]
    assert [rule.partition("-src 'sha256-")[0] for rule in policy[3:]] == ["style", "script"]


def test_the_style_asks_no_row_for_its_neighbours() -> None:
    """With `:has` a browser looks at the rows before for each row that comes: thousands of rows take minutes."""
    assert "<style>" in page(AuditResult("log"))
    assert ":has(" not in page(AuditResult("log"))


def test_what_the_log_says_is_text(tmp_path: Path) -> None:
    """Markup in the names of groups and topics is shown as text, and invisible characters are escaped."""
    group_id = group_on(0, HOSTILE)
    scene = Scene().group(static_members(a=1), 1, group_id).commit(5, group_id, HOSTILE).commit(4, group_id, HOSTILE)
    result = audited(scene.write(tmp_path))
    result.source = HOSTILE
    result.notes.append(HOSTILE)
    story = result.stories[0]
    story.old_clients[HOSTILE] = "old"
    story.lanes[HOSTILE] = Lane([(START_MS, None)])
    tags = Tags(page(result))
    assert [tag for tag, _ in tags.found].count("script") == 1
    assert "b" not in {tag for tag, _ in tags.found}
    assert "onclick" not in {name for _, attributes in tags.found for name in attributes}
    shown = HOSTILE.replace("\u202e", "\\u202e").replace("\x00", "\\x00").replace("\x1b", "\\x1b")
    # As source, in the title, in a note, as group and as topic.
    assert sum(shown in text for text in tags.texts) >= 6


def test_odd_times_and_names_are_drawn() -> None:
    """The page draws records of any time and findings with any detail."""
    stories = []
    for number, (first, last) in enumerate([(-1, -1), (0, 2**62), (-(2**62), 2**62), (START_MS, START_MS)]):
        story = Story("g" * 40_000 + str(number), 0, first, last, rebalances=1)
        story.steps += [Step(last, "generation", 2**31 - 1, 1, "x"), Step(first, "generation", -1, 1, "x")]
        story.lanes = {
            "": Lane([(last, first)], [Mark("restart", at, at) for at in (first, 0, last)]),
            "9" * 40_000: Lane(),
        }
        stories.append(story)
    result = AuditResult("", stories=stories, findings=[finding("commit_back", 0, None)._replace(detail="no JSON")])
    result.findings.append(
        finding("commit_back", 0, 1, None, None, x=["\ud800" * 9_999], y={"a": 1}, z=None, commit_ms=2**70)
    )
    text = page(result)
    assert text.encode()
    assert len(text) < 100_000
    assert Tags(text).text.count("commit_ms") == 1


@pytest.mark.parametrize(
    ("span_ms", "labels"),
    [
        (0, ["22:13:20"]),
        (300, ["22:13:20"]),
        (4_000, ["22:13:20", "22:13:21", "22:13:22", "22:13:23", "22:13:24"]),
        (HOUR_MS, ["22:15:00", "22:30:00", "22:45:00", "23:00:00"]),
        (70 * HOUR_MS, ["2023-11-15", "2023-11-16", "2023-11-17"]),
        (30 * HOUR_MS, ["11-15 00:00", "11-15 12:00", "11-16 00:00"]),
    ],
)
def test_axis_has_times_that_can_be_read(span_ms: int, labels: list[str]) -> None:
    """An axis has at least one label, at round times, in a form that fits the distance between labels."""
    story = Story("g", 0, START_MS, START_MS + span_ms)
    story.steps.append(Step(START_MS, "generation", 1, 1, "first seen"))
    text = page(AuditResult("log", stories=[story]))
    axis = text[text.index("<div class='row axis'>") :]
    assert [each for each in Tags(axis[: axis.index("</div>") + 6]).texts if each.strip()][1:] == labels


def many_stories() -> Iterator[Story]:
    """Yield groups with as much to draw as a history keeps."""
    for number in range(MANY):
        story = Story(
            f"team-{number % 97}.service-{number}.consumers", number % 50, START_MS, START_MS + 10**9, bytes=number
        )
        if number < 100:
            story.rebalances = STEPS_MAX
            story.steps.extend(
                Step(START_MS + at * 500_000, "generation", at, 60, "joined, left or expired")
                for at in range(STEPS_MAX)
            )
            times = [START_MS + at * 2_000_000 for at in range(MARKS_MAX)]
            marks = [Mark("restart", at, at) for at in times]
            story.lanes = {
                f"consumer-{seat}-0123456789": Lane([(at, at + 900_000) for at in times], marks)
                for seat in range(LANES_MAX)
            }
        yield story


@pytest.fixture(scope="module")
def many() -> AuditResult:
    """Return a result that has the maximum of everything."""
    result = AuditResult("data", stories=list(many_stories()))
    names = [f"consumer-{number}" for number in range(100)]
    for check in CHECKS:
        result.findings += [
            finding(check, 0, number, f"team-{number}.service-{number}.consumers", 1, gone=names)
            for number in range(500)
        ]
    return result


@pytest.mark.long
def test_page_has_an_end(many: AuditResult) -> None:
    """The largest page still opens on a telephone; it lists every group and says what it doesn't show."""
    text = page(many)
    assert len(text.encode()) < PAGE_SIZE_MAX
    tags = Tags(text)
    assert sum(
        name.endswith("quieter groups are not drawn; all of them are in the table below.") for name in tags.texts
    )
    assert tags.texts.count("400 more are in findings.parquet.") > 0
    assert tags.text.count(".consumers to ") == 0
    assert [tag for tag, attributes in tags.found if attributes.get("scope") == "row"].count("th") == MANY
    assert f"{MANY - module.BARS_MAX:,} smaller groups are in the table below." in tags.texts


def test_rows_that_have_no_room_are_counted(many: AuditResult, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part of the page has its own limit, and counts the rows above it."""
    monkeypatch.setattr(module, "ROWS_SIZE_MAX", 1_000)
    monkeypatch.setattr(module, "DRAWINGS_SIZE_MAX", 1_000)
    monkeypatch.setattr(module, "FINDINGS_SIZE_MAX", 1_000)
    texts = Tags(page(many)).texts
    assert sum(text.endswith("quieter groups have no room here; summary.json has all of them.") for text in texts) == 1
    assert texts.count("500 more are in findings.parquet.") == len(CHECKS) - 1
    assert "There is no room to draw a group." in texts


def test_what_is_lost_with_a_partition_is_said(tmp_path: Path) -> None:
    """The page lists each partition's live groups, and a large group's bytes for each restart."""
    here, there, gone = group_on(0, "here"), group_on(1, "there"), group_on(1, "gone")
    members = [static(f"m-{number}", 1, {"orders": [number]}) for number in range(120)]
    Scene().group(members, 1, here).write(tmp_path)
    result = audited(Scene(1).group([], 1, gone).delete(gone).commit(5, there).write(tmp_path))
    text = page(result)
    lost = Tags(text[text.index("<h2 id='partitions'>") : text.index("<h2 id='all-groups'>")])
    assert {here, there} <= set(lost.texts)
    assert gone not in lost.text
    assert "each restart of a static member writes all 120 members" in Tags(text).text


def test_group_on_two_partitions_is_linked_to_each(tmp_path: Path) -> None:
    """A finding of a group on two partitions links to the drawing of its own partition."""
    for partition in (0, 1):
        scene = Scene(partition).group(static_members(a=1), 1, "g").commit(5, "g").commit(4, "g")
        scene.write(tmp_path)
    text = page(audited(tmp_path, options=Options(Limits(partition_count=1))))
    found = text[text.index("<section class='card check' id='check-commit_back'") :]
    links = Tags(found[: found.index("</section>") + len("</section>")]).values("href")
    assert sorted(links) == ["#group-0", "#group-1"]


def test_group_of_a_newer_protocol_is_drawn_up_to_there(tmp_path: Path) -> None:
    """A group that went to a protocol that isn't read is drawn up to that record, and isn't shown as deleted."""
    scene = Scene().group(static_members(a=1), 1)
    scene.append((group_key(GROUP), None), (newer_key(GROUP, 11), share_value()))
    tags = drawn(page(audited(scene.write(tmp_path))))
    assert (tags.count("line", "converted"), tags.count("line", "deleted")) == (1, 0)
    assert "A group of the share protocol, whose members aren't read." in tags.text


def test_group_of_the_consumer_protocol_is_drawn(tmp_path: Path) -> None:
    """The page has the group's epoch and number of members, and a lane for each seat."""
    tags = drawn(page(audited(two_consumers().scene.write(tmp_path))))
    assert "A group of the consumer protocol, epoch 3, 2 members." in tags.text
    assert {"m", "seat"} <= set(tags.text.split())


def test_empty_log_has_a_page(tmp_path: Path) -> None:
    """An audit of an empty log has a page."""
    tags = Tags(page(audited(Scene().write(tmp_path))))
    assert "Nothing found." in tags.texts
    assert "script" not in {tag for tag, _ in tags.found}


# -- in a browser


@pytest.fixture
def report(browser: Browser, tmp_path: Path, many: AuditResult) -> Path:
    """Open the page of a log with hostile names and many groups in the browser, at the size of a desktop."""
    group_id = group_on(0, HOSTILE)
    scene = Scene().group(static_members(a=1, b=1), 1, group_id).group(static_members(a=2, b=1), 1, group_id)
    result = audited(scene.commit(5, group_id, HOSTILE).commit(4, group_id, HOSTILE).write(tmp_path / "log"))
    result.stories[0].bytes = 12_000
    result.stories += many.stories[500:800]
    result.findings += [finding(check, 0, 1, group_id, 1, text=HOSTILE) for check in ("wrong_partition", "torn_tail")]
    browser.requests.clear()
    browser.errors.clear()
    browser.resize(1280, 900)
    browser.prefer("light")
    path = write_page(tmp_path, result)
    browser.open(path)
    return path


def test_browser_opens_the_page_alone(browser: Browser, report: Path) -> None:
    """The browser loads only the page, its policy blocks nothing, and no name from the log runs as code."""
    assert browser.requests == [report.as_uri()]
    assert browser.errors == []
    assert browser.evaluate("document.title").startswith("Audit of ")
    assert browser.evaluate("document.querySelectorAll('script').length") == 1
    # The policy stops markup even if it gets into the page.
    browser.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.ran = true\">')")
    browser.evaluate("new Promise(resolve => setTimeout(resolve))")
    assert browser.evaluate("window.ran === undefined")


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_page_fits_the_window(browser: Browser, report: Path, width: int) -> None:
    """On a telephone only tables are wider than the window, and letters are as large as they should be."""
    browser.resize(width, 800, mobile=width < 700)
    browser.open(report)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    sizes = (
        "[...document.querySelectorAll('p, td, th, text, .name')].map(e => parseFloat(getComputedStyle(e).fontSize))"
    )
    assert browser.evaluate(f"Math.min(...{sizes})") >= 12
    # A mark is at the position of its time at any width: the axis, the lanes and the lines over them share their edges.
    assert len(set(browser.evaluate(EDGES))) == 1


EDGES = """
[...document.querySelectorAll('#group-0 .row > svg:last-child, #group-0 .over')].map(drawing => {
  const box = drawing.getBoundingClientRect();
  return `${Math.round(box.left)} ${Math.round(box.right)}`;
})
"""
CONTRAST = """
(() => {
  const light = colour => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map(v => v / 255)
      .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (colour !== 'rgba(0, 0, 0, 0)') return colour;
    }
  };
  const texts = 'p, td, th, dd, dt, a, code, .badge, .name, .key, text, label, button';
  return Math.min(...[...document.querySelectorAll(texts)]
    .filter(e => e.textContent.trim())
    .map(e => {
      const style = getComputedStyle(e);
      const [a, b] = [light(e.tagName === 'text' ? style.fill : style.color), light(behind(e))].sort((x, y) => y - x);
      return (a + .05) / (b + .05);
    }));
})()
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_both_schemes(browser: Browser, report: Path, scheme: str) -> None:
    """All text has the contrast that WCAG asks for, 4.5, in the light and in the dark scheme."""
    browser.prefer(scheme)
    browser.open(report)
    is_dark = browser.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g)[0] < 128")
    assert is_dark == (scheme == "dark")
    assert browser.evaluate(CONTRAST) >= 4.5


def test_keys_alone_lead_through_the_page(browser: Browser, report: Path) -> None:
    """Tab goes to the findings, the parts and the search; Enter follows a link."""
    focused = "document.activeElement.textContent.trim() || document.activeElement.id"
    seen = []
    for _ in range(7):
        browser.press("Tab")
        seen.append(browser.evaluate(focused))
        assert browser.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    assert seen == [
        "To the findings",
        "Findings",
        "Rebalances and seats",
        "Bytes",
        "Partitions",
        "All groups",
        "wrong_partition",
    ]
    browser.press("Enter")
    assert browser.evaluate("location.hash") == "#check-wrong_partition"
    assert browser.evaluate("document.querySelector(':target').getBoundingClientRect().top < innerHeight")


def test_screen_reader_has_names_for_all(browser: Browser, report: Path) -> None:
    """The accessibility tree has names for headings, tables, drawings and the search field."""
    assert report.exists()
    headings = browser.names("heading")
    assert headings[0] == "Audit of group metadata"
    assert {"Findings", "Rebalances and seats", "Bytes by group", "All groups"} <= set(headings)
    drawings = browser.names("image")
    assert "a: taken all the time, 1 return" in drawings
    assert all(drawings)
    assert browser.names("searchbox") == ["Groups whose id has"]
    assert "Table of all groups" in browser.names("region")
    assert {"group", "rebalances"} <= set(browser.names("columnheader"))


@pytest.mark.long
@pytest.mark.programs("npm")
def test_the_report_has_no_violation(browser: Browser, report: Path) -> None:
    """axe-core finds nothing in the page, at three widths, light and dark."""
    assert report.exists()
    assert violations(browser) == []


def test_the_printed_report_has_all_that_is_to_read(browser: Browser, report: Path) -> None:
    """On paper the table of groups has its headings, which are buttons; links and fields are of no use there."""
    assert report.exists()
    browser.show_on("print")
    shown = "[...document.querySelectorAll('button, nav, .search')].filter(each => each.checkVisibility())"
    heads = browser.evaluate(f"{shown}.map(each => each.closest('thead') ? each.innerText : each.outerHTML)")
    browser.show_on("screen")
    assert heads[:3] == ["group", "findings", "partition"]
    assert not [each for each in heads if "<" in each]


def test_search_finds_a_group_of_many(browser: Browser, report: Path) -> None:
    """The page lists a hundred groups at first and then all that match a search, and says how many there are."""
    assert report.exists()
    shown = "[...document.querySelectorAll('#all-groups ~ .card tbody th')].map(cell => cell.innerText)"
    said = "document.querySelector('[role=status]').innerText"
    assert len(browser.evaluate(shown)) == 100
    assert browser.evaluate(said) == "1 to 100 of 301 groups"
    browser.evaluate("search.focus()")
    browser.type("SERVICE-77 team")
    assert len(browser.evaluate(shown)) == 10
    assert browser.evaluate(said) == "10 groups"
    browser.evaluate("search.value = ''; search.dispatchEvent(new Event('input'))")
    buttons = "[...document.querySelectorAll('#all-groups ~ .card button')]"
    for name in ("Next", "bytes"):
        browser.evaluate(f"{buttons}.find(each => each.innerText === '{name}').focus()")
        browser.press("Enter")
        assert browser.evaluate(said) == ("101 to 200" if name == "Next" else "1 to 100") + " of 301 groups"
    sizes = browser.evaluate("[...document.querySelectorAll('td[data-label=bytes]')].map(cell => cell.innerText)")
    assert sizes[:3] == ["12.0 kB", "799 B", "798 B"]
    browser.evaluate(
        "URL.createObjectURL = (blob) => { window.saved = blob; return '#saved'; };"
        "addEventListener('click', (event) => event.target.download && event.preventDefault(), true);"
        f"{buttons}.find(each => each.innerText === 'CSV').click()"
    )
    file = browser.evaluate("saved.text()").split("\r\n")
    assert len(file) == 1 + 301 + 1
    assert file[1].endswith(",3,0,1,2,at least 1,1,at least 1,1,12000,2023-11-14 22:13:20 to 22:13:23")


def test_report_summary_and_page(tmp_path: Path) -> None:
    """The command prints the report and then the page's path; without a folder it prints the report alone."""
    stream = io.StringIO()
    publish(AuditResult("log"), tmp_path / "out", stream)
    assert stream.getvalue().splitlines()[-1] == str(tmp_path / "out" / "report.html")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["report.html", "summary.json"]
    alone = io.StringIO()
    publish(AuditResult("log"), None, alone)
    assert stream.getvalue().startswith(alone.getvalue())
