"""Tasks whose realtime priority lets their requests dip into the min reserve (S2.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.allocator.core import layout as at

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording

_REALTIME_OPTIONS = ("-r", "--realtime")
_RECORDER = "perf"


def realtime_tasks(recording: Recording) -> frozenset[int]:
    """Thread ids of the recorder, if it was started with a realtime priority.

    No event tells a task's scheduling class; of the recorder the command line does.
    """
    command = [str(word) for word in recording.meta.get("perf") or ()]
    if not any(word.split("=")[0] in _REALTIME_OPTIONS for word in command):
        return frozenset()
    comms = recording.trace.comms
    return frozenset(pid for pid, comm in comms.items() if comm == _RECORDER)


def with_reserve(gfp: np.ndarray) -> np.ndarray:
    """Words (gfp) of a realtime task's requests: those that may reclaim count as __GFP_HIGH ones.

    The kernel gives both the same allocation flag, and reads it from nowhere else. What an
    interrupt asks for in the task's name may not reclaim.

    Args:
        gfp: uint32.
    """
    may_reclaim = gfp & np.uint32(at.GFP_DIRECT_RECLAIM) != 0
    return np.where(may_reclaim, gfp | np.uint32(at.GFP_HIGH), gfp)
