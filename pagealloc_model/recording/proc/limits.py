"""Values of a zone that no kernel prints: what they must keep to, so that nothing is sized by them.

Sizes may disagree for a moment, since the kernel reads them without a lock; what is refused here
is beyond anything that a race can show.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pagealloc_model.recording.proc.zone_values import PageSet, ZoneInfoZone

NR_CPUS_MAX = 8192
"""CPUs of the largest kernel configuration."""
END_OF_MEMORY = 1 << 31
"""Page frames that the model can number: 8 TiB of 4 KiB pages."""
LARGEST_ORDER = 14


def impossible_values(zone: ZoneInfoZone) -> Iterator[str]:
    """Say what of a zone no kernel prints; nothing if all of it is possible.

    Args:
        zone: sizes in pages.
    """
    end = (zone.start_pfn or 0) + zone.spanned
    if end > END_OF_MEMORY:
        yield f"ends at page frame {end}, the model knows memory up to {END_OF_MEMORY}"
    for name, other in (("managed", "present"), ("present", "spanned"), ("free", "present")):
        mine, bound = getattr(zone, name), getattr(zone, other)
        if mine > bound:
            yield f"has {name} {mine} above {other} {bound}"
    if zone.managed:
        yield from _impossible_marks(zone)
    seen: set[int] = set()
    for pageset in zone.pagesets:
        if pageset.cpu in seen:
            yield f"has cpu {pageset.cpu} a second time"
        seen.add(pageset.cpu)
        for what in _impossible_limits(pageset, zone.present):
            yield f"cpu {pageset.cpu} has {what}"


def _impossible_marks(zone: ZoneInfoZone) -> Iterator[str]:
    """Watermarks are printed with the boost included."""
    boost = zone.boost or 0
    if boost > zone.min:
        yield f"has boost {boost} above min {zone.min}, which includes it"
    if not zone.min <= zone.low <= zone.high:
        yield f"has min {zone.min}, low {zone.low} and high {zone.high}, which do not ascend"
    if zone.high - boost > zone.present:
        yield f"has high {zone.high} above its {zone.present} pages"


def _impossible_limits(pageset: PageSet, present: int) -> Iterator[str]:
    """A zone's batch and limits come from its pages; high is at least four batches (S4.2)."""
    most = max(present, 1)
    if not 1 <= pageset.batch <= most:
        yield f"batch {pageset.batch}, in a zone of {present} pages"
    limits: Mapping[str, int | None] = {
        "high": pageset.high,
        "high_min": pageset.high_min,
        "high_max": pageset.high_max,
        "count": pageset.count,
    }
    for name, value in limits.items():
        if value is not None and value > max(present, 4 * pageset.batch):
            yield f"{name} {value}, in a zone of {present} pages"
    low, high = pageset.high_min, pageset.high_max
    if low is not None and high is not None and low > high:
        yield f"high_min {low} above high_max {high}"
    if pageset.cpu >= NR_CPUS_MAX:
        yield f"a number that no kernel knows; there are at most {NR_CPUS_MAX} CPUs"
