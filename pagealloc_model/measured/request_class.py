"""Classes of allocation requests, by what their gfp word allows (S2)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pagealloc_model.recording.trace.gfp_names import stable_gfp_bits

REQUEST_CLASSES = ("thp", "atomic", "nowait", "movable", "reclaimable", "kernel")


def request_classes(
    gfp: np.ndarray, order: np.ndarray, *, bits: Mapping[str, int], pmd_order: int = 9
) -> np.ndarray:
    """The class of each request, as an index into `REQUEST_CLASSES`.

    thp: movable huge page of `pmd_order`; atomic: HIGH without direct reclaim; nowait: no direct
    reclaim otherwise; then by mobility, movable, reclaimable and kernel.

    Args:
        gfp: uint32 gfp words.
        order: requested orders.
        bits: the recording's flag names; names it lacks have their stable bit (S2.3).
        pmd_order: order of a huge page.

    Returns:
        int8, one index per request.
    """

    def has(name: str) -> np.ndarray:
        return _has(gfp, name, bits)

    waits, movable = may_direct_reclaim(gfp, bits), has("__GFP_MOVABLE")
    conditions = [
        movable & has("__GFP_COMP") & has("__GFP_NOMEMALLOC") & (order == pmd_order),
        has("__GFP_HIGH") & ~waits,
        ~waits,
        movable,
        has("__GFP_RECLAIMABLE"),
    ]
    kernel = len(conditions)
    return np.select(conditions, list(range(kernel)), kernel).astype(np.int8)


def may_direct_reclaim(gfp: np.ndarray, bits: Mapping[str, int]) -> np.ndarray:
    """Mask of the gfp words that allow direct reclaim."""
    return _has(gfp, "__GFP_DIRECT_RECLAIM", bits)


def _has(gfp: np.ndarray, name: str, bits: Mapping[str, int]) -> np.ndarray:
    mask = bits[name] if name in bits else stable_gfp_bits(None)[name]
    return (gfp & np.uint32(mask)) != 0
