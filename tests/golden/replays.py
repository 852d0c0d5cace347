"""Part `replay`: recordings under policies, literal and elastic; each array and table a hash."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

import numpy as np

import pagealloc_model as pm
from tests.golden.digests import CHECKOUT, hash_of_array, hash_of_table, hash_of_value

POLICIES: dict[str, dict[str, object]] = {
    "mainline": {},
    "gate": {"highatomic_gate_order": 3},
    "batched": {"pcp_free_batched": True},
    "ownership": {"pageblock_ownership": "pcp_buddy"},
    "defrag": {"defrag_mode": True},
}
MODES = ("literal", "elastic")
SMALL = ("defrag_7.3", "highatomic_gate3")
"""Recordings that are replayed under every single setting as well."""
SETTINGS = (
    *("highatomic_reserve_percent=3", "highatomic_from_pcp=1", "costly_order=1", "pcp_batch=15"),
    *("pcp_high_min=64", "pcp_high_max=256", "percpu_pagelist_high_fraction=16"),
    *("pcp_batch_scale_max=0", "pcp_decay_batched=1", "pcp_drain_batched=1"),
    *("min_free_kbytes=65536", "watermark_scale_factor=100", "watermark_boost_factor=0"),
    *("refill_mode_persists=1", "atomic_boost=1"),
    *("highatomic_fastpath=1", "highatomic_slowpath_only=1", "defrag_kswapd_assist=1"),
    *("defrag_watermarks=1", "compact_gap=0", "extfrag_threshold=100", "thp_defrag=never"),
    *("compaction_proactiveness=100", "vfs_cache_pressure=10", "local_thp_reclaims=1"),
    *("score_without_highatomic=1", "kcompactd_unreserves=1"),
    *("ownership.fit_test=always", "ownership.claims_up_to_order=0", "ownership.cma_first=1"),
    *("ownership.owning_types=movable", "ownership.recover_limit=1", "ownership.merges_at=free"),
    *("ownership.recorded_lists=per_type", "ownership.chunk_search=smallest"),
    "ownership.remote_free=lockless",
    *("ownership.remote_overflow=owner", "ownership.plain_frees=local"),
    *("ownership.drain_from=freed_list", "ownership.fragments=as_usual"),
    *("ownership.recorded_cap=2", "ownership.ownership_ends=drained", "ownership.full_drain=end"),
    *("ownership.type_change=end", "ownership.routes_frees=0", "ownership.claims_blocks=0"),
    *("ownership.recovers=0", "ownership.pressure_claims=1"),
)
RULES = ("6.1", "6.12", "6.15", "6.18", "7.2", "7.3")
"""Series of kernels whose rules the small recordings are replayed with."""


def log_words(replay: pm.Replay) -> np.ndarray:
    """The log in words of one width: what a hold has; of a free to a list, its lock as object."""
    names = (
        *("kind", "time_ns", "zone", "cpu", "order", "migratetype", "objects", "pages"),
        *("splits", "merges", "inserts", "scanned", "ran_on"),
    )
    log = replay.log
    words = {name: log[name] for name in names} | {"objects": log["objects"] + log["takes_lock"]}
    return np.stack([*words.values()], axis=1)


# What a Replay is asked for by name, in one place: a renamed attribute is an edit here alone.
ARRAYS: dict[str, Callable[[pm.Replay], object]] = {
    "state.pages": lambda replay: replay.final.pages,
    "state.blocks": lambda replay: replay.final.blocks,
    "state.st": lambda replay: replay.final.st,
    "state.folios": lambda replay: replay.final.folios,
    "log": log_words,
    "places": lambda replay: replay.places,
    "edges": lambda replay: replay.edges,
    "fallback_counts": lambda replay: replay.fallback_counts,
    "refill_probes": lambda replay: replay.refill_probes,
    "divergence": lambda replay: replay.divergence,
    "start_state": lambda replay: replay.start_state,
    "effective policy": lambda replay: replay.policy.given(),
    "rules": lambda replay: replay.rules.spelled(),
    "checks": lambda replay: [check.to_dict() for check in replay.checks],
    "zones": lambda replay: [asdict(zone) for zone in replay.machine.zones],
    "demand.events": lambda replay: replay.demand.events,
}
SAMPLES = ("time_ns", "free_buddies", "blocks", "pcp", "boosts", "list_locks", "ownership")
COUNTERS = "counters"
TABLES = (
    *("free_pages", "pageblocks", "pcp", "boosts", "lock", "list_use", "refill_phases"),
    *("transactions_full", "transactions", "fallbacks", "outcomes", "vmstat"),
)


def shipped_names() -> list[str]:
    """Names of the recordings in data/."""
    return sorted(path.parent.name for path in (CHECKOUT / "data").glob("*/meta.json"))


def full_names() -> list[str]:
    """Names of the recordings in the folder that PAGEALLOC_RECORDINGS names, none without it."""
    folder = os.environ.get("PAGEALLOC_RECORDINGS")
    if not folder:
        return []
    return sorted(path.parent.name for path in Path(folder).glob("*/meta.json"))


def cases(full: bool) -> Iterator[str]:
    """Names of cases: recording; policy, setting or rules; mode."""
    for name in shipped_names():
        yield from (f"{name} {policy} {mode}" for policy in POLICIES for mode in MODES)
        if name in SMALL:
            yield from (f"{name} {setting} {mode}" for setting in SETTINGS for mode in MODES)
            yield from (f"{name} rules={series} {mode}" for series in RULES for mode in MODES)
            yield from (f"{name} window {mode}" for mode in MODES)
    if full:
        for name in full_names():
            yield from (f"full:{name} {policy} {mode}" for policy in POLICIES for mode in MODES)


QUICK_CASES = [
    f"{name} {way}"
    for name in ("mixed_6.1", "defrag_7.3", "zram_swap_A1")
    for way in ("mainline literal", "gate literal", "mainline elastic")
]
"""Those that `make test` looks at: the three smallest recordings."""


BY_RECORDING = True  # a recording is opened once for all its cases


@lru_cache(maxsize=1)
def opened(name: str) -> pm.Recording:
    """A recording: of data/, or with "full:" before its name one of PAGEALLOC_RECORDINGS."""
    kind, colon, full_name = name.partition(":")
    if colon and kind == "full":
        return pm.open(Path(os.environ["PAGEALLOC_RECORDINGS"]) / full_name)
    return pm.open(CHECKOUT / "data" / name)


def run(case: str) -> dict[str, str]:
    """A hash for each array and table of one case, or the error that refuses it."""
    name, what, mode = case.split(" ")
    rules = what.removeprefix("rules=") if what.startswith("rules=") else None
    try:
        replay = pm.replay(
            opened(name),
            _policy(what),
            rules=rules,
            assumptions=pm.Assumptions(reclaim=mode),
            window=(0.5, 1.5) if what == "window" else None,
        )
    except pm.PageallocError as error:
        return {"refused": type(error).__name__}
    return hashes(replay)


def _policy(what: str) -> pm.Policy:
    if what in POLICIES:
        return pm.Policy(**POLICIES[what])
    if what == "window" or what.startswith("rules="):
        return pm.Policy()
    with_ownership = ["pageblock_ownership=pcp_buddy"] if what.startswith("ownership.") else []
    return pm.Policy.parse([*with_ownership, what])


def hashes(replay: pm.Replay) -> dict[str, str]:
    """A hash for each array, sample and table of a replay."""
    found = {name: hash_of_value(attribute(replay)) for name, attribute in ARRAYS.items()}
    found |= {f"samples.{name}": hash_of_array(getattr(replay.samples, name)) for name in SAMPLES}
    if replay.assumptions.reclaim == "elastic":
        found[f"samples.{COUNTERS}"] = hash_of_array(getattr(replay.samples, COUNTERS))
    found |= {f"table {name}": hash_of_table(getattr(replay, name)) for name in TABLES}
    return found
