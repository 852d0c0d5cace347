"""Ranges of pages allocated whole and freed page by page, or as the chunk that they are."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.text.counts import count_of
from pagealloc_model.recording.machine import Machine
from pagealloc_model.studies.workload.scenario import Scenario, in_time_order

GFP_KERNEL = at.GFP_DIRECT_RECLAIM | at.GFP_KSWAPD_RECLAIM | pr.GFP_IO | pr.GFP_FS
FIRST_NS = 1_000_000
PIECE_NS = 80
"""From one free to the next."""
PAUSE_NS = 10_000
"""From the last free of a range to the next allocation, at most."""


def contiguous_frees(
    machine: Machine,
    *,
    ranges: int = 1000,
    pages: int = 512,
    in_chunks: bool = False,
    seed: int = 0,
) -> Scenario:
    """One CPU allocates ranges of pages, splits them, and frees each at once (S13).

    What "mm/page_alloc: Optimize free_contig_range()" is measured with: page by page as
    free_contig_range() and vfree() did, or in the largest aligned chunks.

    Args:
        machine: where.
        ranges: how many, one after the other.
        pages: of each, freed from its start on.
        in_chunks: each is freed as the buddy that it was, the largest aligned chunk; otherwise as
            single pages.
        seed: of the pauses.

    Raises:
        UsageError: no range, or one that is no power of two of pages or too large for a buddy.
    """
    order = pages.bit_length() - 1
    if ranges < 1 or pages < 1 or pages != 1 << order or order > machine.max_order:
        raise UsageError(
            f"{ranges} ranges of {pages} pages: at least one, of a power of two pages up to "
            f"{1 << machine.max_order}"
        )
    pieces = 1 if in_chunks else pages
    pauses = np.random.default_rng(seed).integers(1, PAUSE_NS, ranges)
    starts = FIRST_NS + np.cumsum(pauses + PIECE_NS * pieces)
    events = np.zeros(ranges * (1 + pieces), at.EVENT)
    asked, freed = events[:ranges], events[ranges:]
    asked["time_ns"], asked["object"] = starts, np.arange(ranges)
    asked["operation"], asked["order"], asked["bits"] = at.ALLOC, order, GFP_KERNEL
    asked["zone"] = len(machine.zone_types) - 1
    number = np.tile(np.arange(pieces), ranges)
    freed["time_ns"] = np.repeat(starts, pieces) + PIECE_NS * (number + 1)
    freed["object"] = np.repeat(np.arange(ranges), pieces)
    freed["operation"] = at.FREE
    freed["offset"] = 0 if in_chunks else number
    freed["order"] = order if in_chunks else 0
    words = "in one chunk" if in_chunks else "page by page"
    return Scenario(
        name="ranges",
        machine=machine,
        events=in_time_order(events),
        objects=ranges,
        seed=seed,
        lines=(
            f"{count_of(ranges, 'range')} of {count_of(pages, 'page')} allocated and freed {words}",
        ),
    )
