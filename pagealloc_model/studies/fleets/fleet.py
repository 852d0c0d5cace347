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
from pagealloc_model.base.progress_bar import Report, part_of
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
    chosen_cache,
    default_workers,
    records_of,
    result_key,
)
from pagealloc_model.studies.sweeps.sweep import sweep
from pagealloc_model.verdict.statistics import CONFIDENCE, RESAMPLES, resampled_interval

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from distributed import Client

    from pagealloc_model.policy.policy import Policy


SIGNIFICANT = 0.05
INTERVAL = "percentile bootstrap"
TEST = "two-sided Mann-Whitney U test"
ADJUSTMENT = "Benjamini-Hochberg"


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
    """What both sides' hosts did, metric by metric.

    Args:
        hosts: side ("base" or "patch") and metrics, one row a host; NaN where a host failed.
        metrics: columns to compare.

    Returns:
        metric; for each side hosts, lowest, highest, mean, mean_low, mean_high; difference of the
        means (patch - base) with difference_low and difference_high; change (difference relative
        to the base's mean); p, p_adjusted; significant.
    """
    rows = []
    for metric in metrics:
        sides = {
            side: hosts.loc[hosts["side"] == side, metric].dropna().to_numpy(float)
            for side in ("base", "patch")
        }
        row: dict[str, object] = {"metric": metric}
        for side, values in sides.items():
            row |= {f"{side}_{name}": value for name, value in _summary(values).items()}
        base, patch = sides["base"], sides["patch"]
        difference = float(row["patch_mean"]) - float(row["base_mean"])  # type: ignore[arg-type]
        low, high = resampled_interval(lambda one, other: other - one, base, patch)
        row |= {"difference": difference, "difference_low": low, "difference_high": high}
        mean = float(row["base_mean"])  # type: ignore[arg-type]
        row["change"] = difference / mean if mean else float("nan")
        row["p"] = p_value(base, patch)
        rows.append(row)
    table = pd.DataFrame(rows)
    table["p_adjusted"] = adjusted(table["p"].tolist())
    table["significant"] = table["p_adjusted"] < SIGNIFICANT
    return table


def _summary(values: np.ndarray) -> dict[str, float]:
    low, high = resampled_interval(lambda mean: mean, values)
    known = len(values) > 0
    return {
        "hosts": len(values),
        "lowest": float(values.min()) if known else float("nan"),
        "highest": float(values.max()) if known else float("nan"),
        "mean": float(values.mean()) if known else float("nan"),
        "mean_low": low,
        "mean_high": high,
    }


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
        notes = [NOT_MODELLED] if self.synthetic else []
        return fleet_table(self.compared(metrics), self.hosts, self.policies, notes, width=width)

    def figure(self, metrics: Sequence[str] = ()) -> go.Figure:
        """Every host by side, a panel for each metric."""
        from pagealloc_model.show.figures import fleet_hosts

        return fleet_hosts(self.hosts, self.compared(metrics)["metric"].tolist())


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
    """What two sets of hosts do, each under its policy: one row of metrics a host.

    Hosts are recordings, replayed, or made up, run from an empty machine. As in a sweep, finished
    hosts are kept, and one that fails has its error in place of numbers.

    Args:
        base: hosts of the A side.
        patch: hosts of the B side; other ones, as on a real fleet, or the same.
        base_policy: what the A side runs; None for as recorded, or the kernel's defaults.
        patch_policy: what the B side runs.
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
    given = {"base": (base, base_policy), "patch": (patch, patch_policy)}
    sides = {}
    with progress_bar("fleet", 2, "sides", progress) as report:
        for place, (side, (hosts, policy)) in enumerate(given.items()):
            part = part_of(report, place / 2, (place + 1) / 2)
            if isinstance(hosts, SyntheticHosts):
                if client is not None:
                    raise UsageError("made-up hosts are run by threads of this process alone")
                rows = _run(hosts, policy or Policy(), workers, cache, part)
            else:
                found = sweep(
                    hosts,
                    policy=policy,
                    rules=rules,
                    client=client,
                    workers=workers,
                    cache=cache,
                    progress=part or _unseen,
                )
                rows = found.rows.rename(columns={"recording": "host"})
            rows.insert(0, "side", side)
            sides[side] = rows
    return FleetResult(
        hosts=pd.concat(sides.values(), ignore_index=True),
        policies={side: policy or Policy() for side, (_, policy) in given.items()},
        synthetic=any(isinstance(hosts, SyntheticHosts) for hosts, _ in given.values()),
    )


def _run(
    made_up: SyntheticHosts,
    policy: Policy,
    workers: int | None,
    cache: str | Path | bool,
    report: Report | None,
) -> pd.DataFrame:
    """Rows of made-up hosts."""
    if made_up.count < 1:
        raise UsageError("a side of a fleet needs at least one host")
    rules = made_up.kernel_rules()
    kept = chosen_cache(cache)
    names: dict[str, str] = {}
    jobs: dict[str, Job] = {}
    records: dict[str, Record] = {}
    for name, host in made_up.hosts():
        key = result_key(host_identity(host, policy, rules))
        names[key] = name
        known = kept.load(key) if kept else None
        if known is not None:
            records[key] = known
        else:
            jobs[key] = lambda cancel, host=host: host_result(host, policy, rules, cancel)
    for record in records_of(jobs, default_workers() if workers is None else workers):
        if kept:
            kept.store(record)
        records[record.key] = record
        if report is not None:
            report(len(records) / len(names))
    return pd.DataFrame([_row(name, records[key]) for key, name in names.items()])


def _row(name: str, record: Record) -> dict[str, object]:
    told = {each: record.provenance.get(each) for each in PROVENANCE}
    return {
        "host": name,
        **record.metrics,
        **told,
        "seconds": record.seconds,
        "finished": record.finished,
        "key": record.key,
        "error": record.error,
    }


def _unseen(share: float) -> None:
    """A side's own progress where nobody looks."""


LARGE = 1000
"""Numbers from here on are shown without parts."""


def fleet_table(
    compared: pd.DataFrame,
    hosts: pd.DataFrame,
    policies: Mapping[str, Policy],
    notes: Sequence[str] = (),
    *,
    width: int = WIDTH,
) -> str:
    """Three lines a metric: range per host, mean with its interval, difference with its own.

    Args:
        compared: as `fleets.statistics.compared_sides` returns it.
        hosts: one row a host, for what the table was made from.
        policies: by side.
        notes: what else to say below.
        width: characters per line at most.
    """
    lines = [line for row in compared.itertuples() for line in _rows(row)]
    header = ("metric", "hosts", "base", "patch")
    table = Table(header, lines).to_text(width)
    sentences = [
        paragraph(_sentence(row), width=width, label="- ") for row in compared.itertuples()
    ]
    rule = (
        f"Square brackets: {CONFIDENCE:.0%} {INTERVAL} intervals over hosts, {RESAMPLES} "
        f"resamples. p: {TEST}, adjusted for {count_of(len(compared), 'metric')} "
        f"({ADJUSTMENT}); * below "
        f"{SIGNIFICANT}."
    )
    words = [paragraph(each, width=width) for each in (rule, *notes)]
    return (
        "\n\n".join([table, "\n".join(sentences), *words, _footer(hosts, policies, width)]) + "\n"
    )


def _rows(row: Any) -> list[tuple[str, ...]]:
    heading = ascii_only(row.metric)
    ranges = tuple(
        range_words(getattr(row, f"{side}_lowest"), getattr(row, f"{side}_highest"))
        for side in ("base", "patch")
    )
    means = tuple(_mean(row, f"{side}_mean") for side in ("base", "patch"))
    return [
        (heading, "per host", *ranges),
        (heading, "mean", *means),
    ]


def _mean(row: Any, name: str) -> str:
    """A mean and its interval."""
    low, high = (_amount(getattr(row, f"{name}_{end}")) for end in ("low", "high"))
    return f"{_amount(getattr(row, name))} [{low}, {high}]"


def _amount(value: float) -> str:
    """A number; of large ones no parts, which say nothing where hosts differ by more."""
    return f"{value:,.0f}" if abs(value) >= LARGE else number(value)


def range_words(lowest: float, highest: float) -> str:
    """Such as "309-312", or "1" where all hosts agree."""
    low, high = _amount(lowest), _amount(highest)
    return low if low == high else f"{low}-{high}"


def _sentence(row: Any) -> str:
    interval = f"[{_amount(row.difference_low)}, {_amount(row.difference_high)}]"
    change = "" if pd.isna(row.change) else f" ({100 * row.change:+.1f}%)"
    p_shown = "NA" if pd.isna(row.p_adjusted) else f"{row.p_adjusted:.2g}"
    star = "*" if row.significant else ""
    return (
        f"{row.metric}: patch - base = {_amount(row.difference)} {interval}{change}, "
        f"p = {p_shown}{star}"
    )


def _footer(hosts: pd.DataFrame, policies: Mapping[str, Policy], width: int) -> str:
    failed = int((hosts["error"] != "").sum())
    lines = {
        f"{side}": f"{count_of(int((hosts['side'] == side).sum()), 'host')}, policy {policy}"
        for side, policy in policies.items()
    }
    lines["rules"] = _distinct(hosts, "effective_rules")
    lines["failed"] = f"{failed} hosts"
    lines["made with"] = f"pagealloc_model {_distinct(hosts, 'version')}"
    return "\n".join(
        paragraph(text, width=width, label=f"{label + ':':<11}") for label, text in lines.items()
    )


def _distinct(hosts: pd.DataFrame, column: str) -> str:
    return ", ".join(str(value) for value in hosts[column].dropna().unique()) or "unknown"
