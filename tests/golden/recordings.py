"""Part `recordings`: what is read of each recording, and what the recorded kernel did by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pagealloc_model as pm
from tests.golden.digests import hash_of_value
from tests.golden.replays import full_names, opened, shipped_names

MEASURED = (
    *("free_pages", "pageblocks", "pcp", "boosts", "vmstat", "block_types", "fallbacks"),
    *("outcomes", "transactions", "transactions_full", "lock", "holds", "contended_releases"),
    *("boundaries", "unseen_sites", "notes"),
)

# What a Recording is asked for by name, in one place.
READ: dict[str, Callable[[pm.Recording], object]] = {
    "sha256": lambda recording: recording.sha256,
    "events": lambda recording: recording.trace.to_pandas(),
    "release": lambda recording: recording.release,
    "missing": lambda recording: recording.missing,
    "snapshots": lambda recording: [each.time_ns for each in recording.dated_snapshots],
    "kpageflags": lambda recording: recording.kpageflags,
}


def cases(full: bool) -> Iterator[str]:
    """Names of recordings; with "full:" before it, one of PAGEALLOC_RECORDINGS."""
    yield from shipped_names()
    if full:
        yield from (f"full:{name}" for name in full_names())


def run(case: str) -> dict[str, str]:
    """A hash for each thing read of a recording and each table measured from it."""
    recording = opened(case)
    found = {name: hash_of_value(attribute(recording)) for name, attribute in READ.items()}
    measured = recording.measure()
    return found | {f"measured {name}": hash_of_value(getattr(measured, name)) for name in MEASURED}
