"""Curves as lines of text: shares from 0 to 1 over a few named positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

ROWS: Final = 14
MARKS: Final = "*o+x#@%&"
"""One a curve; where two meet, the later one is drawn. More curves than marks begin anew."""


def chart_lines(title: str, curves: Mapping[str, Sequence[float]], positions: Sequence[str]) -> list[str]:
    """The tallest value is in the top row; each curve has one value a position."""
    top = max((value for curve in curves.values() for value in curve), default=0.0) or 1.0
    width = max(map(len, positions)) + 2
    rows = [[" "] * (width * len(positions)) for _ in range(ROWS)]
    marks = {name: MARKS[index % len(MARKS)] for index, name in enumerate(curves)}
    for name, curve in curves.items():
        for index, value in enumerate(curve):
            row = ROWS - 1 - round(value / top * (ROWS - 1))
            rows[row][index * width + width - 1] = marks[name]
    lines = [f"{title}: " + ", ".join(f"{mark} {name}" for name, mark in marks.items())]
    for index, cells in enumerate(rows):
        label = f"{top * (ROWS - 1 - index) / (ROWS - 1):6.3f}" if index % 3 == 1 or index == 0 else " " * 6
        lines.append(f"{label} |{''.join(cells)}".rstrip())
    lines.append(" " * 7 + "+" + "-" * (width * len(positions)))
    lines.append(" " * 8 + "".join(name.rjust(width) for name in positions))
    return lines
