"""Plotly figures from tables; nothing here knows how the allocator works.

Every function takes measured and predicted tables (one, or several by label) and returns a
`plotly.graph_objects.Figure`. A value that is not available is drawn as a note with its reason.
"""

from pagealloc_model.show.figures.faceted import since_start, stacked
from pagealloc_model.show.figures.many_points import (
    fleet_hosts,
    pareto_front,
    sensitivity_bars,
    sweep_lines,
)
from pagealloc_model.show.figures.pageblock_map import pageblock_map
from pagealloc_model.show.figures.predictions_judged import (
    error_budget,
    how_right,
    predicted_changes,
    talk_figure,
)
from pagealloc_model.show.figures.tables_over_time import (
    at_a_glance,
    fallbacks,
    free_pages_by_migratetype,
    free_pages_by_order,
    highatomic_blocks,
    lock_times,
    outcomes,
    ownership_over_time,
    pageblocks_by_type,
    pcp_counts,
    transaction_rates,
    transaction_sizes,
)

__all__ = [
    "at_a_glance",
    "error_budget",
    "fallbacks",
    "fleet_hosts",
    "free_pages_by_migratetype",
    "free_pages_by_order",
    "highatomic_blocks",
    "how_right",
    "lock_times",
    "outcomes",
    "ownership_over_time",
    "pageblock_map",
    "pageblocks_by_type",
    "pareto_front",
    "pcp_counts",
    "predicted_changes",
    "sensitivity_bars",
    "since_start",
    "stacked",
    "sweep_lines",
    "talk_figure",
    "transaction_rates",
    "transaction_sizes",
]
