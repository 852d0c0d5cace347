"""What probes show of alloc_pages_bulk(), which has no tracepoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

BULK_EVENT, BULK_RETURN = "pa:alloc_bulk", "pa:alloc_bulk_ret"
_PAGE_STRUCT_BYTES = 64


def bulk_pages(returns: Mapping[str, np.ndarray], row: int) -> Iterator[int]:
    """Page frames of the pages that a call returned with, -1 for those that the probe did not see.

    Args:
        returns: the table `BULK_RETURN`.
        row: which return.
    """
    got, base = int(returns["got"][row]), int(returns["base"][row]) if "base" in returns else 0
    for place in range(got):
        name = f"page{place}"
        known = name in returns
        yield (int(returns[name][row]) - base) // _PAGE_STRUCT_BYTES if known else -1
