"""A replay's holds of zone->lock, and visits to lists, as input of the queue at the locks (S11)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.predicted.locks.lock_records import (
    ALLOCATES,
    DECAYS,
    DRAINS,
    EMPTIES,
    FREES,
    GOES_ON,
    REFILLS,
    REQUEST,
)
from pagealloc_model.recording.machine import Machine

ROLES = {
    at.SITE_REFILL: REFILLS,
    at.SITE_DRAIN_COMMIT: DRAINS,
    at.SITE_DRAIN_DECAY: DECAYS,
    at.SITE_DRAIN_ALL: EMPTIES,
}
"""What holds of these sites do at a list's lock; other sites need no list."""

_ENDS_AT_EVENT = (at.SITE_REFILL, at.SITE_BUDDY_ALLOC)


@dataclass(frozen=True, kw_only=True, eq=False)
class Requests:
    """What CPUs do, CPU after CPU, each in its order.

    Attributes:
        records: `REQUEST` records.
        source: int64, row of the log or, behind those, number of the visit.
        first: int64, shape (CPUs + 1,): where each CPU's begin.
    """

    records: np.ndarray
    source: np.ndarray
    first: np.ndarray


def lock_requests(
    log: np.ndarray, visits: np.ndarray, machine: Machine, hold_ns: np.ndarray
) -> Requests:
    """The queue's input, with times as they are when nobody else comes.

    Args:
        log: int64, shape (rows, LOG_COLUMNS): holds in time order.
        visits: `lock_visits.VISIT` records.
        machine: number of CPUs.
        hold_ns: int64, for how long each row of the log holds the lock.
    """
    cpu = np.concatenate([log[:, at.LOG_RAN_ON], visits["cpu"]])
    time_ns = np.concatenate([log[:, 1], visits["time_ns"]])
    source = np.lexsort((time_ns, cpu))
    first = np.searchsorted(cpu[source], np.arange(machine.nr_cpus + 1))
    together = np.zeros(len(cpu), REQUEST)
    _describe_holds(together[: len(log)], log, machine, hold_ns)
    _describe_visits(together[len(log) :], visits, machine)
    records = together[source]
    records["role"][_continues(records, time_ns[source], cpu[source])] = GOES_ON
    for begin, end in itertools.pairwise(first):
        _one_after_the_other(records[begin:end])
    return Requests(records=records, source=source, first=first)


def _describe_holds(
    records: np.ndarray, log: np.ndarray, machine: Machine, hold_ns: np.ndarray
) -> None:
    """An allocation's event comes after its hold, a free's before it (T1.3)."""
    site = log[:, 0]
    records["time_ns"] = log[:, 1] - np.where(np.isin(site, _ENDS_AT_EVENT), hold_ns, 0)
    records["hold_ns"] = hold_ns
    records["pages"] = log[:, 7]
    records["lock"] = log[:, 2]
    records["list_lock"] = -1
    for number, role in ROLES.items():
        mine = site == number
        records["list_lock"][mine] = log[mine, 2] * machine.nr_cpus + log[mine, 3]
        records["role"][mine] = role


def _describe_visits(records: np.ndarray, visits: np.ndarray, machine: Machine) -> None:
    records["time_ns"] = visits["time_ns"]
    records["pages"] = np.int32(1) << visits["order"].astype(np.int32)
    records["lock"] = visits["zone"]
    records["list_lock"] = visits["zone"].astype(np.int32) * machine.nr_cpus + visits["cpu"]
    records["role"] = np.where(visits["frees"], FREES, ALLOCATES)


def _continues(records: np.ndarray, time_ns: np.ndarray, cpu: np.ndarray) -> np.ndarray:
    """Batches after the first of one free's drain: its list, at its time (S4.7)."""
    follows = np.zeros(len(records), bool)
    drains = records["role"] == DRAINS
    drains &= records["list_lock"] >= 0
    follows[1:] = (
        (drains[1:] & drains[:-1])
        & (time_ns[1:] == time_ns[:-1])
        & (cpu[1:] == cpu[:-1])
        & (records["list_lock"][1:] == records["list_lock"][:-1])
    )
    return follows


def _one_after_the_other(records: np.ndarray) -> None:
    """What one CPU does begins when what it did before is over."""
    before = np.cumsum(records["hold_ns"]) - records["hold_ns"]
    records["time_ns"] = before + np.maximum.accumulate(records["time_ns"] - before)
