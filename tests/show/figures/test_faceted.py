from collections.abc import Callable
from itertools import pairwise

import pandas as pd
import plotly.graph_objects as go
import pytest

from pagealloc_model.show import figures
from pagealloc_model.show.figures import faceted as palette
from tests import synthetic_tables as tables
from tests.show.grey import luminance

Draw = Callable[..., go.Figure]
Make = Callable[..., pd.DataFrame]

OVER_TIME = [
    (figures.free_pages_by_order, tables.free_pages, 11),
    (figures.free_pages_by_migratetype, tables.free_pages, 4),
    (figures.pageblocks_by_type, tables.pageblocks, 3),
    (figures.pcp_counts, tables.pcp, 4),
    (figures.transaction_rates, tables.lock, 2),
]


def traces_of(figure: go.Figure) -> dict[str, go.Scatter]:
    return {trace.meta: trace for trace in figure.data}


def notes_of(figure: go.Figure) -> list[str]:
    return [note.text.replace("<br>", " ") for note in figure.layout.annotations]


@pytest.mark.parametrize(("draw", "make", "panels"), OVER_TIME)
def test_one_panel_per_key_with_measured_and_predicted(draw: Draw, make: Make, panels: int) -> None:
    figure = draw(make(), make())
    drawn = [key for key in traces_of(figure) if not key.startswith("legend/")]
    assert len(drawn) == 2 * panels
    assert [trace.name for trace in figure.data if trace.showlegend] == ["measured", "predicted"]


def test_values_are_sums_over_zones_at_each_instant() -> None:
    figure = figures.free_pages_by_order(tables.free_pages(), tables.free_pages())
    trace = traces_of(figure)["3/measured:0"]
    expected = tables.free_pages().query("order == 3").groupby("time_ns")["pages"].sum()
    assert list(trace.x) == [0, 1, 2, 3, 4]
    assert list(trace.y) == list(expected)


def test_one_zone_can_be_picked() -> None:
    both = figures.free_pages_by_order(tables.free_pages(), None)
    one = figures.free_pages_by_order(tables.free_pages(), None, "Normal")
    key = "0/measured:0"
    assert [2 * value for value in traces_of(one)[key].y] == list(traces_of(both)[key].y)
    assert "zone Normal" in one.layout.title.text


def test_na_is_a_gap_never_zero() -> None:
    table = tables.pcp()
    table["count"] = table["count"].astype("Int64")
    table.loc[table["time_ns"] == tables.TIMES_NS[2], "count"] = pd.NA
    trace = traces_of(figures.pcp_counts(table, None))["Normal, CPU 0/measured:0"]
    assert list(trace.x) == [0, 1, 3, 4]


def test_a_table_without_rows_leaves_its_reason() -> None:
    empty = tables.pcp().iloc[:0]
    empty.attrs["reason"] = "the recording has no snapshots"
    figure = figures.pcp_counts(empty, tables.pcp())
    assert "measured: the recording has no snapshots" in notes_of(figure)
    silent = figures.pcp_counts(tables.pcp().iloc[:0], tables.pcp())
    assert any("not available" in note for note in notes_of(silent))


@pytest.mark.parametrize(("draw", "make", "panels"), OVER_TIME)
def test_nothing_at_all_still_draws_a_note(draw: Draw, make: Make, panels: int) -> None:
    empty = make().iloc[:0]
    assert any("not available" in note for note in notes_of(draw(empty, empty)))
    assert draw(None, None).layout.title.text


@pytest.mark.parametrize(
    ("draw", "make"),
    [
        *((draw, make) for draw, make, _ in OVER_TIME),
        (figures.transaction_sizes, tables.transactions),
        (figures.fallbacks, tables.fallbacks),
        (figures.highatomic_blocks, tables.pageblocks),
        (lambda measured, predicted: figures.outcomes(measured, predicted, 9), tables.outcomes),
    ],
)
def test_what_shares_a_panel_differs_in_grey(draw: Draw, make: Make) -> None:
    figure = draw({"one": make(), "other": make()}, {"base": make(), "patch": make()})
    panels: dict[str, list[tuple[object, ...]]] = {}
    for trace in figure.to_plotly_json()["data"]:
        marker, line = trace.get("marker", {}), trace.get("line", {})
        look = (line.get("dash"), marker.get("symbol"), marker.get("pattern", {}).get("shape"))
        if not trace["meta"].startswith("legend/"):
            panels.setdefault(trace["xaxis"], []).append((trace["type"], *look))
    assert all(len(set(looks)) == len(looks) == 4 for looks in panels.values())


def test_orders_rank_from_dark_to_light_in_grey() -> None:
    steps = [luminance(colour) for colour in palette.ORDER_COLOURS]
    assert steps == sorted(set(steps))


def test_stacked_figures_keep_their_places_and_share_a_legend() -> None:
    parts = [
        figures.pageblocks_by_type(tables.pageblocks(), tables.pageblocks()),
        figures.pcp_counts(tables.pcp().iloc[:0], tables.pcp()),
        figures.transaction_sizes(tables.transactions(), tables.transactions()),
    ]
    whole = figures.stacked(parts)
    assert whole.layout.height < 0.9 * sum(part.layout.height for part in parts)
    ends = sorted(axis.domain for axis in whole.select_yaxes())
    assert all(one[1] < other[0] for one, other in pairwise(dict.fromkeys(ends)))
    assert len(whole.data) == sum(len(part.data) for part in parts)
    entries = [(trace.name, trace.type) for trace in whole.data if trace.showlegend]
    assert entries == [("measured", "scatter"), ("predicted", "scatter")]
    shown = " ".join(notes_of(whole))
    for part in parts:
        assert part.layout.title.text in shown
    assert "not available" in shown
    panels = [axis for name, axis in whole.layout.to_plotly_json().items() if "yaxis" in name]
    assert len({tuple(axis["domain"]) for axis in panels}) == 4
    used = {trace.yaxis for trace in whole.data}
    assert len(used) == len(panels)


def test_plotly_finds_nothing_to_object_to() -> None:
    parts = [draw(make(), make()) for draw, make, _ in OVER_TIME]
    for figure in (*parts, figures.stacked(parts)):
        go.Figure(figure.to_dict())
        with pytest.raises(ValueError, match="titel"):
            figure.update_layout(titel="")
