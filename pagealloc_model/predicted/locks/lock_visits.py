"""Allocations and frees that a CPU's list serves, where another CPU may hold that list's lock.

They take zone->lock only if their trylock fails (S4.10), so no hold of a replay tells of them.
"""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.policy.policy import Policy
from pagealloc_model.recording.machine import Machine

COSTLY_ORDER = 3
VISIT = np.dtype(
    [
        ("time_ns", np.int64),
        ("cpu", np.int16),
        ("zone", np.int16),
        ("order", np.int8),
        ("frees", np.bool_),
    ]
)
"""An allocation or a free that needs a CPU's own list of a zone only."""

NO_VISITS = np.zeros(0, VISIT)
_ALLOCATIONS = (at.ALLOC, at.HIDDEN_ALLOC)


def list_visits(
    log: np.ndarray, events: np.ndarray, places: np.ndarray, machine: Machine, policy: Policy
) -> np.ndarray:
    """`VISIT` records in time order, from the first drain of another CPU's list on.

    Left out are pages that the model put nowhere or that served a request in single pages.

    Args:
        log: int64, shape (rows, LOG_COLUMNS): every hold of zone->lock.
        events: `layout.EVENT` records in time order.
        places: int32, first page of each object.
        machine: its zones.
        policy: which orders the lists hold.
    """
    holds = log[log[:, 0] < at.SITES]
    remote = (holds[:, 0] == at.SITE_DRAIN_ALL) & (holds[:, 3] != holds[:, at.LOG_RAN_ON])
    if not remote.any():
        return NO_VISITS
    begun = np.searchsorted(events["time_ns"], holds[remote, 1].min())
    events = events[begun:]
    costly = COSTLY_ORDER if policy.costly_order is None else policy.costly_order
    frees = events["operation"] == at.FREE
    listed = (frees | np.isin(events["operation"], _ALLOCATIONS)) & (events["order"] <= costly)
    events, frees = events[listed], frees[listed]
    place = places[events["object"]]
    visits = np.zeros(len(events), VISIT)
    for name in ("time_ns", "cpu", "order"):
        visits[name] = events[name]
    visits["frees"] = frees
    visits["zone"] = _zones(place, machine)
    return visits[(visits["zone"] >= 0) & ~_took_the_lock(visits, holds)]


def _zones(place: np.ndarray, machine: Machine) -> np.ndarray:
    """Zone of each page, -1 where there is none."""
    zones = np.full(len(place), -1, np.int16)
    for number, zone in enumerate(machine.zones):
        zones[(place >= zone.start_pfn) & (place < zone.end_pfn)] = number
    return zones


def _took_the_lock(visits: np.ndarray, holds: np.ndarray) -> np.ndarray:
    """Whether an event's own CPU held zone->lock at its time: then the log has it already."""
    order = np.argsort(holds[:, 1], kind="stable")
    times, cpus = holds[order, 1], holds[order, at.LOG_RAN_ON]
    took = np.zeros(len(visits), bool)
    for cpu in np.unique(cpus):
        mine = np.flatnonzero(visits["cpu"] == cpu)
        took[mine] = np.isin(visits["time_ns"][mine], times[cpus == cpu])
    return took
