"""What ownership adds to the oracle's state, as plain dicts and lists to be compared."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tests.oracle.ownership import OwnedPageblocks
from tests.oracle.ownership_zone import OwningZone

if TYPE_CHECKING:
    from tests.oracle.oracle_state import OracleState


def dump_ownership(oracle: OracleState) -> dict[str, Any]:
    """Owners, recorded lists and marks, as far as pageblocks are owned at all; and counts.

    Returns:
        A dict of dicts:
        `owners`: pageblock number -> (CPU, whether it is recorded), owned blocks only;
        `recorded`: (zone, cpu) -> recorded blocks, oldest first;
        `mergeable`: (zone, cpu, index) -> the pages of the list that carry the mark, head first;
        `ownership_counts`: (zone, cpu, field of `OwnershipCount`) -> count.
    """
    cpus = range(oracle.machine.nr_cpus)
    populated = [zone for zone in oracle.zones if zone.spec.managed]
    return _dump_owners(oracle) | {
        "ownership_counts": {
            (zone.index, cpu, name): count
            for zone in populated
            for cpu in cpus
            for name, count in asdict(oracle.ownership_counters.at(zone.index, cpu)).items()
        }
    }


def _dump_owners(oracle: OracleState) -> dict[str, Any]:
    if not isinstance(oracle.blocks, OwnedPageblocks):
        return {"owners": {}, "recorded": {}, "mergeable": {}}
    blocks = oracle.blocks
    zones = [zone for zone in oracle.zones if isinstance(zone, OwningZone) and zone.spec.managed]
    return {
        "owners": {number: (block.cpu, block.recorded) for number, block in blocks.owned().items()},
        "recorded": {
            (zone.index, lists.cpu): blocks.recorded(zone.index, lists.cpu)
            for zone in zones
            for lists in zone.lists
        },
        "mergeable": {
            (zone.index, lists.cpu, index): [pfn for pfn in pages if pfn in lists.mergeable]
            for zone in zones
            for lists in zone.lists
            for index, pages in enumerate(lists.pcp.lists)
        },
    }
