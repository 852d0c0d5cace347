"""A scenario: demand made up on a machine, as events that the model replays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.recording.machine import Machine

GFP_HIGHUSER_MOVABLE = 0x100CCA & at.GFP_READ_BITS
"""Bits that decide, of a page fault's request (S2.4)."""


@dataclass(frozen=True, kw_only=True)
class Mapping:
    """Single pages that one CPU touches in a row and one CPU frees in a row.

    Attributes:
        pages: how many.
        touched_ns: when the first is allocated.
        touch_ns: time from one allocation to the next.
        cpu: the CPU that allocates.
        freed_ns: when the first is freed; not before the last is allocated.
        free_ns: time from one free to the next.
        freeing_cpu: the CPU that frees.
    """

    pages: int
    touched_ns: int
    touch_ns: int
    cpu: int
    freed_ns: int
    free_ns: int
    freeing_cpu: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Scenario:
    """Demand on a machine whose memory is all free at first.

    Attributes:
        name: of the scenario.
        machine: where it runs.
        events: `layout.EVENT` records in time order.
        objects: how many objects the events are about.
        lines: what was assumed, one line each.
        seed: of its random choices.
        kswapd_recorded: kswapd's runs are events, not the model's to decide.
        direct_reclaim_recorded: direct reclaim is marked on the requests it runs for.
    """

    name: str
    machine: Machine
    events: np.ndarray
    objects: int
    lines: tuple[str, ...] = ()
    seed: int = 0
    kswapd_recorded: bool = False
    direct_reclaim_recorded: bool = False


def events_of(mappings: Sequence[Mapping], machine: Machine) -> np.ndarray:
    """The allocations and frees of mappings, in time order.

    Args:
        mappings: each gets object numbers of its own, in order.
        machine: its zone types.
    """
    pages = np.array([each.pages for each in mappings], np.int64)
    total = int(pages.sum())
    events = np.zeros(2 * total, at.EVENT)
    step = np.arange(total) - np.repeat(np.cumsum(pages) - pages, pages)
    for part, operation, start, pace, cpu in (
        (events[:total], at.ALLOC, "touched_ns", "touch_ns", "cpu"),
        (events[total:], at.FREE, "freed_ns", "free_ns", "freeing_cpu"),
    ):
        first, gap, who = (
            np.repeat(np.array([getattr(each, name) for each in mappings], np.int64), pages)
            for name in (start, pace, cpu)
        )
        part["time_ns"] = first + step * gap
        part["cpu"] = who
        part["operation"] = operation
        part["object"] = np.arange(total)
    allocations = events[:total]
    allocations["migratetype"] = at.MOVABLE
    allocations["bits"] = GFP_HIGHUSER_MOVABLE
    allocations["zone"] = len(machine.zone_types) - 1
    return in_time_order(events)


def in_time_order(events: np.ndarray) -> np.ndarray:
    """Events sorted by time; those of one time stay in order."""
    return events[np.argsort(events["time_ns"], kind="stable")]


def plain_events(operation: int, times: np.ndarray, cpus: np.ndarray) -> np.ndarray:
    """Events that concern no object, such as a drain of all lists."""
    events = np.zeros(len(times), at.EVENT)
    events["time_ns"] = times
    events["cpu"] = cpus
    events["operation"] = operation
    events["object"] = -1
    return events
