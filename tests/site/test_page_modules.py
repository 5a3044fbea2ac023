"""Modules of the page by themselves, in a real browser: addresses and times, tables and their files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.browser import Browser
from tests.support.patience import WITHIN_S
from tests.support.tenure import Tenure, wait_until

COLUMNS = """[
    {key: "name", name: "Name", value: (row) => row.name,
      cell: (row) => Object.assign(document.createElement("a"), {href: `#${row.name}`, textContent: row.name})},
    {key: "size", name: "Size", number: true, value: (row) => row.size},
    {key: "note", name: "Note", sorts: false, value: (row) => row.note},
]"""

FIRST_CELLS = "tbody th"

ROWS: list[dict[str, Any]] = [
    {"name": "b", "size": 2, "note": "-5"},
    {"name": "a", "size": None, "note": None},
    {"name": "d", "size": 10, "note": "=1+1"},
    {"name": "c", "size": -1, "note": 'say "hi", twice\nor so'},
]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Yield a server that has the page."""
    with Tenure({"tenure.http": "127.0.0.1:0"}) as server:
        (line,) = wait_until(lambda: server.events("http_listening"), "HTTP is there", WITHIN_S)
        yield line["url"]


@pytest.fixture
def page(browser: Browser, url: str) -> Browser:
    """The browser at an address of the server where no script of the page runs."""
    browser.open_anew(f"{url}healthz")
    return browser


def called(page: Browser, module: str, expression: str) -> Any:
    """The value of an expression, in which `own` is a module of the page."""
    return page.evaluate(f"import('/page_{module}.js').then((own) => {expression})")


# The address.


@pytest.mark.parametrize(
    ("hash_", "parts"),
    [
        ("", {}),
        ("#", {}),
        ("#workers", {"group": "workers"}),
        ("#a%20b", {"group": "a b"}),
        ("#100%", {"group": "100%"}),
        ("#x=y", {"group": "x=y"}),
        ("#group=", {"group": ""}),
        ("#group=a%26b%3Dc", {"group": "a&b=c"}),
        ("#group=a=b", {"group": "a=b"}),
        ("#group=w&from=1&to=2&other=3", {"group": "w", "from": "1", "to": "2"}),
        ("#search=team+a&state=Empty&sort=-lag", {"search": "team+a", "state": "Empty", "sort": "-lag"}),
    ],
)
def test_an_address_has_parts(page: Browser, hash_: str, parts: dict[str, str]) -> None:
    """An address without a known key is the name of a group; unknown keys behind a known one don't count."""
    assert called(page, "address", f"own.parse({json.dumps(hash_)})") == parts


@pytest.mark.parametrize("group", ["workers", "", "a b", "a&b=c", "100%", "#x", "ü/ñ", "group=x", "from=1", "a:b"])
def test_an_address_brings_every_group_back(page: Browser, group: str) -> None:
    """Whatever name a group has, its address names this group, and a range beside it."""
    parts = {"group": group, "from": "2026-11-23T10:53:00.000Z", "to": "5"}
    formatted = called(page, "address", f"own.format({json.dumps(parts)})")
    assert called(page, "address", f"own.parse({json.dumps(formatted)})") == parts
    assert "10:53:00.000Z" in formatted, "a person can read and change the time"


def test_empty_parts_are_left_out(page: Browser) -> None:
    """But an empty name is a group's; the list as it is by default has an address without a hash."""
    assert called(page, "address", "own.format({search: '', state: undefined, sort: '-lag'})") == "#sort=-lag"
    assert called(page, "address", "own.format({group: ''})") == "#group="
    page.evaluate("location.hash = '#group=w'")
    steps = page.evaluate("history.length")
    where = called(page, "address", "(own.replace({search: 'x'}), [location.hash, own.here()])")
    assert where == ["#search=x", {"search": "x"}]
    assert called(page, "address", "(own.replace({}), location.href)").endswith("/healthz")
    assert page.evaluate("history.length") == steps, "the back button has no new step"


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1795429326825", 1_795_429_326_825),
        (" 2026-11-23 10:53:00 ", 1_795_431_180_000),
        ("2026-11-23T10:53:00Z", 1_795_431_180_000),
        ("2026-11-23 10:53:00.25Z", 1_795_431_180_250),
        ("2026-11-23T10:53", 1_795_431_180_000),
        ("2026-11-23T11:53:00+01:00", 1_795_431_180_000),
        ("2026-11-23T11:53:00+0100", 1_795_431_180_000),
        ("2026-11-23", 1_795_392_000_000),
        ("10:53", None),
        ("tomorrow", None),
        ("2026-13-01", None),
        ("123", None),
        ("", None),
    ],
)
def test_a_time_can_be_written_in_several_ways(page: Browser, text: str, ms: int | None) -> None:
    """A time without a zone is UTC, wherever the person is; Unix time is in ms."""
    page.live_in("Asia/Kolkata")
    assert called(page, "address", f"own.time({json.dumps(text)})") == ms
    page.live_in("UTC")


@pytest.mark.parametrize(
    ("hash_", "range_"),
    [
        ("#group=w&from=1000000000&to=1000000001", {"fromMs": 1_000_000_000, "toMs": 1_000_000_001}),
        ("#group=w&from=1000000000", {"fromMs": 1_000_000_000}),
        ("#group=w&from=soon&to=1000000001", {"toMs": 1_000_000_001}),
        ("#group=w&from=1000000001&to=1000000001", None),
        ("#group=w&from=soon", None),
        ("#group=w", None),
    ],
)
def test_a_range_may_have_one_end(page: Browser, hash_: str, range_: dict[str, int] | None) -> None:
    """An address without a time, or with ends in the wrong order, has no range."""
    page.evaluate(f"location.hash = {json.dumps(hash_)}")
    assert called(page, "address", "own.range()") == range_


# Tables.


def table(page: Browser, rows: list[dict[str, Any]], options: str = "") -> None:
    """Show rows in a table, which is `made`."""
    page.evaluate(
        "import('/page_table.js').then(({Table}) => { const root = document.createElement('div');"
        " document.body.replaceChildren(root); window.changes = [];"
        f" window.made = new Table(root, {COLUMNS},"
        f" {{name: 'things', changed: (sort) => changes.push(sort), {options}}});"
        f" made.show({json.dumps(rows)}); }})"
    )


def press(page: Browser, text: str) -> None:
    """Press the button with this text by Enter."""
    buttons = "[...document.querySelectorAll('button')]"
    page.evaluate(f"{buttons}.find((each) => each.innerText === {json.dumps(text)}).focus()")
    page.press("Enter")


def test_rows_without_a_value_come_last(page: Browser) -> None:
    """Whichever way the others are sorted; numbers begin with the largest, texts with the first letter."""
    table(page, ROWS)
    assert page.texts(FIRST_CELLS) == ["b", "a", "d", "c"], "as it comes"
    for head, order in [("Size", "dbca"), ("Size", "cbda"), ("Name", "abcd"), ("Name", "dcba")]:
        press(page, head)
        assert "".join(page.texts(FIRST_CELLS)) == order
    assert page.evaluate("changes") == ["-size", "size", "name", "-name"]
    sorts = "[...document.querySelectorAll('thead th')].map((head) => head.getAttribute('aria-sort'))"
    assert page.evaluate(sorts) == ["descending", "none", None], "the last column has no order"
    options = page.evaluate("[...document.querySelector('select').options].map((each) => each.value)")
    assert options == ["", "name", "-name", "size", "-size"]
    assert page.evaluate("document.querySelector('select').value") == "-name"


def test_an_unknown_column_sorts_nothing(page: Browser) -> None:
    """A link may name a column of another version."""
    table(page, ROWS, "sort: '-colour'")
    assert page.texts(FIRST_CELLS) == ["b", "a", "d", "c"]
    assert page.evaluate("document.querySelector('select').value") == ""


def test_equal_rows_stay_in_their_order(page: Browser) -> None:
    """So a list that is drawn again doesn't jump."""
    table(page, [{"name": name, "size": 1} for name in "cab"], "sort: '-size'")
    assert page.texts(FIRST_CELLS) == ["c", "a", "b"]


def test_a_long_table_has_pages(page: Browser) -> None:
    """The buttons turn them and keep the focus; another order begins with page 1; if rows go, the last page stays."""
    table(page, [{"name": f"n{number}", "size": number} for number in range(5)], "size: 2")
    said = "document.querySelector('[role=status]').innerText"
    assert (page.texts(FIRST_CELLS), page.evaluate(said)) == (["n0", "n1"], "1 to 2 of 5 things")
    press(page, "Next")
    press(page, "Next")
    assert (page.texts(FIRST_CELLS), page.evaluate(said)) == (["n4"], "5 to 5 of 5 things")
    assert page.evaluate("document.activeElement.innerText") == "Previous", "Next is used up"
    page.evaluate("made.show(made.rows.slice(0, 3))")
    assert (page.texts(FIRST_CELLS), page.evaluate(said)) == (["n2"], "3 to 3 of 3 things")
    press(page, "Size")
    assert page.texts(FIRST_CELLS) == ["n2", "n1"]
    page.evaluate("made.show([])")
    assert (page.texts(FIRST_CELLS), page.evaluate(said)) == ([], "nothing")
    page.evaluate("made.nothing = 'no thing yet'; made.draw()")
    assert page.evaluate(said) == "no thing yet"


def test_a_table_that_is_drawn_again_keeps_the_focus(page: Browser) -> None:
    """The page draws its tables every few seconds, also while a person moves through them by keys."""
    table(page, ROWS)
    page.evaluate("[...document.querySelectorAll('a')].find((each) => each.innerText === 'd').focus(); made.draw()")
    assert page.evaluate("document.activeElement.innerText") == "d"
    page.evaluate("document.querySelector('thead button').focus(); made.draw()")
    assert page.evaluate("document.activeElement.innerText") == "Name"


def test_every_cell_has_a_role_and_a_name(page: Browser) -> None:
    """As cards, rows stay a table for a screen reader, and each value has the name of its column beside it."""
    table(page, ROWS)
    row = "[...document.querySelectorAll('tbody tr')[1].children]"
    found = page.evaluate(f"{row}.map((cell) => [cell.tagName, cell.getAttribute('role'), cell.dataset.label])")
    assert found == [["TH", "rowheader", "Name"], ["TD", "cell", "Size"], ["TD", "cell", "Note"]]
    assert page.evaluate(f"{row}.map((cell) => cell.innerText)") == ["a", "-", "-"]
    assert page.evaluate("document.querySelector('caption').textContent") == "things"


def test_a_file_has_all_rows_in_their_order(page: Browser) -> None:
    """Quotes are doubled, and no spreadsheet takes a text for a formula; a negative number stays one."""
    table(page, ROWS, "sort: '-size', size: 2")
    page.evaluate(
        "window.files = []; URL.createObjectURL = (blob) => { files.push(blob); return '#file'; };"
        "addEventListener('click', (event) => { if (event.target.download) { files.push(event.target.download); } });"
    )
    page.evaluate(
        "document.addEventListener('click', (event) => event.target.download && event.preventDefault(), true)"
    )
    press(page, "CSV")
    text = page.evaluate("files[0].text()")
    assert text.split("\r\n") == [
        "Name,Size,Note",
        "d,10,'=1+1",
        "b,2,-5",
        'c,-1,"say ""hi"", twice\nor so"',
        "a,,",
        "",
    ]


# Words.


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("own.span(0)", "0 ms"),
        ("own.span(999)", "999 ms"),
        ("own.span(1500)", "1.5 s"),
        ("own.span(60_000)", "1 min"),
        ("own.span(3_725_000)", "1 h 2 min"),
        ("own.span(90_000_000)", "1 d 1 h"),
        ("own.ago(Date.now() - 125_000)", "2 min ago"),
        ("own.ago(Date.now() + 5_000)", "just now"),
        ("own.ranges([3, 1, 2, 7, 9, 10])", "1-3, 7, 9, 10"),
        ("own.ranges([])", ""),
        ("own.several(1, 'group')", "1 group"),
        ("own.several(1234567, 'group')", "1,234,567 groups"),
        ("own.short('worker-0123456789-a', 10)", "worke…89-a"),
        ("own.short('worker', 10)", "worker"),
        ("own.named('')", "(empty name)"),
    ],
)
def test_words(page: Browser, expression: str, text: str) -> None:
    """Durations in two units at most, neighbours together, the ends of long names."""
    assert called(page, "dom", expression) == text
