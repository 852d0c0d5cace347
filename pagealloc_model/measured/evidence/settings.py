"""Rules shown by what is known before the first event: none of it is the allocator's answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pagealloc_model.base.errors import UsageError
from pagealloc_model.measured.evidence.finding import Finding
from pagealloc_model.recording.recorded_machine import start_snapshots

if TYPE_CHECKING:
    from pagealloc_model.recording.proc.zoneinfo import ZoneInfoZone
    from pagealloc_model.recording.recording import Recording

MOVABLE_MIN_CAP = 128
"""Largest min watermark of a zone that has one of its own, pages (S1.6)."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a recording states about its kernel before anything was allocated.

    Attributes:
        zones: zones with pages, from the snapshot the replay starts from; () without one.
        sysctls: vm.* as recorded; None where the kernel lacks one.
        gfp_names: flag names in the format of mm_page_alloc (S2.3); empty if unknown.
    """

    zones: tuple[ZoneInfoZone, ...] = ()
    sysctls: Mapping[str, Any] = field(default_factory=dict)
    gfp_names: frozenset[str] = frozenset()

    @staticmethod
    def of(recording: Recording) -> Settings:
        """The settings of a recording.

        Raises:
            RecordingError: the events cannot be read.
        """
        try:
            zoneinfo = start_snapshots(recording)[0].zoneinfo
        except UsageError:  # no usable snapshot
            zoneinfo = None
        trace = recording.trace
        return Settings(
            zones=tuple(zone for zone in (zoneinfo.zones if zoneinfo else ()) if zone.managed),
            sysctls=recording.meta.get("sysctl", {}),
            gfp_names=frozenset(trace.gfp_bits if trace.gfp_from_format else ()),
        )


def _free_batched(settings: Settings) -> Finding | None:
    if settings.sysctls.get("pcp_free_batched") is None:
        return None
    return Finding(value=True, line="sysctl pcp_free_batched exists")


def _pcp_auto_tuned(settings: Settings) -> Finding | None:
    pagesets = [pageset for zone in settings.zones for pageset in zone.pagesets]
    if any(pageset.high_min is not None for pageset in pagesets):
        return Finding(value=True, line="zoneinfo prints high_min and high_max")
    for zone in settings.zones:
        highs = sorted({pageset.high for pageset in zone.pagesets})
        if len(highs) > 1:
            span = f"{highs[0]} to {highs[-1]}"
            return Finding(value=True, line=f"pcp->high of zone {zone.name} is {span} by CPU")
    return None


def _defrag_mode(settings: Settings) -> str:
    """Where the recording shows that the kernel has defrag_mode (S8.6), "" if nowhere."""
    if settings.sysctls.get("defrag_mode") is not None:
        return "sysctl defrag_mode exists"
    if any("nr_free_pages_blocks" in zone.counters for zone in settings.zones):
        return "zoneinfo prints nr_free_pages_blocks"
    return ""


def _fallback_from_largest(settings: Settings) -> Finding | None:
    shown = _defrag_mode(settings)
    return Finding(value=False, line=f"{shown}: built on claim and steal") if shown else None


def _lists_match_blocks(settings: Settings) -> Finding | None:
    shown = _defrag_mode(settings)
    return Finding(value=True, line=f"{shown}: built on typed free lists") if shown else None


def _movable_min_capped(settings: Settings) -> Finding | None:
    movable = next((zone for zone in settings.zones if zone.name == "Movable"), None)
    if movable is None:
        return None
    raw = movable.min - (movable.boost or 0)
    return Finding(value=raw <= MOVABLE_MIN_CAP, line=f"zone Movable's min watermark is {raw}")


def _boost_retry_by_high(settings: Settings) -> Finding | None:
    if not settings.gfp_names:
        return None
    atomic = "__GFP_ATOMIC" in settings.gfp_names
    there = "names" if atomic else "does not name"
    return Finding(value=not atomic, line=f"the event format {there} __GFP_ATOMIC")


SETTINGS_FINDERS: dict[str, Callable[[Settings], Finding | None]] = {
    "free_batched": _free_batched,
    "pcp_auto_tuned": _pcp_auto_tuned,
    "fallback_from_largest": _fallback_from_largest,
    "lists_match_blocks": _lists_match_blocks,
    "movable_min_capped": _movable_min_capped,
    "boost_retry_by_high": _boost_retry_by_high,
}
"""By field of `KernelRules`; a field without a finder rests on the release."""


def settings_findings(recording: Recording) -> dict[str, Finding]:
    """What a recording's settings show, by rule.

    Raises:
        RecordingError: the recording cannot be read.
    """
    settings = Settings.of(recording)
    found = {rule: find(settings) for rule, find in SETTINGS_FINDERS.items()}
    return {rule: finding for rule, finding in found.items() if finding is not None}
