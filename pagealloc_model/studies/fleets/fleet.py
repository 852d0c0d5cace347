"""`fleet`: two sets of hosts, each under its own policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.lazy import LazyMethod
from pagealloc_model.base.progress_bar import Report, part_of, unreported
from pagealloc_model.base.progress_bar import progress as progress_bar
from pagealloc_model.base.table import Table
from pagealloc_model.base.text import WIDTH, ascii_only, count_of, number, paragraph
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Policy
from pagealloc_model.recording.recording import Recording
from pagealloc_model.studies.fleets.synthetic_hosts import (
    NOT_MODELLED,
    SyntheticHosts,
    host_identity,
    host_result,
)
from pagealloc_model.studies.sweeps.records import (
    PROVENANCE,
    Job,
    Record,
    ResultCache,
    records_of,
    result_key,
)
from pagealloc_model.studies.sweeps.results import distinct, labelled
from pagealloc_model.studies.sweeps.sweep import sweep
from pagealloc_model.verdict.statistics import CONFIDENCE, RESAMPLES, resampled_interval

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from distributed import Client

SIDES = ("base", "patch")
SIGNIFICANT = 0.05
INTERVAL = "percentile bootstrap"
TEST = "two-sided Mann-Whitney U test"
ADJUSTMENT = "Benjamini-Hochberg"
LARGE = 1000
"""Numbers from here on are shown without parts."""
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


def p_value(base: np.ndarray, patch: np.ndarray) -> float:
    """Of `TEST`; NaN for fewer than two hosts on a side."""
    if min(len(base), len(patch)) < 2:
        return float("nan")
    if np.ptp(np.concatenate([base, patch])) == 0:
        return 1.0
    from scipy.stats import mannwhitneyu

    return float(mannwhitneyu(base, patch, alternative="two-sided").pvalue)


def adjusted(p_values: Sequence[float]) -> np.ndarray:
    """p-values of several metrics, adjusted by `ADJUSTMENT`; NaN stays NaN."""
    values = np.asarray(p_values, float)
    known = ~np.isnan(values)
    if known.any():
        from scipy.stats import false_discovery_control

        values[known] = false_discovery_control(values[known])
    return values


def compared_sides(hosts: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """Both sides' hosts, metric by metric.

    Returns:
        metric; for each side hosts, lowest, highest, mean, mean_low, mean_high; difference of the
        means (patch - base) with difference_low and difference_high; change (difference relative
        to the base's mean); p, p_adjusted; significant.
    """
    rows = []
    for metric in metrics:
        row: dict[str, Any] = {"metric": metric}
        sides = []
        for side in SIDES:
            values = hosts.loc[hosts["side"] == side, metric].dropna().to_numpy(float)
            low, high = resampled_interval(lambda mean: mean, values)
            known = len(values) > 0
            row |= {
                f"{side}_hosts": len(values),
                f"{side}_lowest": float(values.min()) if known else float("nan"),
                f"{side}_highest": float(values.max()) if known else float("nan"),
                f"{side}_mean": float(values.mean()) if known else float("nan"),
                f"{side}_mean_low": low,
                f"{side}_mean_high": high,
            }
            sides.append(values)
        row["difference"] = row["patch_mean"] - row["base_mean"]
        interval = resampled_interval(lambda base, patch: patch - base, *sides)
        row["difference_low"], row["difference_high"] = interval
        mean = row["base_mean"]
        row["change"] = row["difference"] / mean if mean else float("nan")
        row["p"] = p_value(*sides)
        rows.append(row)
    table = pd.DataFrame(rows)
    table["p_adjusted"] = adjusted(table["p"].tolist())
    table["significant"] = table["p_adjusted"] < SIGNIFICANT
    return table


@dataclass(frozen=True, kw_only=True, eq=False)
class FleetResult:
    """The hosts of two sides.

    Attributes:
        hosts: side, host, metrics, provenance and error, one row a host.
        policies: by side.
        synthetic: hosts were made up.
    """

    _repr_html_ = LazyMethod("show.html.results", "fleet_html")
    _repr_pretty_ = LazyMethod("show.html.results", "print_text")

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
        """Ranges, means with intervals, differences and tests; see `compared_sides`."""
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
            f"resamples. p: {TEST}, adjusted for {count_of(len(compared), 'metric')} "
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
        notes = (rule, NOT_MODELLED) if self.synthetic else (rule,)
        texts = [
            Table(("metric", "hosts", "base", "patch"), lines).to_text(width),
            "\n".join(paragraph(sentence, width=width, label="- ") for sentence in sentences),
            *(paragraph(note, width=width) for note in notes),
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


Hosts = SyntheticHosts | Iterable[Recording | str | Path]


def fleet(
    base: Hosts,
    patch: Hosts,
    *,
    base_policy: Policy | None = None,
    patch_policy: Policy | None = None,
    rules: KernelRules | str | None = None,
    client: Client | str | None = None,
    workers: int | None = None,
    cache: str | Path | bool = True,
    progress: Callable[[float], None] | None = None,
) -> FleetResult:
    """Two sets of hosts, each under its policy: one row of metrics a host.

    Hosts are recordings, replayed, or made up, run from an empty machine. As in a sweep, finished
    hosts are kept, and one that fails has its error in place of numbers.

    Args:
        base: hosts of the A side.
        patch: hosts of the B side; other ones, as on a real fleet, or the same.
        base_policy: of the A side; None for as recorded, or the kernel's defaults.
        patch_policy: of the B side.
        rules: for recordings, as `replay` takes them; made-up hosts have their own.
        client: for recordings, a Dask client or its scheduler's address.
        workers: threads; None for one on each CPU.
        cache: as `sweep` takes it.
        progress: called with the share done, 0 to 1; None shows a bar where one is seen.

    Raises:
        UsageError: a side without hosts, or made-up hosts on a cluster.
        PolicyError: no such rules.
        RecordingError: a recording cannot be opened.
        ClusterError: the scheduler cannot be reached, or goes away.
    """
    policies = {"base": base_policy, "patch": patch_policy}
    tables = []
    with progress_bar("fleet", 2, "sides", progress) as report:
        for place, (side, hosts) in enumerate(zip(policies, (base, patch), strict=True)):
            part = part_of(report, place / 2, (place + 1) / 2)
            if isinstance(hosts, SyntheticHosts):
                if client is not None:
                    raise UsageError("made-up hosts are run by threads of this process alone")
                rows = _synthetic_rows(hosts, policies[side] or Policy(), workers, cache, part)
            else:
                swept = sweep(
                    hosts,
                    policy=policies[side],
                    rules=rules,
                    client=client,
                    workers=workers,
                    cache=cache,
                    progress=part or unreported,
                )
                rows = swept.rows.rename(columns={"recording": "host"})
            rows.insert(0, "side", side)
            tables.append(rows)
    return FleetResult(
        hosts=pd.concat(tables, ignore_index=True),
        policies={side: policy or Policy() for side, policy in policies.items()},
        synthetic=isinstance(base, SyntheticHosts) or isinstance(patch, SyntheticHosts),
    )


def _synthetic_rows(
    synthetic: SyntheticHosts,
    policy: Policy,
    workers: int | None,
    cache: str | Path | bool,
    report: Report | None,
) -> pd.DataFrame:
    """Rows of made-up hosts."""
    if synthetic.count < 1:
        raise UsageError("a side of a fleet needs at least one host")
    rules = synthetic.kernel_rules()
    store = ResultCache.chosen(cache)
    names: dict[str, str] = {}
    jobs: dict[str, Job] = {}
    records: dict[str, Record] = {}
    for name, host in synthetic.hosts():
        key = result_key(host_identity(host, policy, rules))
        names[key] = name
        known = store.load(key) if store else None
        if known is not None:
            records[key] = known
        else:
            jobs[key] = lambda cancel, host=host: host_result(host, policy, rules, cancel)
    for record in records_of(jobs, workers):
        if store:
            store.store(record)
        records[record.key] = record
        if report is not None:
            report(len(records) / len(names))
    return pd.DataFrame(
        [
            {
                "host": name,
                **records[key].metrics,
                **{column: records[key].provenance.get(column) for column in PROVENANCE},
                **{
                    column: getattr(records[key], column)
                    for column in ("seconds", "finished", "key", "error")
                },
            }
            for key, name in names.items()
        ]
    )
