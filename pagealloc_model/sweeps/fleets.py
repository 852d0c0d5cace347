"""Recordings of two sets of hosts, each under its own policy, set side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.progress_bar import part_of, unreported
from pagealloc_model.base.progress_bar import progress as progress_bar
from pagealloc_model.base.table import Table
from pagealloc_model.base.text import WIDTH, ascii_only, count_of, number, paragraph
from pagealloc_model.numbers.result_tables import labelled
from pagealloc_model.numbers.statistics import (
    CONFIDENCE,
    RESAMPLES,
    TEST,
    paired_p,
    resampled_interval,
)
from pagealloc_model.numbers.vocabulary import STATES
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import AUTO, Assumptions, Policy
from pagealloc_model.predicted.reclaim_mode import ReclaimChoice, acts_through_reclaim
from pagealloc_model.recording.recording import Recording
from pagealloc_model.sweeps.sweep import ReplayRows, distinct, sweep

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from distributed import Client

__all__ = ["FleetResult", "fleet"]

SIDES = ("base", "patch")
SIGNIFICANT = 0.05
INTERVAL = "percentile bootstrap"
UNPAIRED_TEST = "two-sided Mann-Whitney U test"
ADJUSTMENT = "Benjamini-Hochberg"
LARGE = 1000
"""Numbers from here on are shown without parts."""
DEFAULT_METRICS = (
    *(row.sweep for row in STATES if row.name and row.sweep),
    *("unusable_index_pageblock", "zone_lock_acquisitions", "requests_failed"),
)
"""Compared where none are asked for, as far as hosts have them: states of comparisons first."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FleetResult(ReplayRows):
    """The hosts of two sides.

    Attributes:
        hosts: side, host, metrics, provenance and error, one row a host.
        policies: by side.
        reclaim: the mode of reclaim by host, and why.
    """

    hosts: pd.DataFrame
    policies: Mapping[str, Policy]
    reclaim: Mapping[str, ReclaimChoice] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        from pagealloc_model.show.html.results import fleet_html

        return fleet_html(self)

    @property
    def is_paired(self) -> bool:
        """Whether both sides are the same hosts, so that each has its own difference."""
        base, patch = (self.hosts.loc[self.hosts["side"] == side, "host"] for side in SIDES)
        return base.is_unique and set(base) == set(patch) and patch.is_unique

    @property
    def test(self) -> str:
        """The test behind `p`."""
        return TEST if self.is_paired else UNPAIRED_TEST

    @property
    def rows(self) -> pd.DataFrame:
        """The same under the name that a sweep's table has."""
        return self.hosts

    def compared(self, metrics: Sequence[str] = ()) -> pd.DataFrame:
        """Both sides' hosts, metric by metric.

        Returns:
            metric; for each side hosts, lowest, highest, mean, mean_low, mean_high; difference of
            the means (patch - base) with difference_low and difference_high; change (difference
            relative to the base's mean); p (of `test`), p_adjusted (by `ADJUSTMENT`), NaN for
            fewer than two hosts on a side; significant.
        """
        from scipy.stats import false_discovery_control, mannwhitneyu

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
        rows = []
        for metric in chosen:
            row: dict[str, Any] = {"metric": metric}
            known = self.hosts.set_index("host")[["side", metric]].dropna()
            values = [known.loc[known["side"] == side, metric].astype(float) for side in SIDES]
            if self.is_paired:
                both = values[0].index.intersection(values[1].index)
                values = [own[both] for own in values]
            sides = []
            for side, of_hosts in zip(SIDES, values, strict=True):
                own = of_hosts.to_numpy()
                row[f"{side}_hosts"] = len(own)
                for name, of in (("lowest", np.min), ("highest", np.max), ("mean", np.mean)):
                    row[f"{side}_{name}"] = float(of(own)) if len(own) else float("nan")
                interval = resampled_interval(lambda mean: mean, own)
                row[f"{side}_mean_low"], row[f"{side}_mean_high"] = interval
                sides.append(own)
            row["difference"] = row["patch_mean"] - row["base_mean"]
            interval = resampled_interval(
                lambda base, patch: patch - base, *sides, paired=self.is_paired
            )
            row["difference_low"], row["difference_high"] = interval
            mean = row["base_mean"]
            row["change"] = row["difference"] / mean if mean else float("nan")
            row["p"] = paired_p(*sides) if self.is_paired else float("nan")
            if min(map(len, sides)) > 1 and not self.is_paired:
                is_same = np.ptp(np.concatenate(sides)) == 0
                row["p"] = 1.0 if is_same else float(mannwhitneyu(*sides).pvalue)
            rows.append(row)
        table = pd.DataFrame(rows)
        known = table["p"].notna()
        table["p_adjusted"] = table["p"]
        if known.any():
            table.loc[known, "p_adjusted"] = false_discovery_control(table.loc[known, "p"])
        table["significant"] = table["p_adjusted"] < SIGNIFICANT
        return table

    def to_text(self, metrics: Sequence[str] = (), width: int = WIDTH) -> str:
        """Ranges per host, differences and what they rest on, as a table for a mail."""
        compared = self.compared(metrics)
        lines, sentences = [], []
        for row in compared.itertuples():
            heading = ascii_only(row.metric)
            ranges = [
                range_words(getattr(row, f"{side}_lowest"), getattr(row, f"{side}_highest"))
                for side in SIDES
            ]
            means = [_with_interval(row, f"{side}_mean") for side in SIDES]
            lines += [(heading, "per host", *ranges), (heading, "mean", *means)]
            change = "" if pd.isna(row.change) else f" ({100 * row.change:+.1f}%)"
            p_shown = "NA" if pd.isna(row.p_adjusted) else f"{row.p_adjusted:.2g}"
            sentences.append(
                f"{row.metric}: patch - base = {_with_interval(row, 'difference')}{change}, "
                f"p = {p_shown}{'*' if row.significant else ''}"
            )
        rule = (
            f"Square brackets: {CONFIDENCE:.0%} {INTERVAL} intervals over hosts, {RESAMPLES} "
            f"resamples. p: {self.test}, adjusted for {count_of(len(compared), 'metric')} "
            f"({ADJUSTMENT}); * below "
            f"{SIGNIFICANT}."
        )
        hosts = self.hosts
        counts = hosts["side"].value_counts()
        origin = {
            side: f"{count_of(int(counts.get(side, 0)), 'host')}, policy {policy}"
            for side, policy in self.policies.items()
        } | {
            "rules": distinct(hosts, "effective_rules"),
            "failed": f"{len(self.failed)} hosts",
            "made with": f"pagealloc_model {distinct(hosts, 'version')}",
        }
        named = ", ".join(compared.loc[compared["significant"].astype(bool), "metric"]) or "none"
        first = f"Metrics that differ significantly between base and patch: {named}."
        texts = [
            paragraph(first, width=width),
            Table(("metric", "hosts", "base", "patch"), lines).to_text(width),
            "\n".join(paragraph(sentence, width=width, label="- ") for sentence in sentences),
            paragraph(rule, width=width),
            labelled(origin, width),
        ]
        return "\n\n".join(texts) + "\n"

    def figure(self, metrics: Sequence[str] = ()) -> go.Figure:
        """Every host by side, a panel for each metric."""
        from pagealloc_model.show.figures import fleet_hosts

        return fleet_hosts(self.hosts, self.compared(metrics)["metric"].tolist())


def _amount(value: float) -> str:
    """A number; of large ones no parts, which say nothing where hosts differ by more."""
    return f"{value:,.0f}" if abs(value) >= LARGE else number(value)


def _with_interval(row: Any, name: str) -> str:
    low, high = (_amount(getattr(row, f"{name}_{end}")) for end in ("low", "high"))
    return f"{_amount(getattr(row, name))} [{low}, {high}]"


def range_words(lowest: float, highest: float) -> str:
    """Such as "309-312", or "1" where all hosts agree."""
    low, high = _amount(lowest), _amount(highest)
    return low if low == high else f"{low}-{high}"


def fleet(
    base: Iterable[Recording | str | Path],
    patch: Iterable[Recording | str | Path],
    *,
    base_policy: Policy | None = None,
    patch_policy: Policy | None = None,
    rules: KernelRules | str | None = None,
    assumptions: Assumptions | None = None,
    client: Client | str | None = None,
    workers: int | None = None,
    cache: str | Path | bool = True,
    progress: Callable[[float], None] | None = None,
) -> FleetResult:
    """Two sets of hosts, each swept under its policy: one row of metrics a host.

    As in a sweep, a folder of recordings stands for all of them, finished hosts are kept, and one
    that fails has its error in place of numbers.

    Args:
        base: recordings of the A side's hosts.
        patch: of the B side's; other hosts, as on a real fleet, or the same.
        base_policy: of the A side; None for as recorded.
        patch_policy: of the B side.
        rules: as `replay` takes them.
        assumptions: ours. Where they leave the mode of reclaim to a host, it is that of both
            policies taken together.
        client: a Dask client or its scheduler's address.
        workers: threads; None for one on each CPU.
        cache: as `sweep` takes it.
        progress: called with the share done, 0 to 1; None shows a bar where one is seen.

    Raises:
        UsageError: a side without hosts.
        PolicyError: no such rules.
        RecordingError: a recording cannot be opened.
        ClusterError: the scheduler cannot be reached, or goes away.
    """
    policies = {"base": base_policy or Policy(), "patch": patch_policy or Policy()}
    assumptions = assumptions or Assumptions()
    acting = acts_through_reclaim(policies.values()) if assumptions.reclaim == AUTO else ""
    if acting:
        assumptions = replace(assumptions, reclaim="elastic")
    tables = []
    reclaim: dict[str, ReclaimChoice] = {}
    with progress_bar("fleet", 2, "sides", progress) as report:
        for place, (side, hosts) in enumerate(zip(policies, (base, patch), strict=True)):
            swept = sweep(
                hosts,
                policy=policies[side],
                rules=rules,
                assumptions=assumptions,
                client=client,
                workers=workers,
                cache=cache,
                progress=part_of(report, place / 2, (place + 1) / 2) or unreported,
            )
            rows = swept.rows.rename(columns={"recording": "host"})
            rows.insert(0, "side", side)
            tables.append(rows)
            reclaim |= swept.reclaim
    if acting:
        reclaim = {host: replace(choice, why=acting) for host, choice in reclaim.items()}
    hosts = pd.concat(tables, ignore_index=True)
    return FleetResult(hosts=hosts, policies=policies, reclaim=reclaim)
