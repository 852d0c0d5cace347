"""Which fallback rule a kernel follows, from the order of its events (T4, T6)."""

from __future__ import annotations

import numpy as np

from pagealloc_model.measured.evidence.finding import Finding
from pagealloc_model.measured.stream import Stream
from pagealloc_model.recording.trace.columns import Event

FALLBACKS_MIN = 10
ANNOUNCED_SHARE = 0.1


def generation(stream: Stream) -> Finding | None:
    """Whether a fallback moves the largest buddy (6.1's rule) or claims, then steals.

    6.1 announces the buddy it falls back to, then takes a page from the requester's own list,
    which often begins with that buddy: zone_locked of the same page follows. With claim and steal
    it precedes the fallback's event or is not emitted at all.
    """
    fallbacks = np.flatnonzero(stream.is_kind(Event.EXTFRAG))
    if len(fallbacks) < FALLBACKS_MIN:
        return None
    following = np.minimum(fallbacks + 1, len(stream) - 1)
    taken_after = (
        stream.is_kind(Event.ZONE_LOCKED)[following]
        & (stream.cpu[following] == stream.cpu[fallbacks])
        & (stream.pfn[following] == stream.pfn[fallbacks])
    )
    count = int(np.count_nonzero(taken_after))
    line = f"{count} of {len(fallbacks)} fallbacks are announced before their page is taken"
    return Finding(value=count > ANNOUNCED_SHARE * len(fallbacks), line=line)
