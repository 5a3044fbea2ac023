"""Draws what `turns` measured: bars for each work, and a curve for each growth.

House rule: pure; the same figures make the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log10

Bars = dict[str, dict[str, float]]
"""Work -> server -> CPU in us. The first server of a work is the one that the others are compared with."""

Curves = dict[str, dict[int, float]]
"""Curve -> size -> CPU in us."""

WIDTH, LEFT, RIGHT = 860, 330, 170
LINE, GAP = 15, 12
PLOT, AXIS = 150, 36
FIRST, OTHER, INK = "#0a7d5a", "#9aa7b4", "#5b6670"
BAR_MAX = WIDTH - LEFT - RIGHT


def svg(bars: Bars, curves: Curves) -> str:
    """The drawing."""
    rows = sum(len(mine) * LINE + GAP for mine in bars.values())
    height = rows + len(curves) * (PLOT + AXIS) + GAP
    body = [*_bars(bars), *_curves(curves, rows + GAP)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="sans-serif" font-size="11" fill="{INK}">\n' + "\n".join(body) + "\n</svg>\n"
    )


def _bars(bars: Bars) -> Iterator[str]:
    """Bars of one work have one scale: the longest is as long as the drawing allows."""
    y = LINE
    for title, mine in bars.items():
        most = max(mine.values(), default=1.0)
        for number, (name, value) in enumerate(mine.items()):
            if not number:
                yield _text(LEFT - 110, y, title, "end")
            width = max(value / most * BAR_MAX, 1)
            yield _text(LEFT - 8, y, name, "end")
            yield (
                f'<rect x="{LEFT}" y="{y - 10}" width="{width:.0f}" height="{LINE - 4}" '
                f'fill="{OTHER if number else FIRST}"/>'
            )
            yield _text(LEFT + width + 5, y, f"{value:,.0f} us" if value >= 10 else f"{value:.1f} us", "start")
            y += LINE
        y += GAP


def _curves(curves: Curves, top: float) -> Iterator[str]:
    """Sizes grow by factors, so their axis is logarithmic; the other one begins at 0."""
    for title, points in curves.items():
        most = max(points.values())
        first, last = log10(min(points)), log10(max(points))
        places = [
            (
                LEFT + (log10(size) - first) / (last - first or 1) * BAR_MAX,
                top + PLOT - value / most * (PLOT - LINE * 2),
                size,
                value,
            )
            for size, value in points.items()
        ]
        yield _text(LEFT - 110, top + PLOT / 2, title, "end")
        yield f'<path d="M{LEFT} {top + PLOT}h{BAR_MAX}" stroke="{OTHER}"/>'
        line = " ".join(f"{x:.0f},{y:.0f}" for x, y, _, _ in places)
        yield f'<polyline points="{line}" fill="none" stroke="{FIRST}" stroke-width="2"/>'
        for x, y, size, value in places:
            yield f'<circle cx="{x:.0f}" cy="{y:.0f}" r="3" fill="{FIRST}"/>'
            yield _text(x, y - 8, f"{value:,.0f} us", "middle")
            yield _text(x, top + PLOT + LINE, f"{size:,}", "middle")
        top += PLOT + AXIS


def _text(x: float, y: float, text: str, anchor: str) -> str:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escaped}</text>'
