"""The report as one HTML page that needs nothing else: findings on top, then plots in SVG.

House rule: text from a log is escaped, and what has no room is left out and said to be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from coordinator.audit.audit import Outcome
from coordinator.audit.checks import CHECKS
from coordinator.audit.history import Lane, Story
from coordinator.audit.report import by_size, size_text, time_text

PAGE_FILE = "report.html"
FINDINGS_MAX = 500
BARS_MAX = 25
GROUPS_MAX = 20
"""Groups that are drawn: those with the most rebalances and restarts."""

_WIDTH = 900
_LEFT = 190
_RIGHT = 20
_PLOT_HEIGHT = 130
_LANE_HEIGHT = 16
_BAR_HEIGHT = 20
_NAME_MAX = 28

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2733; --dim: #6b7785; --line: #d5dbe1; --back: #fff; --seat: #7aa7d6;
  --step: #1f5fa8; --restart: #c2410c; --error: #b91c1c; --warning: #a16207; --notice: #0e7490; }
@media (prefers-color-scheme: dark) { :root { --ink: #dde4ea; --dim: #93a0ad; --line: #36414c; --back: #14191f;
  --seat: #38618d; --step: #7db4f0; --restart: #fb923c; --error: #f87171; --warning: #facc15; --notice: #22d3ee; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--back); margin: 2rem auto;
  max-width: 920px; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .2rem; }
p { margin: .3rem 0; } .dim { color: var(--dim); } .error { color: var(--error); } .warning { color: var(--warning); }
.notice { color: var(--notice); } .scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .87rem; }
th { text-align: left; color: var(--dim); font-weight: 600; }
td, th { padding: .2rem .6rem .2rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.detail { overflow-wrap: anywhere; font-family: ui-monospace, monospace; font-size: .8rem; }
svg { width: 100%; height: auto; font: 11px system-ui, sans-serif; } svg text { fill: var(--ink); }
svg .dim { fill: var(--dim); } .axis { stroke: var(--line); } .seat { fill: var(--seat); }
.step { stroke: var(--step); fill: none; stroke-width: 1.6; } .dot { fill: var(--step); }
.restart { fill: var(--restart); }
.deleted { stroke: var(--error); stroke-dasharray: 3 3; }
"""


_LEGEND = (
    "The line is the generation; a bar is the time a seat was taken, a triangle a static member that came back under a "
    "new member id. Times are UTC."
)


def write_page(out: Path, outcome: Outcome) -> Path:
    """Write the page; returns its path."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / PAGE_FILE
    path.write_text(page(outcome), encoding="utf-8")
    return path


def page(outcome: Outcome) -> str:
    """The whole page."""
    records = sum(outcome.records_by_type.values())
    busy = sorted(outcome.stories, key=lambda each: (-each.rebalances - each.static_restarts.total(), each.group))
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        f"<title>Audit of {escape(outcome.source)}</title><style>{_STYLE}</style></head><body>",
        "<h1>Audit of group metadata</h1>",
        _dim(
            f"{outcome.source}: {len(outcome.sizes)} partitions, {size_text(sum(outcome.sizes.values()))}, "
            f"{records} records, {len(outcome.stories)} groups"
        ),
        *map(_dim, outcome.notes),
        *_findings(outcome),
        *_bytes(outcome),
        "<h2>Generations and seats</h2>",
        _dim(_LEGEND),
    ]
    for story in busy[:GROUPS_MAX]:
        parts += _group(story)
    if len(busy) > GROUPS_MAX:
        parts.append(_dim(f"{len(busy) - GROUPS_MAX} quieter groups are not drawn."))
    return "\n".join([*parts, "</body></html>", ""])


def _findings(outcome: Outcome) -> Iterable[str]:
    yield f"<h2>Findings: {len(outcome.findings) or 'none'}</h2>"
    if not outcome.findings:
        return
    counts = Counter(finding.check for finding in outcome.findings)
    yield "<table><tr><th>check</th><th>severity</th><th>count</th><th>meaning</th></tr>"
    for check, count in counts.most_common():
        severity = CHECKS[check].severity.value
        yield (
            f'<tr><td>{check}</td><td class="{severity}">{severity}</td><td>{count}</td>'
            f"<td>{escape(CHECKS[check].meaning)}</td></tr>"
        )
    yield "</table><details><summary>each of them</summary><div class='scroll'><table>"
    yield "<tr><th>check</th><th>partition</th><th>offset</th><th>group</th><th>generation</th><th>detail</th></tr>"
    for finding in outcome.findings[:FINDINGS_MAX]:
        cells = (finding.check, finding.partition, finding.offset, finding.group, finding.generation)
        row = "".join(f"<td>{'-' if cell is None else escape(str(cell))}</td>" for cell in cells)
        yield f'<tr>{row}<td class="detail">{escape(finding.detail)}</td></tr>'
    yield "</table></div>"
    if len(outcome.findings) > FINDINGS_MAX:
        yield _dim(f"and {len(outcome.findings) - FINDINGS_MAX} more")
    yield "</details>"


def _bytes(outcome: Outcome) -> Iterable[str]:
    largest = by_size(outcome.stories)[:BARS_MAX]
    if not largest:
        return
    yield "<h2>Bytes by group</h2>"
    height = _BAR_HEIGHT * len(largest)
    yield _svg(height, "Bytes by group")
    most = max(story.bytes for story in largest)
    for number, story in enumerate(largest):
        y = number * _BAR_HEIGHT
        width = (_WIDTH - _LEFT - 90) * story.bytes / max(most, 1)
        yield _bar(_LEFT, y, max(width, 1), _BAR_HEIGHT)
        yield _text(_LEFT - 8, y + 14, story.group, "end", "")
        yield _text(_LEFT + width + 6, y + 14, size_text(story.bytes), "start", "dim")
    yield "</svg>"
    if len(outcome.stories) > BARS_MAX:
        yield _dim(f"and {len(outcome.stories) - BARS_MAX} smaller groups")


def _group(story: Story) -> Iterable[str]:
    yield f"<h3>{escape(story.group)}</h3>"
    state = "deleted" if story.deleted else f"generation {story.generation}, {story.member_count} members"
    causes = ", ".join(f"{count} x {cause}" for cause, count in story.causes.most_common())
    yield _dim(
        f"partition {story.partition}, {state}, {story.rebalances} rebalances{f' ({causes})' if causes else ''}, "
        f"{story.static_restarts.total()} static restarts; "
        f"the log covers {time_text(story.first_ms)} to {time_text(story.last_ms)}"
    )
    steps = [step for step in story.steps if step.generation is not None]
    if not steps:
        return
    axis = _Axis(story.first_ms, story.last_ms)
    lanes = sorted(story.lanes.items())
    top = _PLOT_HEIGHT + 22
    height = top + _LANE_HEIGHT * len(lanes) + 8
    yield _svg(height, f"Generations and seats of {story.group}")
    yield from _generations(story, axis)
    for number, (seat, lane) in enumerate(lanes):
        yield from _lane(seat, lane, top + number * _LANE_HEIGHT, axis, story.last_ms)
    yield "</svg>"
    if story.seats_left_out:
        yield _dim(f"Only the first {len(lanes)} seats are drawn.")


class _Axis:
    """From time to place."""

    def __init__(self, first_ms: int, last_ms: int) -> None:
        self.first_ms = first_ms
        self.span_ms = max(last_ms - first_ms, 1)

    def x(self, ts: int) -> float:
        """Where a moment is."""
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (ts - self.first_ms) / self.span_ms


def _generations(story: Story, axis: _Axis) -> Iterable[str]:
    known = [(step.ts, step.generation) for step in story.steps if step.generation is not None]
    low, high = min(each for _, each in known), max(each for _, each in known)
    bottom = _PLOT_HEIGHT

    def y(generation: int) -> float:
        return bottom - 6 - (bottom - 24) * (generation - low) / max(high - low, 1)

    yield f'<line class="axis" x1="{_LEFT}" y1="{bottom}" x2="{_WIDTH - _RIGHT}" y2="{bottom}"/>'
    for generation in sorted({low, high}):
        yield _text(_LEFT - 8, y(generation) + 4, f"generation {generation}", "end", "dim")
    yield _text(_LEFT, bottom + 14, time_text(story.first_ms), "start", "dim")
    yield _text(_WIDTH - _RIGHT, bottom + 14, time_text(story.last_ms), "end", "dim")
    yield f'<path class="step" d="{_path(known, axis, y)}"/>'
    for step in story.steps:
        x = axis.x(step.ts)
        if step.generation is None:
            yield f'<line class="deleted" x1="{x:.1f}" y1="10" x2="{x:.1f}" y2="{bottom}"><title>deleted</title></line>'
        elif step.kind in {"generation", "empty"}:
            title = f"generation {step.generation}, {step.members} members: {step.cause}, {time_text(step.ts)}"
            place = f'cx="{x:.1f}" cy="{y(step.generation):.1f}" r="2.6"'
            yield f'<circle class="dot" {place}><title>{escape(title)}</title></circle>'


def _path(known: Sequence[tuple[int, int]], axis: _Axis, y: object) -> str:
    assert callable(y)
    parts = [f"M{axis.x(known[0][0]):.1f} {y(known[0][1]):.1f}"]
    for ts, generation in known[1:]:
        parts.append(f"H{axis.x(ts):.1f}V{y(generation):.1f}")
    return "".join([*parts, f"H{_WIDTH - _RIGHT}"])


def _lane(seat: str, lane: Lane, y: float, axis: _Axis, last_ms: int) -> Iterable[str]:
    yield _text(_LEFT - 8, y + 11, seat, "end", "")
    for start, end in lane.spans:
        x = axis.x(start)
        width = max(axis.x(last_ms if end is None else end) - x, 1.5)
        yield _bar(x, y, width, _LANE_HEIGHT)
    for ts in lane.restarts:
        x = axis.x(ts)
        yield (
            f'<path class="restart" d="M{x:.1f} {y + 2}l4 11h-8z"><title>{escape(seat)} restarted, '
            f"{time_text(ts)}</title></path>"
        )


def _dim(text: str) -> str:
    return f'<p class="dim">{escape(text)}</p>'


def _svg(height: int, label: str) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(label)}">'


def _bar(x: float, y: float, width: float, height: int) -> str:
    return f'<rect class="seat" x="{x:.1f}" y="{y + 3:.1f}" width="{width:.1f}" height="{height - 6}" rx="2"/>'


def _text(x: float, y: float, text: str, anchor: str, style: str) -> str:
    shown = text if len(text) <= _NAME_MAX else f"{text[: _NAME_MAX - 1]}…"
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{style}">{escape(shown)}'
        f"<title>{escape(text)}</title></text>"
    )
