"""Hosts made up from a few numbers, each by a seed of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.state import make_state
from pagealloc_model.base.arrays import Column
from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.version import __version__
from pagealloc_model.policy.kernel_rules import KernelRules, preset_names
from pagealloc_model.policy.policy import Policy
from pagealloc_model.predicted.carrier import ModelCarrier
from pagealloc_model.predicted.run import Cancelled, fallback_counts
from pagealloc_model.recording.machine import Machine, synthetic_machine
from pagealloc_model.studies.sweeps.metrics import (
    Row,
    fallback_metrics,
    lock_metrics,
    state_metrics,
)
from pagealloc_model.studies.synthetic.demand import EVENT, Gfp, in_time_order
from pagealloc_model.studies.synthetic.memory import free_everything
from pagealloc_model.studies.synthetic.run import Running
from pagealloc_model.verdict.quantities import States

FIRST_NS = 1_000_000
FILL_NS = 200
"""From one page of the first fill to the next."""
RECLAIM_PACE = 4
"""Pages reclaimed in the time that one is read."""
ATOMIC_ORDERS = (0.7, 0.1, 0.1, 0.1)
"""Shares of orders 0 to 3 among atomic requests."""
EXTENT_MEAN, EXTENT_MOST = 32, 256
"""Pages of an extent: geometric, cut off."""
RATE_SPREAD = 0.35
"""Standard deviation of the logarithm of hosts' rates of atomic requests."""
STEPS_TO_MIN = 32
"""Steps of reads from the low to the min watermark; kswapd gets to run after each."""


@dataclass(frozen=True, kw_only=True)
class CacheHost:
    """One host's load.

    Attributes:
        machine: the host.
        seed: of extents, of what is reclaimed, of atomic requests and their rate.
        cache_pages: page cache; the rest of memory stays in use throughout.
        read_pages: pages read once the cache is full.
        page_ns: time from one page read to the next.
        atomics_per_page: median over hosts of atomic requests for each page read.
        atomic_life_ns: mean time that their pages are kept.
    """

    machine: Machine
    seed: int = 0
    cache_pages: int = 1 << 18
    read_pages: int = 1 << 20
    page_ns: int = 1_000
    atomics_per_page: float = 0.5
    atomic_life_ns: int = 300_000


@dataclass(frozen=True, kw_only=True, eq=False)
class HostRun:
    """What became of a host under a policy; counters are of the time after the cache was filled.

    Attributes:
        machine: the host.
        free_buddies: int64, shape (steps, zones, orders, migratetypes).
        blocks: int64, shape (steps, zones, migratetypes).
        log: int64, shape (transactions, LOG_COLUMNS): holds of zone->lock.
        fallback_counts: int64, shape `layout.FALLBACK_SHAPE`, fill included.
        reclaimed_pages: page cache reclaimed.
        kswapd_wakes: how often kswapd began to run.
        atomics: atomic requests.
        failed: requests that found no page.
        forced: requests served below every watermark.
    """

    machine: Machine
    free_buddies: np.ndarray
    blocks: np.ndarray
    log: np.ndarray
    fallback_counts: np.ndarray
    reclaimed_pages: int
    kswapd_wakes: int
    atomics: int
    failed: int
    forced: int


def run_cache_host(
    host: CacheHost,
    policy: Policy,
    rules: KernelRules,
    cancel: Callable[[], bool] | None = None,
) -> HostRun:
    """Run a host's load from a state with all memory free.

    Args:
        host: its load.
        policy: what its kernel would do.
        rules: its kernel's generation.
        cancel: asked now and then; True ends the run.

    Raises:
        Cancelled: `cancel` said so.
        UsageError: the machine is too small for the cache.
    """
    running = _CacheRun(host, policy, rules)
    running.fill()
    running.begin_counting()
    while running.read_so_far < host.read_pages:
        if cancel is not None and cancel():
            raise Cancelled
        running.read()
        running.reclaim()
        running.sample()
    return running.result()


class _CacheRun:
    """A host on its way.

    Args:
        host: its load.
        policy: its kernel's.
        rules: its kernel's generation.
    """

    def __init__(self, host: CacheHost, policy: Policy, rules: KernelRules) -> None:
        self.read_so_far = 0
        self._host = host
        self._state = make_state(host.machine, rules, policy, start_ns=FIRST_NS)
        free_everything(self._state)
        self._running = Running(ModelCarrier(self._state), np.zeros(0, np.int32))
        self._rng = np.random.default_rng(host.seed)
        self._atomics_per_page = host.atomics_per_page * float(self._rng.lognormal(0, RATE_SPREAD))
        self._step_pages = max(_low_to_min(host.machine) // STEPS_TO_MIN, EXTENT_MOST)
        self._now = FIRST_NS
        self._places = Column(np.int32)
        self._extents: list[_Extent] = []
        self._still_held = np.zeros(0, EVENT)
        self._samples: list[tuple[np.ndarray, np.ndarray]] = []
        self._reclaimed = self._atomics = 0
        self._before = self._counters()

    def fill(self) -> None:
        """Memory that stays in use, then page cache until what is free nears the watermarks."""
        machine = self._host.machine
        by_zone = _staying_buddies(self._host)
        for zone_type, count in by_zone.items():
            stays = self._requests(np.full(count, FILL_NS), at.MOVABLE, Gfp.USER)
            stays["order"] = machine.max_order
            stays["zone"] = zone_type
            self._advance(stays)
        filled = 0
        while filled < self._host.cache_pages:
            read = self._extent_events(FILL_NS)
            filled += len(read)
            self._advance(read)
            self.reclaim()

    def begin_counting(self) -> None:
        """From here on, work is counted."""
        self._running.forget()
        self._reclaimed = 0
        self._before = self._counters()
        self.sample()

    def read(self) -> None:
        """A step of reads with atomic requests in between."""
        begun = self._now
        reads = self._extent_events(self._host.page_ns)
        atomics = self._atomic_events(begun, len(reads))
        mixed = in_time_order(np.concatenate([self._still_held, reads, atomics]))
        due = mixed["time_ns"] < self._now
        self._still_held = mixed[~due]
        self._advance(mixed[due])
        self.read_so_far += len(reads)

    def reclaim(self) -> None:
        """Free extents of the older half for as long as kswapd runs."""
        while self._kswapd_runs() and len(self._extents) > 1:
            freed: list[_Extent] = []
            while sum(each.pages for each in freed) < self._step_pages:
                if len(self._extents) < 2:
                    break
                freed.append(self._extents.pop(int(self._rng.integers(len(self._extents) // 2))))
            frees = np.concatenate([each.frees() for each in freed])
            pace = self._host.page_ns // RECLAIM_PACE
            frees["time_ns"] = self._now + np.arange(len(frees)) * pace
            self._now = int(frees["time_ns"][-1]) + 1
            self._advance(frees)
            self._reclaimed += len(frees)

    def sample(self) -> None:
        """Copy what is free and which types pageblocks have."""
        self._samples.append((self._state.free_buddies(), self._state.block_counts()))

    def result(self) -> HostRun:
        """Return what became of the host."""
        free_buddies, blocks = (np.stack(each) for each in zip(*self._samples, strict=True))
        wakes, forced, failed = (
            after - before for after, before in zip(self._counters(), self._before, strict=True)
        )
        return HostRun(
            machine=self._host.machine,
            free_buddies=free_buddies,
            blocks=blocks,
            log=self._running.log,
            fallback_counts=fallback_counts(self._state),
            reclaimed_pages=self._reclaimed,
            kswapd_wakes=wakes,
            atomics=self._atomics,
            failed=failed,
            forced=forced,
        )

    def _extent_events(self, page_ns: int) -> np.ndarray:
        """Reads of a step's extents, each by one CPU; they become the newest of the cache."""
        mean, most = EXTENT_MEAN, EXTENT_MOST
        sizes = np.minimum(self._rng.geometric(1 / mean, self._step_pages // mean), most)
        cpus = self._rng.integers(self._host.machine.nr_cpus, size=len(sizes))
        first = self._places.rows
        reads = self._requests(np.full(int(sizes.sum()), page_ns), at.MOVABLE, Gfp.USER)
        reads["cpu"] = np.repeat(cpus, sizes)
        for size, cpu in zip(sizes.tolist(), cpus.tolist(), strict=True):
            self._extents.append(_Extent(first=first, pages=size, cpu=cpu))
            first += size
        return reads

    def _atomic_events(self, begun: int, pages: int) -> np.ndarray:
        """Atomic requests since an instant, with their frees."""
        count = int(self._rng.poisson(self._atomics_per_page * pages))
        ended = self._now
        asked = self._requests(np.zeros(count, np.int64), at.UNMOVABLE, Gfp.ATOMIC)
        self._atomics += count
        asked["time_ns"] = np.sort(self._rng.integers(begun, ended, count))
        asked["order"] = self._rng.choice(len(ATOMIC_ORDERS), count, p=ATOMIC_ORDERS)
        asked["cpu"] = self._rng.integers(self._host.machine.nr_cpus, size=count)
        freed = asked.copy()
        freed["operation"] = at.FREE
        life = self._rng.exponential(self._host.atomic_life_ns, count).astype(np.int64)
        freed["time_ns"] += 1 + life
        return np.concatenate([asked, freed])

    def _requests(self, gaps: np.ndarray, migratetype: int, bits: int) -> np.ndarray:
        """Requests of order 0 for new objects, so far apart; time goes on meanwhile."""
        count = len(gaps)
        first = self._places.rows
        self._places.append(np.full(count, -1, np.int32))
        events = np.zeros(count, EVENT)
        events["time_ns"] = self._now + np.cumsum(gaps)
        self._now += int(gaps.sum()) + 1
        events["object"] = first + np.arange(count)
        events["operation"] = at.ALLOC
        events["cpu"] = np.arange(count) % self._host.machine.nr_cpus
        events["migratetype"] = migratetype
        events["bits"] = bits
        types = self._host.machine.zone_types
        events["zone"] = len(types) - 1 if migratetype == at.MOVABLE else types.index("Normal")
        return events

    def _advance(self, events: np.ndarray) -> None:
        self._running.places = self._places.values
        self._running.take(events, 0, len(events))

    def _kswapd_runs(self) -> bool:
        return bool(self._state.st[at.KSWAPD_RUNS] > 0)

    def _counters(self) -> tuple[int, int, int]:
        st = self._state.st
        return tuple(
            int(st[each]) for each in (at.COUNT_KSWAPD_WAKES, at.COUNT_FORCED, at.COUNT_FAILED)
        )  # type: ignore[return-value]


@dataclass(frozen=True)
class _Extent:
    """Pages of page cache that one CPU read in a row.

    Attributes:
        first: number of the first page's object; the others follow.
        pages: how many.
        cpu: the CPU.
    """

    first: int
    pages: int
    cpu: int

    def frees(self) -> np.ndarray:
        """The frees of all its pages, times not set."""
        events = np.zeros(self.pages, EVENT)
        events["object"] = self.first + np.arange(self.pages)
        events["operation"] = at.FREE
        events["cpu"] = self.cpu
        return events


def _low_to_min(machine: Machine) -> int:
    """Pages between the low and the min watermark of the largest zone."""
    zone = max(machine.zones, key=lambda each: each.managed)
    return zone.low - zone.min


def _staying_buddies(host: CacheHost) -> dict[int, int]:
    """Largest buddies that stay in use, by zone type: what the cache and the watermarks leave.

    The cache lies in the highest zone; all lower ones are in use down to where requests that may
    use the highest no longer enter them.

    Raises:
        UsageError: the highest zone has no room for the cache.
    """
    machine = host.machine
    types = len(machine.zone_types)
    counts = {}
    populated = [(index, zone) for index, zone in enumerate(machine.zones) if zone.managed]
    highest = populated[-1][0]
    for index, zone in populated:
        kept = zone.low + (zone.lowmem_reserve[types - 1] if zone.lowmem_reserve else 0)
        kept += host.cache_pages if index == highest else 0
        counts[index % types] = max(zone.managed - kept, 0) >> machine.max_order
    if counts[highest % types] == 0:
        raise UsageError(
            f"{host.cache_pages} pages of page cache do not fit into zone "
            f"{machine.zones[highest].name} of {machine.zones[highest].managed} pages"
        )
    return counts


MANAGED_SHARES = (0.985, 0.995)
"""Share of a host's memory that its allocator manages; firmware and kernel keep the rest."""

NOT_MODELLED = (
    "THP and compaction success, scanned pages and run time: the hosts have neither huge pages nor "
    "compaction, and reclaim is no more than freeing page cache while kswapd runs"
)


@dataclass(frozen=True, kw_only=True)
class SyntheticHosts:
    """Hosts full of page cache with atomic requests (`synthetic.cache_host`).

    Attributes:
        count: how many.
        gib: memory of each.
        nr_cpus: its CPUs.
        rules: its kernel's generation; "" for the newest known.
        first_seed: of the first host; the others follow.
        cache_pages: as `CacheHost` has it; 0 for what that takes, or half of the highest zone.
        read_pages: the same; 0 for what that takes.
        atomics_per_page: the same.
    """

    count: int
    gib: float = 64
    nr_cpus: int = 8
    rules: str = ""
    first_seed: int = 0
    cache_pages: int = 0
    read_pages: int = 0
    atomics_per_page: float = 0

    def hosts(self) -> list[tuple[str, CacheHost]]:
        """Each host with its name.

        Raises:
            PolicyError: no preset of these rules.
            UsageError: no such machine.
        """
        return [self._host(seed) for seed in range(self.first_seed, self.first_seed + self.count)]

    def with_other_seeds(self) -> SyntheticHosts:
        """As many hosts of the same kind, none of them the same."""
        return replace(self, first_seed=self.first_seed + self.count)

    def kernel_rules(self) -> KernelRules:
        """The rules of the hosts' kernel."""
        return KernelRules.preset(self.rules or preset_names()[-1])

    def _host(self, seed: int) -> tuple[str, CacheHost]:
        share = float(np.random.default_rng((seed, 1)).uniform(*MANAGED_SHARES))
        machine = synthetic_machine(
            self.gib, self.nr_cpus, self.kernel_rules(), managed_share=share
        )
        numbers = {
            name: value
            for name in ("cache_pages", "read_pages", "atomics_per_page")
            if (value := getattr(self, name))
        }
        if not self.cache_pages:
            highest = [zone.managed for zone in machine.zones if zone.managed][-1]
            numbers["cache_pages"] = min(CacheHost.cache_pages, highest // 2)
        return f"host {seed}", CacheHost(machine=machine, seed=seed, **numbers)


def host_identity(host: CacheHost, policy: Policy, rules: KernelRules) -> dict[str, object]:
    """All that a host's result depends on, in plain values."""
    return {"host": asdict(host), "policy": policy.given(), "rules": rules.spelled()}


def host_result(
    host: CacheHost,
    policy: Policy,
    rules: KernelRules,
    cancel: Callable[[], bool] | None = None,
) -> tuple[Row, dict[str, str | int]]:
    """A host's metrics, and what they were made from.

    Args:
        host: its load.
        policy: its kernel's.
        rules: its kernel's generation.
        cancel: as `run_cache_host` takes it.

    Raises:
        UsageError: the machine is too small for the load.
        Cancelled: `cancel` said so.
    """
    run = run_cache_host(host, policy, rules, cancel)
    metrics = {
        **state_metrics(run.machine, States.of_counts(run.free_buddies, run.blocks)),
        **fallback_metrics(run.fallback_counts),
        **lock_metrics(run.log),
        "reclaimed_pages": float(run.reclaimed_pages),
        "kswapd_wakes": float(run.kswapd_wakes),
        "atomic_requests": float(run.atomics),
        "requests_failed": float(run.failed),
        "requests_forced": float(run.forced),
    }
    provenance: dict[str, str | int] = {
        "effective_policy": str(policy),
        "effective_rules": rules.spelled(),
        "decided_by": "model",
        "version": __version__,
    }
    return metrics, provenance
