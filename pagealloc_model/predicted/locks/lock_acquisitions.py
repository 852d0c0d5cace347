"""What came of every request at the locks, as tables: acquisitions, and trylocks that failed."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pagealloc_model.predicted.hold_sites import SITE_NAMES, named_sites
from pagealloc_model.predicted.locks.lock_records import (
    ABANDONED,
    ALLOCATES,
    DRAINS,
    FREES,
    REFILLS,
    SERVED,
)
from pagealloc_model.predicted.locks.lock_requests import Requests
from pagealloc_model.recording.machine import Machine

WORK_COLUMNS = ("objects", "pages", "splits", "merges", "inserts", "scanned")
LOG_COLUMN = dict(zip(WORK_COLUMNS, (6, 7, 8, 9, 10, 11), strict=True))

TRYLOCK = "trylock"
"""Cause of a hold that moves one page past the list, because a trylock of the list failed."""

_ALLOCATED_PAST_LIST, _FREED_PAST_LIST = len(SITE_NAMES), len(SITE_NAMES) + 1
_NAMES = np.array(
    [
        *(SITE_NAMES[site] for site in range(len(SITE_NAMES))),
        ("buddy_alloc", TRYLOCK),
        ("direct_free", TRYLOCK),
    ],
    object,
)


def acquisitions_table(
    log: np.ndarray,
    requests: Requests,
    outcomes: np.ndarray,
    machine: Machine,
    *,
    trylock_fails: bool,
) -> pd.DataFrame:
    """One row for each request that took zone->lock, see `LockTimes.acquisitions`.

    Args:
        log: int64, shape (rows, LOG_COLUMNS): the holds that the requests were made from.
        requests: what CPUs were to do.
        outcomes: `OUTCOME` records, one for each.
        machine: names of zones.
        trylock_fails: a request whose list was busy moved one page past it.
    """
    served = outcomes["end"] == SERVED
    cpu = np.repeat(np.arange(machine.nr_cpus), np.diff(requests.first))[served]
    records, outcomes, source = requests.records[served], outcomes[served], requests.source[served]
    logged = source < len(log)
    holds = log[np.where(logged, source, 0)]
    site = named_sites(holds)
    if trylock_fails:
        takes = np.isin(records["role"], (REFILLS, ALLOCATES))
        past_list = np.where(takes, _ALLOCATED_PAST_LIST, _FREED_PAST_LIST)
        site = np.where(outcomes["list_was_busy"] != 0, past_list, site)
    names = np.array([zone.name for zone in machine.zones], object)
    nodes = np.array([zone.node for zone in machine.zones])
    return pd.DataFrame(
        {
            "time_ns": np.where(logged, holds[:, 1], records["time_ns"]),
            "zone": _categories(names[records["lock"]]),
            "node": nodes[records["lock"]],
            "cpu": cpu,
            "list_cpu": np.where(logged, holds[:, 3], cpu),
            "site": _categories(_NAMES[site, 0]),
            "cause": _categories(_NAMES[site, 1]),
            **_work(holds, site, outcomes["pages"].astype(np.int64)),
            "arrival_ns": outcomes["arrival_ns"],
            "start_ns": outcomes["start_ns"],
            "hold_ns": outcomes["hold_ns"],
            "wait_ns": outcomes["start_ns"] - outcomes["arrival_ns"],
            "list_wait_ns": outcomes["list_wait_ns"],
            "ahead": outcomes["ahead"],
            "list_was_busy": outcomes["list_was_busy"] != 0,
        }
    )


def _work(holds: np.ndarray, site: np.ndarray, pages: np.ndarray) -> dict[str, np.ndarray]:
    """Units of work: the model's, in proportion to the pages that were still there to move."""
    planned = holds[:, LOG_COLUMN["pages"]]
    part, whole = np.where(planned > 0, pages, 1), np.maximum(planned, 1)
    work = {name: holds[:, column] * part // whole for name, column in LOG_COLUMN.items()}
    past_list = site >= len(SITE_NAMES)
    for name in WORK_COLUMNS:
        work[name][past_list] = 0
    work["objects"][past_list] = 1
    work["pages"] = np.where(past_list, pages, work["pages"])
    work["inserts"][site == _FREED_PAST_LIST] = 1
    return work


def trylocks_table(
    requests: Requests, outcomes: np.ndarray, machine: Machine, *, trylock_fails: bool
) -> pd.DataFrame:
    """Trylocks of lists that failed, one row per CPU, see `LockTimes.trylocks`.

    Args:
        requests: what CPUs were to do.
        outcomes: `OUTCOME` records, one for each.
        machine: number of CPUs.
        trylock_fails: failures have consequences; otherwise nothing is counted.
    """
    cpu = np.repeat(np.arange(machine.nr_cpus), np.diff(requests.first))
    role, pages = requests.records["role"], requests.records["pages"].astype(np.int64)
    failed = (outcomes["list_was_busy"] != 0) & trylock_fails
    abandoned = outcomes["end"] == ABANDONED
    not_begun = failed & (role == DRAINS)
    left = np.where(abandoned, pages, np.where(not_begun, pages - 1, 0))
    counted = {
        "frees": failed & np.isin(role, (DRAINS, FREES)),
        "allocations": failed & np.isin(role, (REFILLS, ALLOCATES)),
        "drains_cut_short": failed & abandoned,
        "pages_left": left,
    }
    columns = {
        name: np.bincount(cpu, weights=values, minlength=machine.nr_cpus).astype(np.int64)
        for name, values in counted.items()
    }
    return pd.DataFrame({"cpu": np.arange(machine.nr_cpus), **columns})


def _categories(values: np.ndarray) -> pd.Categorical:
    categories, codes = np.unique(values.astype(str), return_inverse=True)
    return pd.Categorical.from_codes(codes, categories)
