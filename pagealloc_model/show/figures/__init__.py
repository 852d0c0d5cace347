"""Plotly figures from tables; nothing here knows how the allocator works.

Every function takes measured and predicted tables (one, or several by label) and returns a
`plotly.graph_objects.Figure`. A value that is not available is drawn as a note with its reason.
"""

from pagealloc_model.show.figures.at_a_glance import at_a_glance
from pagealloc_model.show.figures.error_budget import error_budget
from pagealloc_model.show.figures.fallbacks import fallbacks
from pagealloc_model.show.figures.fleet_hosts import fleet_hosts
from pagealloc_model.show.figures.free_memory import (
    free_pages_by_migratetype,
    free_pages_by_order,
    pageblocks_by_type,
)
from pagealloc_model.show.figures.highatomic import highatomic_blocks
from pagealloc_model.show.figures.how_right import how_right
from pagealloc_model.show.figures.lock_times import lock_times
from pagealloc_model.show.figures.outcomes import outcomes
from pagealloc_model.show.figures.ownership import ownership_over_time
from pagealloc_model.show.figures.pageblock_map import pageblock_map
from pagealloc_model.show.figures.pareto_front import pareto_front
from pagealloc_model.show.figures.pcp import pcp_counts
from pagealloc_model.show.figures.predicted_changes import predicted_changes
from pagealloc_model.show.figures.sensitivity_bars import sensitivity_bars
from pagealloc_model.show.figures.small_multiples import since_start
from pagealloc_model.show.figures.stacked import stacked
from pagealloc_model.show.figures.sweep_lines import sweep_lines
from pagealloc_model.show.figures.talk_figure import talk_figure
from pagealloc_model.show.figures.transactions import transaction_rates, transaction_sizes

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
