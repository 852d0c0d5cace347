"""The figure of free memory by order and type."""

from __future__ import annotations

from pagealloc_model.numbers.explanation import explain
from pagealloc_model.recording.proc.mem_info import parse_mem_info
from pagealloc_model.show.figures.free_by_order import free_by_order
from tests.memory_reports import MadeZone, report


def test_a_panel_for_each_zone_with_the_requests_line() -> None:
    zones = [
        MadeZone(name="DMA32", blocks={"Movable": (10, 5), "CMA": (0, 0, 0, 0, 3)}),
        MadeZone(name="Normal", blocks={"Unmovable": (3,)}),
    ]
    (state,) = parse_mem_info(report(zones, page_kb=16, orders=12).splitlines(), "log")
    figure = free_by_order(explain(state))
    bars = {(bar.name, bar.xaxis): (list(bar.x), list(bar.y)) for bar in figure.data}
    assert bars["Movable", "x2"] == ([0, 1], [160, 160])
    assert bars["CMA", "x2"] == ([4], [768])
    assert bars["Unmovable", "x"] == ([0], [48])
    hatched = {bar.name for bar in figure.data if bar.marker.pattern.shape == "/"}
    assert hatched == {"CMA"}
    assert [line.x0 for line in figure.layout.shapes] == [3.5, 3.5]
    titles = [note.text for note in figure.layout.annotations]
    assert titles[:2] == ["Normal", "DMA32"]
