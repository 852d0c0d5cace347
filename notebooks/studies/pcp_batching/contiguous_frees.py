"""Ranges of pages allocated whole and freed page by page, or as the chunk that they are."""

from __future__ import annotations

import numpy as np

import pagealloc_model as pm

FIRST_NS = 1_000_000
PIECE_NS = 80
"""From one free to the next."""
PAUSE_NS = 10_000
"""From the last free of a range to the next allocation, at most."""


def contiguous_frees(
    machine: pm.synthetic.Machine,
    *,
    ranges: int = 1000,
    pages: int = 512,
    in_chunks: bool = False,
    seed: int = 0,
) -> pm.synthetic.Demand:
    """One CPU allocates ranges of pages, splits them, and frees each at once (S13).

    What "mm/page_alloc: Optimize free_contig_range()" is measured with: page by page as
    free_contig_range() and vfree() did, or in the largest aligned chunks.
    """
    order = pages.bit_length() - 1
    if ranges < 1 or pages < 1 or pages != 1 << order or order > machine.max_order:
        raise pm.UsageError(
            f"{ranges} ranges of {pages} pages: at least one, of a power of two pages up to "
            f"{1 << machine.max_order}"
        )
    pieces = 1 if in_chunks else pages
    pauses = np.random.default_rng(seed).integers(1, PAUSE_NS, ranges)
    starts = FIRST_NS + np.cumsum(pauses + PIECE_NS * pieces)
    requests = pm.synthetic.Requests(machine)
    numbers = requests.ask(
        starts,
        gfp=pm.synthetic.Gfp.KERNEL,
        migratetype=pm.synthetic.Migratetype.UNMOVABLE,
        order=order,
        zone=machine.zone_types[-1],
    )
    piece = np.tile(np.arange(pieces), ranges)
    requests.free(
        np.repeat(starts, pieces) + PIECE_NS * (piece + 1),
        np.repeat(numbers, pieces),
        order=order if in_chunks else 0,
        offset=0 if in_chunks else piece,
    )
    words = "in one chunk" if in_chunks else "page by page"
    line = f"{ranges} ranges of {pages} pages allocated and freed {words}"
    return requests.demand("ranges", seed=seed, lines=(line,))
