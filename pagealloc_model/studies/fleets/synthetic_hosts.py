"""Hosts made up from a few numbers, each by a seed of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import numpy as np

from pagealloc_model.base.version import __version__
from pagealloc_model.policy.kernel_rules import KernelRules, preset_names
from pagealloc_model.policy.policy import Policy
from pagealloc_model.recording.made_up_machine import made_up_machine
from pagealloc_model.studies.sweeps.metrics import (
    Row,
    fallback_metrics,
    lock_metrics,
    state_metrics,
)
from pagealloc_model.studies.synthetic.cache_host import CacheHost, run_cache_host
from pagealloc_model.verdict.quantities import States

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
        cache_pages: as `CacheHost` has it; 0 for what that takes.
        read_pages: the same.
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
        machine = made_up_machine(self.gib, self.nr_cpus, self.kernel_rules(), managed_share=share)
        numbers = {
            name: value
            for name in ("cache_pages", "read_pages", "atomics_per_page")
            if (value := getattr(self, name))
        }
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
