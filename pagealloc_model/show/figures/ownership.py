"""Traffic at zone->lock and fragmentation side by side, over time (S12.7)."""

from __future__ import annotations

from pagealloc_model.show.figures.drawing import Drawing, FigureFunction
from pagealloc_model.show.figures.lanes import Tables, lanes
from pagealloc_model.show.figures.palette import PREDICTION_COLOURS
from pagealloc_model.show.figures.small_multiples import keys_seen, small_multiples


@FigureFunction
def ownership_over_time(predicted: Tables) -> Drawing:
    """One panel per quantity: what zone->lock took so far, and how broken up free memory is.

    Args:
        predicted: time_ns, quantity, value; or such tables by label.
    """
    drawn = lanes(None, predicted)
    keys = sorted(keys_seen(drawn, "quantity"), reverse=True)
    return small_multiples(
        drawn,
        keys=keys,
        key_column="quantity",
        value="value",
        panel_title=str,
        colour=lambda _: PREDICTION_COLOURS[0],
        title="zone->lock, and the fragmentation it is paid with",
        y_title="",
        columns=2,
    ).drawing()
