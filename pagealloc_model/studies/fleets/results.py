"""The result of a fleet: one row a host, and what sets the sides apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from pagealloc_model.base.carried_out import CarriedOut
from pagealloc_model.base.errors import UsageError
from pagealloc_model.policy.policy import Policy
from pagealloc_model.studies.fleets.statistics import compared_sides
from pagealloc_model.studies.fleets.synthetic_hosts import NOT_MODELLED

if TYPE_CHECKING:
    import plotly.graph_objects as go

DEFAULT_METRICS = (
    "highatomic_blocks_end",
    "highatomic_blocks_most",
    "free_pages",
    "free_in_whole_blocks",
    "free_in_whole_blocks_not_highatomic",
    "unusable_index_pageblock",
    "reclaimed_pages",
    "kswapd_wakes",
    "zone_lock_acquisitions",
    "requests_failed",
)
"""Compared where none are asked for, as far as hosts have them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FleetResult:
    """What the hosts of two sides did.

    Attributes:
        hosts: side, host, metrics, provenance and error, one row a host.
        policies: by side.
        synthetic: hosts were made up.
    """

    _repr_html_ = CarriedOut("show.html.results", "fleet_html")
    _repr_pretty_ = CarriedOut("show.html.results", "print_text")

    hosts: pd.DataFrame
    policies: Mapping[str, Policy]
    synthetic: bool

    def to_pandas(self) -> pd.DataFrame:
        """A copy of the table of hosts."""
        return self.hosts.copy()

    @property
    def failed(self) -> pd.DataFrame:
        """The hosts that have an error in place of numbers."""
        return self.hosts[self.hosts["error"] != ""]

    def compared(self, metrics: Sequence[str] = ()) -> pd.DataFrame:
        """Ranges, means with intervals, differences and tests; see `fleets.statistics`.

        Args:
            metrics: columns of `hosts`; none for the usual ones.

        Raises:
            UsageError: the hosts have no such metric, or all of them failed.
        """
        if len(self.hosts) and len(self.failed) == len(self.hosts):
            first = self.failed.iloc[0]
            raise UsageError(
                f"all {len(self.hosts)} hosts failed; {first['host']} of side {first['side']}: "
                f"{first['error']}"
            )
        chosen = list(metrics) or [name for name in DEFAULT_METRICS if name in self.hosts]
        unknown = [name for name in chosen if name not in self.hosts]
        if unknown or not chosen:
            raise UsageError(f"the hosts have no metric {unknown[0] if unknown else 'at all'!r}")
        return compared_sides(self.hosts, chosen)

    def to_text(self, metrics: Sequence[str] = (), width: int = 72) -> str:
        """Ranges per host, differences and what they rest on, as a table for a mail."""
        from pagealloc_model.studies.fleets.fleet_table import fleet_table

        notes = [NOT_MODELLED] if self.synthetic else []
        return fleet_table(self.compared(metrics), self.hosts, self.policies, notes, width=width)

    def figure(self, metrics: Sequence[str] = ()) -> go.Figure:
        """Every host by side, a panel for each metric."""
        from pagealloc_model.show.figures import fleet_hosts

        return fleet_hosts(self.hosts, self.compared(metrics)["metric"].tolist())
