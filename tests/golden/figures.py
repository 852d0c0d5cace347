"""Part `figures`: what the public functions draw, and the tables that notebooks show as HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

import pandas as pd
import plotly.graph_objects as go

import pagealloc_model as pm
from pagealloc_model.show import figures
from tests.golden.digests import hash_of_value, normal_text
from tests.golden.replays import opened
from tests.small_recordings import LITERAL

RECORDINGS = ("highatomic_stock", "xfree")
COMPARED_POLICY = {"highatomic_gate_order": 3, "pcp_batch": 31}
OWNED_POLICY = {"pageblock_ownership": "pcp_buddy"}
SWEPT = {"pcp_batch": [15, 63, 127], "costly_order": [1, 3]}
METRICS = ["zone_lock_acquisitions", "zone_lock_hold_ns", "longest_drain_pages", "pcp_pages"]


class Results:
    """What is drawn of one recording.

    Attributes:
        patch: a replay under another policy.
        owned: a replay under pageblock ownership.
    """

    def __init__(self, name: str) -> None:
        self.recording = opened(name)
        self.validation = pm.validate(self.recording, assumptions=LITERAL)
        self.predicted = self.validation.replay  # the replay of it
        self.patch = pm.replay(self.recording, pm.Policy(**COMPARED_POLICY), assumptions=LITERAL)
        self.owned = pm.replay(self.recording, pm.Policy(**OWNED_POLICY), assumptions=LITERAL)
        options = {"assumptions": LITERAL, "cache": False}
        self.swept = pm.sweep([self.recording], vary=SWEPT, **options)

    def over_time(self, draw: Callable[..., go.Figure], table: str) -> go.Figure:
        """A figure of one table: measured, predicted and under the other policy."""
        sides = {"base": self.predicted, "patch": self.patch}
        predicted = {label: getattr(replay, table) for label, replay in sides.items()}
        return draw(getattr(self.validation.measured, table), predicted)

    def since_start(self, label: str, replay: pm.Replay) -> dict[str, pd.DataFrame]:
        """Pageblocks over time from the first sample on."""
        table = replay.pageblocks
        return {label: figures.since_start(table, int(table["time_ns"].min()))}


@lru_cache(maxsize=1)
def results(name: str) -> Results:
    """What is drawn of a recording, made once for all its figures."""
    return Results(name)


DRAWN: dict[str, Callable[[Results], go.Figure]] = {
    "at_a_glance": lambda made: figures.at_a_glance(made.validation.measured, made.predicted),
    "how_right": lambda made: figures.how_right(
        made.validation.errors, made.validation.snapshots, "recording"
    ),
    "free_pages_by_order": lambda made: made.over_time(figures.free_pages_by_order, "free_pages"),
    "free_pages_by_migratetype": lambda made: made.over_time(
        figures.free_pages_by_migratetype, "free_pages"
    ),
    "pageblocks_by_type": lambda made: made.over_time(figures.pageblocks_by_type, "pageblocks"),
    "pcp_counts": lambda made: made.over_time(figures.pcp_counts, "pcp"),
    "transaction_rates": lambda made: made.over_time(figures.transaction_rates, "lock"),
    "transaction_sizes": lambda made: made.over_time(figures.transaction_sizes, "transactions"),
    "fallbacks": lambda made: made.over_time(figures.fallbacks, "fallbacks"),
    "outcomes": lambda made: figures.outcomes(
        made.validation.measured.outcomes, made.predicted.outcomes, 9
    ),
    "highatomic_blocks": lambda made: figures.highatomic_blocks(
        None, made.since_start("base", made.predicted) | made.since_start("patch", made.patch)
    ),
    "lock_times": lambda made: figures.lock_times(
        {
            "base": made.predicted.lock_times().acquisitions,
            "patch": made.patch.lock_times().acquisitions,
        }
    ),
    "stacked": lambda made: figures.stacked(
        [
            figures.pageblocks_by_type(None, made.predicted.pageblocks),
            figures.pcp_counts(None, made.predicted.pcp),
        ]
    ),
    "error_budget": lambda made: _budget_figure(made),
    "sweep": lambda made: made.swept.figure("pcp_batch", METRICS),
    "sweep sensitivity": lambda made: made.swept.sensitivity("zone_lock_hold_ns").figure(),
    "sweep pareto": lambda made: made.swept.pareto().figure(),
}
SHOWN: dict[str, Callable[[Results], object]] = {
    "recording": lambda made: made.recording,
    "replay": lambda made: made.patch,
    "ownership": lambda made: made.owned,
    "validation": lambda made: made.validation,
    "comparison": lambda made: pm.compare(made.predicted, made.patch).validated(),
    "swept": lambda made: made.swept,
}
"""What a notebook shows as HTML."""


def _budget_figure(made: Results) -> go.Figure:
    budget = made.validation.budget()
    return figures.error_budget(budget.errors, budget.recording)


def cases(full: bool) -> Iterator[str]:
    """Names of cases: recording, figure; or recording, "html", result."""
    for name in RECORDINGS:
        yield from (f"{name} {figure}" for figure in DRAWN)
        yield from (f"{name} html {result}" for result in SHOWN)


BY_RECORDING = True  # a recording is validated once for all its cases


def run(case: str) -> dict[str, str]:
    """A hash for the layout and each trace of a figure, or the HTML as a text."""
    name, figure = case.split(" ", 1)
    made = results(name)
    if figure.startswith("html "):
        shown = SHOWN[figure.removeprefix("html ")](made)
        return {"html": normal_text(shown._repr_html_().replace("><", ">\n<"))}
    return hashes(DRAWN[figure](made))


def hashes(figure: go.Figure) -> dict[str, str]:
    """A hash for the layout and for each trace, by its place and name."""
    drawn = figure.to_plotly_json()
    found = {"layout": hash_of_value(drawn["layout"])}
    for place, trace in enumerate(drawn["data"]):
        label = " ".join(str(trace[key]) for key in ("meta", "name") if trace.get(key))
        found[f"trace {place} {label}".strip()] = hash_of_value(trace)
    return found
