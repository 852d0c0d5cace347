"""Which requests came in place of one that failed (T10.4)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.base.jit import entry

REQUEST = np.dtype(
    [
        ("task", np.int32),
        ("object", np.int32),
        ("kind", np.int8),
        ("order", np.int8),
        ("failed", np.int8),
    ],
    align=True,
)
"""A recorded request: its task, its object's number (-1: a failure that is not tried), the class of
its pages, its order, whether it failed."""


@entry
def link_chains(requests: np.ndarray, leads: np.ndarray) -> None:
    """Find for each failure the same task's requests that came in its place.

    They are the task's following ones of its class and of lower order, up to as many pages as were
    asked for, until it asks for that order again. Kernel memory is replaced by one request. The
    same request again, before any smaller one, is another try.

    Args:
        requests: `REQUEST` records by task, then class, then time.
        leads: int32 by object, -1 everywhere; the nearest failure that each one replaces.
    """
    for index in range(len(requests)):
        lead = int(requests[index]["object"])
        if not requests[index]["failed"] or lead < 0:
            continue
        order = int(requests[index]["order"])
        kind = int(requests[index]["kind"])
        wanted = 1 << order
        found = 0
        following = index + 1
        while (
            following < len(requests)
            and found < wanted
            and requests[following]["task"] == requests[index]["task"]
            and int(requests[following]["kind"]) == kind
        ):
            other = int(requests[following]["object"])
            size = int(requests[following]["order"])
            failed = int(requests[following]["failed"]) == 1
            if size >= order and (size > order or not failed or found > 0):
                break
            if other >= 0:
                leads[other] = lead
            if size < order and not failed:
                found += 1 << size
                if kind < pr.ANON:
                    found = wanted
            following += 1
