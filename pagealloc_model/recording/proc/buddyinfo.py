"""/proc/buddyinfo: free buddies per order, all migratetypes together (T12.1)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pagealloc_model.recording.proc.lines import count_of_pages, malformed, split_node_zone


@dataclass(frozen=True, kw_only=True)
class BuddyInfoZone:
    """Free lists of one zone.

    Attributes:
        node: NUMA node.
        zone: zone name, such as "DMA32".
        free_buddies: number of free buddies of order 0, 1, ...; the HIGHATOMIC, CMA and ISOLATE
            lists are included.
    """

    node: int
    zone: str
    free_buddies: tuple[int, ...]

    @property
    def free_pages(self) -> int:
        """Base pages on the zone's free lists."""
        return sum(count << order for order, count in enumerate(self.free_buddies))


@dataclass(frozen=True, kw_only=True)
class BuddyInfo:
    """All zones in the order the kernel prints them."""

    zones: tuple[BuddyInfoZone, ...]


def parse_buddyinfo(text: str, path: str | Path = "buddyinfo") -> BuddyInfo:
    """Read the text of /proc/buddyinfo.

    Args:
        text: the file's content.
        path: named in errors.

    Raises:
        RecordingError: a line is not a zone's row, rows differ in length or are of one zone, a
            count is beyond all memory, or there is none.
    """
    zones: list[BuddyInfoZone] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        row = split_node_zone(line)
        if row is None:
            raise malformed(path, number, "is not a 'Node N, zone NAME ...' row")
        node, zone, rest = row
        counts = tuple(count_of_pages(word, path, number) for word in rest.split())
        if not counts or (zones and len(counts) != len(zones[0].free_buddies)):
            raise malformed(path, number, f"has {len(counts)} orders, unlike the other rows")
        if any((each.node, each.zone) == (node, zone) for each in zones):
            raise malformed(path, number, f"zone {zone} of node {node} appears a second time")
        zones.append(BuddyInfoZone(node=node, zone=zone, free_buddies=counts))
    if not zones:
        raise malformed(path, 1, "no zone found")
    return BuddyInfo(zones=tuple(zones))
