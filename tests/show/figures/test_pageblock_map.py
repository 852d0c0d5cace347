"""A map of pageblocks: types told apart in grey, marks as outlines."""

from __future__ import annotations

import numpy as np

from pagealloc_model.show import figures
from pagealloc_model.show.figures.faceted import MIGRATETYPES
from pagealloc_model.show.figures.pageblock_map import (
    AREAS,
    LEVELS,
    LINES,
    MARKS,
    outline,
    shade,
)
from tests.notebook.test_explore import map_of, middles
from tests.show.grey import READABLE, contrast, luminance


def test_a_map_tells_types_apart_in_grey() -> None:
    types = list(MIGRATETYPES)
    table = map_of(512 * np.arange(len(types)), types)
    figure = figures.pageblock_map({"a": table, "b": table}, ("a", "b"))
    marks = [trace for trace in figure.data if trace.meta.startswith("marks/a/")]
    by_name = {name: [mark for mark in marks if mark.name == name] for name in MARKS}
    for name, (symbol, _) in MARKS.items():
        assert middles(by_name[name][-1], symbol) == [2.0 * types.index(name)]
        for level in range(LEVELS):
            ground = luminance(shade(name, level))
            inks = [luminance(mark.fillcolor) for mark in by_name[name]]
            assert max(contrast(ground, ink) for ink in inks) > READABLE, (name, level)
    assert {trace.name for trace in marks} == set(MARKS) == set(types) - {"Movable"}
    assert len({tuple(outline(symbol).ravel()) for symbol, _ in MARKS.values()}) == len(MARKS)


def test_marks_of_a_kind_are_one_outline() -> None:
    """A page draws one path for each trace without points and lines."""
    for symbol in (*AREAS, *LINES):
        points = outline(symbol)
        assert np.nanmax(np.abs(points)) <= 1.2
        assert np.isnan(points[-1]).all()
        assert np.isnan(points).any(axis=1).sum() == len(LINES.get(symbol, ("",)))
    assert np.nanmin(outline("square", 1)) == -1.4
