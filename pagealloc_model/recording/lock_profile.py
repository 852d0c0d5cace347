"""Time under zone->lock from a profile of the untraced machine (S11.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.files import MOST_TEXT, lines_of

PROFILE_FILE = "profile.folded"
CLOCK_EVENT = "cpu-clock"
UNLOCK = "_raw_spin_unlock_irqrestore"
LOCK = ("_raw_spin_lock", "native_queued_", "__pv_queued_spin_lock")
HOLDS = {
    "rmqueue_bulk": "refill",
    "free_pcppages_bulk": "drain",
    "rmqueue_buddy": "buddy_alloc",
    "free_one_page": "direct_free",
}
"""Functions that hold zone->lock from their beginning to their end."""
LETS_GO = {
    "__rmqueue_pcplist": "refill",
    "free_frozen_page_commit": "drain",
    "free_unref_page_commit": "drain",
    "decay_pcp_high": "drain",
    "drain_pages_zone": "drain",
    "drain_zone_pages": "drain",
}
"""Functions that let go of it where the compiler put one of those into them, or jumped there.
Samples of a clock wait until interrupts are on again, so these then stand for whole holds."""
_NEAREST = 4
_DIGITS = 20


@dataclass(frozen=True, kw_only=True)
class LockProfile:
    """A profile's account of zone->lock.

    Attributes:
        samples: number of samples under the lock, by site.
        sample_ns: time of a busy CPU that a sample stands for.
        seconds: length of the profile.
        repeats_command: it is of the recorded command, run once more; otherwise of the machine.
    """

    samples: Mapping[str, int]
    sample_ns: float
    seconds: float
    repeats_command: bool

    def held_ns(self, site: str) -> float:
        """Time that the lock was held at a site, waits with interrupts off included."""
        return self.samples.get(site, 0) * self.sample_ns


def read_lock_profile(path: Path, meta: Mapping[str, Any]) -> LockProfile:
    """A recording's profile: chains, outermost function first, each with its count.

    `meta` is `profile` of meta.json.
    """
    samples: Counter[str] = Counter()
    try:
        by_clock = str(meta["event"]).startswith(CLOCK_EVENT)
        for number, line in enumerate(lines_of(path, most=MOST_TEXT), 1):
            chain, _, count = line.rstrip("\n").rpartition(" ")
            if not (count.isascii() and count.isdigit() and len(count) < _DIGITS):
                raise RecordingError(path, f"line {number}: no call chain with a count")
            site = site_of(chain.split(";")[::-1], by_clock=by_clock)
            if site:
                samples[site] += int(count)
        return LockProfile(
            samples=dict(samples),
            sample_ns=float(meta["sample_ns"]),
            seconds=float(meta["seconds"]),
            repeats_command=bool(meta["repeats_command"]),
        )
    except (KeyError, TypeError, ValueError):
        raise RecordingError(path, "meta.json does not describe it") from None


def site_of(chain: list[str], *, by_clock: bool) -> str:
    """The site of S11.1 of a sample's chain, innermost first, "" if not under zone->lock.

    A sample is of a counter that interrupts at any time, or of a clock, which cannot.
    """
    functions = [function.partition(".")[0] for function in chain[:_NEAREST]]
    if chain[0].startswith(LOCK):
        return ""
    site = next((HOLDS[function] for function in functions if function in HOLDS), "")
    if not site and by_clock and chain[0] == UNLOCK and len(chain) > 1:
        site = LETS_GO.get(functions[1], "")
    return site
