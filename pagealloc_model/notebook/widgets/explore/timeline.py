"""A strip over the whole recording on which to pick the part to replay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import ipywidgets
import numpy as np

from pagealloc_model.notebook.widgets.picture import Picture
from pagealloc_model.show.figures.drawing import Drawing
from pagealloc_model.show.figures.palette import GRID, INK, MODEBAR

if TYPE_CHECKING:
    from pagealloc_model.notebook.widgets.explore.question import Window
    from pagealloc_model.recording.trace.columns import Trace

BINS = 200
HEIGHT = 72
FILL = "rgba(128,128,128,0.5)"
"""Seen on white and on a dark ground."""
STEPS = 1000
"""The slider has about as many positions."""


class Timeline(ipywidgets.VBox):
    """Events per second over the recording; a brush or the slider below picks a part of it.

    Args:
        trace: the recording's events.
        start_ns: of the first event.
        seconds: length of the recording.
        window: to begin with, None for all.
    """

    def __init__(self, trace: Trace, start_ns: int, seconds: float, window: Window | None) -> None:
        self._listeners: list[Callable[[], None]] = []
        self._seconds = _upwards(seconds)
        self.slider = ipywidgets.FloatRangeSlider(
            value=window or (0.0, self._seconds),
            min=0.0,
            max=self._seconds,
            step=_step(seconds),
            readout_format=".2f" if _step(seconds) >= 0.01 else ".3f",
            continuous_update=False,
            description="drag above, or window (s)",
            tooltip="the part of the recording that is drawn; replays still begin at its start",
            style={"description_width": "170px"},
            layout=ipywidgets.Layout(width="95%", max_width="900px"),
        )
        self.strip = Picture(_strip(trace, start_ns, seconds))
        self.strip.observe(self._brushed, "brushed")
        self.slider.observe(lambda _: self._tell(), "value")
        super().__init__([self.strip, self.slider])

    @property
    def window(self) -> Window | None:
        """The part picked, None for the whole recording."""
        begin, end = self.slider.value
        return None if (begin, end) == (0.0, self._seconds) else (float(begin), float(end))

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener()` whenever another part is picked."""
        self._listeners.append(listener)

    def pick(self, window: Window | None) -> None:
        """A part of the recording, None for all of it."""
        self.slider.value = window or (0.0, self._seconds)

    def pick_all(self) -> None:
        """The whole recording again."""
        self.pick(None)

    def _brushed(self, change: Mapping[str, Any]) -> None:
        begin, end = sorted(np.clip(change["new"], 0.0, self._seconds))
        if end - begin >= self.slider.step:
            self.slider.value = (float(begin), float(end))

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()


def _strip(trace: Trace, start_ns: int, seconds: float) -> Drawing:
    counts, edges = np.histogram(trace.time_ns, BINS, (start_ns, start_ns + seconds * 1e9))
    rates = counts / (edges[1] - edges[0]) * 1e9
    middles = ((edges[:-1] + edges[1:]) / 2 - start_ns) / 1e9
    line = {
        "type": "scatter",
        "mode": "lines+markers",
        "x": middles,
        "y": rates,
        "line": {"color": INK, "width": 1},
        "marker": {"size": 1, "color": INK},
        "fill": "tozeroy",
        "fillcolor": FILL,
        "name": "page-allocator events",
        "meta": "timeline",
    }
    axis = {"gridcolor": GRID, "linecolor": INK, "zeroline": False}
    layout = {
        "height": HEIGHT,
        "margin": {"l": 70, "r": 20, "t": 4, "b": 20},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "modebar": MODEBAR,
        "dragmode": "select",
        "selectdirection": "h",
        "xaxis": axis | {"ticksuffix": " s"},
        "yaxis": axis
        | {
            "title": {"text": "events/s", "font": {"size": 9}},
            "rangemode": "tozero",
            "fixedrange": True,
            "nticks": 3,
        },
        "font": {"family": "DejaVu Sans, Arial, sans-serif", "size": 11, "color": INK},
    }
    return Drawing(traces=[line], layout=layout)


def _step(seconds: float) -> float:
    """1, 2 or 5 times a power of ten seconds."""
    wanted = seconds / STEPS
    power = 10.0 ** np.floor(np.log10(wanted))
    return float(next(step * power for step in (1, 2, 5, 10) if step * power >= wanted))


def _upwards(seconds: float) -> float:
    """The recording's length as a whole number of the slider's steps."""
    step = _step(seconds)
    return float(np.ceil(seconds / step) * step)
