"""Plotly figures from tables; nothing here knows how the allocator works.

Every function takes measured and predicted tables (one, or several by label) and returns a
`plotly.graph_objects.Figure`. A value that is not available is drawn as a note with its reason.
"""

from pagealloc_model.show.figures.faceted import since_start as since_start
from pagealloc_model.show.figures.faceted import stacked as stacked
from pagealloc_model.show.figures.pageblock_map import pageblock_map as pageblock_map
from pagealloc_model.show.figures.points import error_budget as error_budget
from pagealloc_model.show.figures.points import fleet_hosts as fleet_hosts
from pagealloc_model.show.figures.points import how_right as how_right
from pagealloc_model.show.figures.points import pareto_front as pareto_front
from pagealloc_model.show.figures.points import predicted_changes as predicted_changes
from pagealloc_model.show.figures.points import sensitivity_bars as sensitivity_bars
from pagealloc_model.show.figures.points import sweep_lines as sweep_lines
from pagealloc_model.show.figures.points import talk_figure as talk_figure
from pagealloc_model.show.figures.tables_over_time import at_a_glance as at_a_glance
from pagealloc_model.show.figures.tables_over_time import fallbacks as fallbacks
from pagealloc_model.show.figures.tables_over_time import folios as folios
from pagealloc_model.show.figures.tables_over_time import (
    free_pages_by_migratetype as free_pages_by_migratetype,
)
from pagealloc_model.show.figures.tables_over_time import free_pages_by_order as free_pages_by_order
from pagealloc_model.show.figures.tables_over_time import highatomic_blocks as highatomic_blocks
from pagealloc_model.show.figures.tables_over_time import lock_times as lock_times
from pagealloc_model.show.figures.tables_over_time import outcomes as outcomes
from pagealloc_model.show.figures.tables_over_time import ownership_over_time as ownership_over_time
from pagealloc_model.show.figures.tables_over_time import pageblocks_by_type as pageblocks_by_type
from pagealloc_model.show.figures.tables_over_time import pcp_counts as pcp_counts
from pagealloc_model.show.figures.tables_over_time import transaction_rates as transaction_rates
from pagealloc_model.show.figures.tables_over_time import transaction_sizes as transaction_sizes
