"""Two sets of hosts, recorded or made up, each under its own policy, set side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.state import make_state
from pagealloc_model.base.arrays import Column
from pagealloc_model.base.errors import PolicyError, UsageError
from pagealloc_model.base.progress_bar import Report, part_of, unreported
from pagealloc_model.base.progress_bar import progress as progress_bar
from pagealloc_model.base.table import Table
from pagealloc_model.base.text import WIDTH, ascii_only, count_of, number, paragraph
from pagealloc_model.base.version import __version__
from pagealloc_model.loads.demand import Gfp, in_time_order, plain_events
from pagealloc_model.loads.run import free_everything, take
from pagealloc_model.numbers.quantities import States
from pagealloc_model.numbers.result_tables import labelled
from pagealloc_model.numbers.statistics import CONFIDENCE, RESAMPLES, resampled_interval
from pagealloc_model.policy.kernel_rules import KernelRules, preset_names
from pagealloc_model.policy.policy import ELASTIC_SETTINGS, Assumptions, Policy
from pagealloc_model.predicted.carrier import ModelCarrier
from pagealloc_model.predicted.run import Cancelled, fallback_counts
from pagealloc_model.recording.machine import Machine, synthetic_machine
from pagealloc_model.recording.recording import Recording
from pagealloc_model.sweeps.metrics import Row, run_metrics
from pagealloc_model.sweeps.records import (
    Job,
    Record,
    columns_of,
    completed,
    records_of,
    result_key,
)
from pagealloc_model.sweeps.sweep import distinct, sweep

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from distributed import Client

__all__ = ["FleetResult", "SyntheticHosts", "fleet"]

FIRST_NS = 1_000_000
FILL_NS = 200
"""From one page of the first fill to the next."""
RECLAIM_PACE = 4
"""Pages reclaimed in the time that one is read."""
ATOMIC_ORDERS = (0.7, 0.1, 0.1, 0.1)
"""Shares of orders 0 to 3 among atomic requests."""
CACHE_PAGES = 1 << 18
EXTENT_MEAN, EXTENT_MOST = 32, 256
"""Pages of an extent: geometric, cut off."""
RATE_SPREAD = 0.35
"""Standard deviation of the logarithm of hosts' rates of atomic requests."""
PAGE_NS, ATOMIC_LIFE_NS = 1_000, 300_000
"""Time from one page read to the next; mean time that pages of atomic requests are kept."""
STEPS_TO_MIN = 32
"""Steps of reads from the low to the min watermark; kswapd gets to run after each."""
MANAGED_SHARES = (0.985, 0.995)
"""Share of a host's memory that its allocator manages; firmware and kernel keep the rest."""
NOT_MODELLED = (
    "THP and compaction success, scanned pages and run time: the hosts have neither huge pages nor "
    "compaction, and reclaim is no more than freeing page cache while kswapd runs"
)


def run_cache_host(
    machine: Machine,
    policy: Policy,
    rules: KernelRules,
    cancel: Callable[[], bool] | None = None,
    *,
    seed: int = 0,
    cache_pages: int = CACHE_PAGES,
    read_pages: int = 1 << 20,
    atomics_per_page: float = 0.5,
) -> tuple[Row, np.ndarray]:
    """Run a host's load (see `SyntheticHosts`) from a state with all memory free.

    Returns:
        Metrics of the time after the cache was filled, fallbacks of all of it; free buddies, int64,
        shape (steps, zones, orders, migratetypes).
    """
    run = _CacheRun(machine, policy, rules, seed, atomics_per_page)
    run.fill(cache_pages)
    st, before = run.state.st, run.state.st.copy()
    del run.logs[1:]
    run.reclaimed = read = 0
    samples = [(run.state.free_buddies(), run.state.block_counts())]
    while read < read_pages:
        if cancel is not None and cancel():
            raise Cancelled
        read += run.read()
        run.reclaim()
        samples.append((run.state.free_buddies(), run.state.block_counts()))
    free_buddies, blocks = (np.stack(column) for column in zip(*samples, strict=True))
    states, log = States.of_counts(free_buddies, blocks), np.concatenate(run.logs)
    row = run_metrics(machine, states, fallback_counts(run.state), log)
    counted = st - before
    row |= {
        "reclaimed_pages": float(run.reclaimed),
        "kswapd_wakes": float(counted[at.COUNT_KSWAPD_WAKES]),
        "atomic_requests": float(run.atomics),
        "requests_failed": float(counted[at.COUNT_FAILED]),
        "requests_forced": float(counted[at.COUNT_FORCED]),
    }
    return row, free_buddies


class _CacheRun:
    """A host on its way.

    Extents of page cache, oldest first, are objects from a number on, how many, and the CPU that
    read them; `reclaimed` and `atomics` count pages of the cache and requests.
    """

    def __init__(
        self, machine: Machine, policy: Policy, rules: KernelRules, seed: int, atomics: float
    ) -> None:
        self.state = make_state(machine, rules, policy, start_ns=FIRST_NS)
        free_everything(self.state)
        self.logs = [np.zeros((0, at.LOG_COLUMNS), np.int64)]
        self.reclaimed = self.atomics = 0
        self._carrier = ModelCarrier(self.state)
        self._machine = machine
        self._rng = np.random.default_rng(seed)
        self._atomics_per_page = atomics * float(self._rng.lognormal(0, RATE_SPREAD))
        largest = max(machine.zones, key=lambda zone: zone.managed)
        self._step_pages = max((largest.low - largest.min) // STEPS_TO_MIN, EXTENT_MOST)
        self._now = FIRST_NS
        self._places = Column(np.int32)
        self._extents: list[tuple[int, int, int]] = []
        self._still_held = plain_events(at.ALLOC, np.zeros(0, np.int64), 0)

    def fill(self, cache_pages: int) -> None:
        """Memory that stays in use, then page cache until free memory nears the watermarks.

        The cache lies in the highest zone; all lower ones are in use down to where requests that
        may use the highest no longer enter them.
        """
        machine = self._machine
        types = len(machine.zone_types)
        used = [index for index, zone in enumerate(machine.zones) if zone.managed]
        for index in used:
            zone, cache = machine.zones[index], cache_pages if index == used[-1] else 0
            free = zone.low + (zone.lowmem_reserve[types - 1] if zone.lowmem_reserve else 0)
            count = max(zone.managed - free - cache, 0) >> machine.max_order
            if cache and not count:
                raise UsageError(
                    f"{cache} pages of page cache do not fit into zone {zone.name} of "
                    f"{zone.managed} pages"
                )
            stays = self._requests(np.full(count, FILL_NS), at.MOVABLE, Gfp.USER)
            stays["order"] = machine.max_order
            stays["zone"] = index % types
            self._advance(stays)
        filled = 0
        while filled < cache_pages:
            read = self._read_extents(FILL_NS)
            filled += len(read)
            self._advance(read)
            self.reclaim()

    def read(self) -> int:
        """A step of reads with atomic requests and their frees in between; returns pages read."""
        begun = self._now
        reads = self._read_extents(PAGE_NS)
        count = int(self._rng.poisson(self._atomics_per_page * len(reads)))
        ended = self._now
        atomics = self._requests(np.zeros(count, np.int64), at.UNMOVABLE, Gfp.ATOMIC)
        self.atomics += count
        atomics["time_ns"] = np.sort(self._rng.integers(begun, ended, count))
        atomics["order"] = self._rng.choice(len(ATOMIC_ORDERS), count, p=ATOMIC_ORDERS)
        atomics["cpu"] = self._rng.integers(self._machine.nr_cpus, size=count)
        freed = atomics.copy()
        freed["operation"] = at.FREE
        freed["time_ns"] += 1 + self._rng.exponential(ATOMIC_LIFE_NS, count).astype(np.int64)
        mixed = in_time_order(np.concatenate([self._still_held, reads, atomics, freed]))
        due = mixed["time_ns"] < self._now
        self._still_held = mixed[~due]
        self._advance(mixed[due])
        return len(reads)

    def reclaim(self) -> None:
        """Free extents of the older half for as long as kswapd runs."""
        extents = self._extents
        while self.state.st[at.KSWAPD_RUNS] > 0 and len(extents) > 1:
            objects, cpus = np.zeros(0, np.int64), np.zeros(0, np.int64)
            while len(objects) < self._step_pages and len(extents) > 1:
                first, pages, cpu = extents.pop(int(self._rng.integers(len(extents) // 2)))
                objects = np.append(objects, first + np.arange(pages))
                cpus = np.append(cpus, np.full(pages, cpu))
            times = self._now + np.arange(len(objects)) * (PAGE_NS // RECLAIM_PACE)
            self._now = int(times[-1]) + 1
            self._advance(plain_events(at.FREE, times, cpus, objects))
            self.reclaimed += len(objects)

    def _read_extents(self, page_ns: int) -> np.ndarray:
        """Reads of a step's extents, each by one CPU; they become the newest of the cache."""
        count = self._step_pages // EXTENT_MEAN
        sizes = np.minimum(self._rng.geometric(1 / EXTENT_MEAN, count), EXTENT_MOST)
        cpus = self._rng.integers(self._machine.nr_cpus, size=len(sizes))
        firsts = self._places.rows + np.cumsum(sizes) - sizes
        reads = self._requests(np.full(int(sizes.sum()), page_ns), at.MOVABLE, Gfp.USER)
        reads["cpu"] = np.repeat(cpus, sizes)
        self._extents += zip(firsts.tolist(), sizes.tolist(), cpus.tolist(), strict=True)
        return reads

    def _requests(self, gaps: np.ndarray, migratetype: int, bits: int) -> np.ndarray:
        """Requests of order 0 for new objects, so far apart; time goes on meanwhile."""
        machine, numbers = self._machine, np.arange(len(gaps))
        objects = self._places.rows + numbers
        self._places.append(np.full(len(gaps), -1, np.int32))
        times = self._now + np.cumsum(gaps)
        self._now += int(gaps.sum()) + 1
        types, is_movable = machine.zone_types, migratetype == at.MOVABLE
        return plain_events(
            at.ALLOC,
            times,
            numbers % machine.nr_cpus,
            objects,
            migratetype=migratetype,
            bits=bits,
            zone=len(types) - 1 if is_movable else types.index("Normal"),
        )

    def _advance(self, events: np.ndarray) -> None:
        self.logs.append(take(self._carrier, events, self._places.values, 0, len(events)))


@dataclass(frozen=True, kw_only=True)
class SyntheticHosts:
    """Hosts full of page cache with atomic requests.

    Attributes:
        count: how many.
        gib: memory of each.
        nr_cpus: its CPUs.
        rules: its kernel's generation; "" for the newest known.
        first_seed: of the first host; the others follow.
        cache_pages: page cache; the rest of memory stays in use throughout; 0 for `CACHE_PAGES`,
            or half of the highest zone.
        read_pages: pages read once the cache is full; 0 for 2^20.
        atomics_per_page: median over hosts of atomic requests for each page read; 0 for 0.5.
    """

    count: int
    gib: float = 64
    nr_cpus: int = 8
    rules: str = ""
    first_seed: int = 0
    cache_pages: int = 0
    read_pages: int = 0
    atomics_per_page: float = 0

    def hosts(self) -> dict[str, dict[str, Any]]:
        """Arguments of `run_cache_host` by the hosts' names."""
        names = ("cache_pages", "read_pages", "atomics_per_page")
        hosts = {}
        for seed in range(self.first_seed, self.first_seed + self.count):
            share = float(np.random.default_rng((seed, 1)).uniform(*MANAGED_SHARES))
            machine = synthetic_machine(
                self.gib, self.nr_cpus, self.kernel_rules(), managed_share=share
            )
            highest = [zone.managed for zone in machine.zones if zone.managed][-1]
            own = {"machine": machine, "cache_pages": min(CACHE_PAGES, highest // 2), "seed": seed}
            hosts[f"host {seed}"] = own | {
                name: value for name in names if (value := getattr(self, name))
            }
        return hosts

    def with_other_seeds(self) -> SyntheticHosts:
        """As many hosts of the same kind, none of them the same."""
        return replace(self, first_seed=self.first_seed + self.count)

    def kernel_rules(self) -> KernelRules:
        """The rules of the hosts' kernel."""
        return KernelRules.preset(self.rules or preset_names()[-1])


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


@dataclass(frozen=True, kw_only=True, eq=False)
class FleetResult:
    """The hosts of two sides.

    Attributes:
        hosts: side, host, metrics, provenance and error, one row a host.
        policies: by side.
        synthetic: hosts were made up.
    """

    hosts: pd.DataFrame
    policies: Mapping[str, Policy]
    synthetic: bool

    def _repr_html_(self) -> str:
        from pagealloc_model.show.html.results import fleet_html

        return fleet_html(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(self.to_text())

    def to_pandas(self) -> pd.DataFrame:
        """A copy of the table of hosts."""
        return self.hosts.copy()

    @property
    def failed(self) -> pd.DataFrame:
        """The hosts that have an error in place of numbers."""
        return self.hosts[self.hosts["error"] != ""]

    def compared(self, metrics: Sequence[str] = ()) -> pd.DataFrame:
        """Both sides' hosts, metric by metric.

        Returns:
            metric; for each side hosts, lowest, highest, mean, mean_low, mean_high; difference of
            the means (patch - base) with difference_low and difference_high; change (difference
            relative to the base's mean); p (of `TEST`), p_adjusted (by `ADJUSTMENT`), NaN for
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
            sides = []
            for side in SIDES:
                own = self.hosts.loc[self.hosts["side"] == side, metric].dropna().to_numpy(float)
                row[f"{side}_hosts"] = len(own)
                for name, of in (("lowest", np.min), ("highest", np.max), ("mean", np.mean)):
                    row[f"{side}_{name}"] = float(of(own)) if len(own) else float("nan")
                interval = resampled_interval(lambda mean: mean, own)
                row[f"{side}_mean_low"], row[f"{side}_mean_high"] = interval
                sides.append(own)
            row["difference"] = row["patch_mean"] - row["base_mean"]
            interval = resampled_interval(lambda base, patch: patch - base, *sides)
            row["difference_low"], row["difference_high"] = interval
            mean = row["base_mean"]
            row["change"] = row["difference"] / mean if mean else float("nan")
            row["p"] = float("nan")
            if min(map(len, sides)) > 1:
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
        named = ", ".join(compared.loc[compared["significant"].astype(bool), "metric"]) or "none"
        first = f"Metrics that differ significantly between base and patch: {named}."
        texts = [
            paragraph(first, width=width),
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
    assumptions: Assumptions | None = None,
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
        assumptions: for recordings, ours.
        client: for recordings, a Dask client or its scheduler's address.
        workers: threads; None for one on each CPU.
        cache: as `sweep` takes it.
        progress: called with the share done, 0 to 1; None shows a bar where one is seen.

    Raises:
        UsageError: a side without hosts, or made-up hosts on a cluster.
        PolicyError: no such rules, or a field that made-up hosts lack.
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
                    assumptions=assumptions,
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
    for name in ("pageblock_order", *ELASTIC_SETTINGS):
        if name in policy.given():
            raise PolicyError(f"policy {name}: made-up hosts of a fleet lack it; give recordings")
    rules, hosts = synthetic.kernel_rules(), synthetic.hosts()
    provenance: dict[str, str | int] = {
        "effective_policy": str(policy),
        "effective_rules": rules.spelled(),
        "decided_by": "model",
        "version": __version__,
    }
    jobs: dict[str, Job] = {}
    for host in hosts.values():
        own = host | {"machine": asdict(host["machine"])}
        parts = {"host": own, "policy": policy.given(), "rules": rules.spelled()}
        jobs[result_key(parts)] = lambda cancel, host=host: (
            run_cache_host(policy=policy, rules=rules, cancel=cancel, **host)[0],
            provenance,
        )

    def make(keys: set[str]) -> Iterator[Record]:
        return records_of({key: job for key, job in jobs.items() if key in keys}, workers)

    records, _ = completed(jobs, cache, make, report)
    columns = columns_of([records[key] for key in jobs])
    return pd.DataFrame({"host": list(hosts), **columns})
