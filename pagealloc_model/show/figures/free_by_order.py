"""Free memory of each zone by order and migratetype, with the line of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from pagealloc_model.show.figures.faceted import MIGRATETYPE_COLOURS

if TYPE_CHECKING:
    from pagealloc_model.numbers.explanation import Explanation

_PANEL, _REST = 170, 130
"""Height of a zone's panel and of what is around them, pixels."""
_MIXED = "#6E6E6E"


def free_by_order(explanation: Explanation) -> go.Figure:
    """A panel for each zone: KiB in free blocks of each order, by type; the request's order.

    Blocks right of the line are large enough. Hatched ones are of types that the request may not
    take. Where a report has the letters of the types without a count of each, a bar has their
    names.
    """
    state, answer = explanation.state, explanation.answer
    blocks = explanation.free_blocks
    panels = [each.zone for each in answer.zones]
    titles = [explanation.zone_title(each) for each in answer.zones]
    figure = make_subplots(
        rows=len(panels), cols=1, shared_xaxes=True, subplot_titles=titles, vertical_spacing=0.08
    )
    shown: set[str] = set()
    for place, zone in enumerate(panels, 1):
        own = blocks[(blocks["node"] == zone.node) & (blocks["zone"] == zone.name)]
        for (name, may_take), rows in own.groupby(["migratetype", "may_take"], sort=False):
            figure.add_bar(
                x=rows["order"],
                y=rows["pages"] * state.page_kb,
                name=name,
                legendgroup=name,
                showlegend=name not in shown,
                marker_color=MIGRATETYPE_COLOURS.get(name, _MIXED),
                marker_pattern_shape="" if may_take else "/",
                hovertext=[f"{count} blocks of {name}" for count in rows["blocks"]],
                row=place,
                col=1,
            )
            shown.add(name)
        figure.add_vline(
            x=explanation.request.order - 0.5, line_dash="dash", line_color="#B00020", row=place
        )
        figure.update_yaxes(title_text="KiB", row=place, col=1)
    orders = max((len(zone.buddies) for zone in panels), default=1)
    figure.update_xaxes(range=[-0.6, orders - 0.4], dtick=1)
    figure.update_xaxes(title_text="order of the free block", row=len(panels), col=1)
    figure.update_layout(
        barmode="stack",
        template="plotly_white",
        height=_REST + _PANEL * len(panels),
        title_text=f"Free memory by order and type; order {explanation.request.order} was asked "
        "for (dashed)",
    )
    return figure
