"""Charts as text: bars with their values, histograms and time series."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pagealloc_model.base.text import WIDTH, number

HEIGHT = 9
"""Lines of a time series."""


@dataclass(frozen=True, kw_only=True)
class Glyphs:
    """The characters of bars and points for each series, of points that meet, and of axes."""

    fills: str
    marks: str
    both: str
    vertical: str
    horizontal: str
    corner: str


ASCII = Glyphs(fills="#=:-", marks="*o+x", both="@", vertical="|", horizontal="-", corner="+")
UTF8 = Glyphs(
    fills="\u2588\u2592\u2591\u2591",
    marks="\u25cf\u25cb\u25b2\u25b3",
    both="\u25c9",
    vertical="\u2502",
    horizontal="\u2500",
    corner="\u2514",
)


def bar_chart(
    title: str,
    bars: Mapping[str, Sequence[float]],
    series: Sequence[str],
    *,
    log: bool = False,
    glyphs: Glyphs = ASCII,
    width: int = WIDTH,
) -> str:
    """One group of bars per label, one bar in it per series; NaN is shown as NA.

    With `log`, lengths go with log(1 + value), for values that span decades.
    """

    def length_of(value: float) -> float:
        return math.log1p(max(value, 0.0)) if log else max(value, 0.0)

    numbers = {label: [number(value) for value in values] for label, values in bars.items()}
    value_size = max((len(text) for texts in numbers.values() for text in texts), default=0)
    label_size = max((len(label) for label in bars), default=0)
    name_size = max(len(name) for name in series)
    room = width - label_size - name_size - value_size - 5
    known = [value for values in bars.values() for value in values if not math.isnan(value)]
    largest = length_of(max(known, default=0.0))
    lines = textwrap.wrap(title + (" (bars go with log(1 + value))" if log else ""), width)
    for label, values in bars.items():
        for index, value in enumerate(values):
            share = 0.0 if math.isnan(value) or not largest else length_of(value) / largest
            length = max(round(share * room), int(value > 0))
            words = label if index == 0 else ""
            bar = glyphs.fills[index % len(glyphs.fills)] * length
            text = numbers[label][index].rjust(value_size)
            head = f"{words:<{label_size}} {series[index]:<{name_size}} {glyphs.vertical}"
            lines.append(f"{head}{bar:<{room}} {text}".rstrip())
    return "\n".join(lines)


def histogram(
    title: str,
    counts: Mapping[int, Sequence[float]],
    series: Sequence[str],
    *,
    glyphs: Glyphs = ASCII,
    width: int = WIDTH,
) -> str:
    """Counts by the lower end of a bin, a power of two n that holds sizes from n to 2n - 1."""
    bars = {
        str(low) if low == 1 else f"{low}-{2 * low - 1}": values
        for low, values in sorted(counts.items())
    }
    return bar_chart(title, bars, series, log=True, glyphs=glyphs, width=width)


def time_series(
    title: str,
    seconds: np.ndarray,
    series: Mapping[str, np.ndarray],
    *,
    glyphs: Glyphs = ASCII,
    width: int = WIDTH,
) -> str:
    """Values over seconds, which ascend, one mark per column and series; NaN leaves a gap."""
    values = np.stack(list(series.values())).astype(float)
    known = values[~np.isnan(values)]
    # from 0, unless all values lie within a tenth of the highest
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    if not (low > 0.9 * high and high > low):
        low, high = min(low, 0.0), high or 1.0
    labels = [number(high - (high - low) * row / (HEIGHT - 1)) for row in range(HEIGHT)]
    axis_size = max(map(len, labels))
    columns = width - axis_size - 2
    canvas = [[" "] * columns for _ in range(HEIGHT)]
    span = float(seconds[-1] - seconds[0]) or 1.0
    column_of = np.minimum((seconds - seconds[0]) / span * columns, columns - 1).astype(int)
    for index, line in enumerate(values):
        for column in range(columns):
            inside = line[(column_of == column) & ~np.isnan(line)]
            if len(inside):
                share = (float(inside.mean()) - low) / ((high - low) or 1.0)
                row = HEIGHT - 1 - round(share * (HEIGHT - 1))
                is_taken = canvas[row][column] != " "
                canvas[row][column] = glyphs.both if is_taken else glyphs.marks[index]
    keys = [f"{glyphs.marks[index]} {name}" for index, name in enumerate(series)]
    if len(series) > 1:
        keys.append(f"{glyphs.both} both")
    lines = [*textwrap.wrap(title, width), "  ".join(keys)]
    for row, label in enumerate(labels):
        shown = label if row in (0, HEIGHT // 2, HEIGHT - 1) else ""
        lines.append(f"{shown:>{axis_size}} {glyphs.vertical}{''.join(canvas[row])}".rstrip())
    lines.append(f"{'':>{axis_size}} {glyphs.corner}{glyphs.horizontal * columns}")
    first, last = f"{seconds[0]:.1f}", f"{seconds[-1]:.1f} s"
    lines.append(f"{'':>{axis_size}}  {first}{last:>{columns - len(first)}}")
    return "\n".join(lines)
