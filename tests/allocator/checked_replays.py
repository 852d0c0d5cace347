"""Digests of replays of shipped recordings under policies that take different ways.

As a program it prints them, for a process whose kernels are compiled with checks:
`PAGEALLOC_CHECKED=1 python -m tests.allocator.checked_replays`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pagealloc_model as pm

RECORDINGS = ("kbuild", "xfree", "highatomic_stock")
WAYS: tuple[tuple[str, dict[str, object]], ...] = (
    ("literal", {}),
    ("literal", {"pcp_free_batched": True, "highatomic_gate_order": 3}),
    ("literal", {"pageblock_ownership": "pcp_buddy"}),
    ("elastic", {}),
    ("elastic", {"defrag_mode": True}),
)
"""Mode of reclaim, and settings that differ from the recorded ones."""


def digests() -> Iterator[str]:
    """A line for each recording and way: its number and a hash of the final state."""
    for name in RECORDINGS:
        recording = pm.open(name)
        for number, (mode, settings) in enumerate(WAYS):
            replay = pm.replay(
                recording, pm.Policy(**settings), assumptions=pm.Assumptions(reclaim=mode)
            )
            found = hashlib.sha256(replay.log.tobytes())
            for array in (replay.final.pages, replay.final.blocks, replay.final.st, replay.places):
                found.update(array.tobytes())
            yield f"{name} {number} {found.hexdigest()}"


if __name__ == "__main__":
    for line in digests():
        print(line)
