"""The oracle's state: its zones, how they are laid out, what they hold, and whether it is sound."""

from __future__ import annotations

from typing import Any

from tests.oracle import invariants
from tests.oracle.allocated import AllocatedPages
from tests.oracle.counters import ThisCpu
from tests.oracle.dump import dump_counters, dump_state
from tests.oracle.events import Event, EventLog, Work
from tests.oracle.kswapd import Kswapd
from tests.oracle.machine import Migratetype, OracleMachine
from tests.oracle.ownership import new_blocks
from tests.oracle.ownership_counters import ListLocks, OwnershipCounters
from tests.oracle.ownership_zone import new_zone
from tests.oracle.rules import OracleAssumptions, OraclePolicy, OracleRules
from tests.oracle.zone import Setting, Zone


class OracleState:
    """A machine's memory, zone by zone.

    It starts with no page anywhere; `put_*` and `set_block_type` lay out the start state.

    Attributes:
        zones: all zones by index.
        kswapd: the reclaim thread of each node.
        forced: requests that succeeded only by ignoring the watermarks, as the recording did.
        in_base_pages: requests that asked for single pages where the recording had a buddy.
        failed: requests that failed here, wholly or in part, though the recording served them.
        placed_pages: base pages that there are.
        ownership_counters: acquisitions of pcp->lock, and what ownership does.
    """

    def __init__(
        self,
        machine: OracleMachine,
        rules: OracleRules,
        policy: OraclePolicy,
        assumptions: OracleAssumptions | None = None,
    ) -> None:
        self.machine = machine
        self.rules = rules
        self.policy = policy
        self.assumptions = assumptions or OracleAssumptions()
        self.allocated = AllocatedPages()
        self._log = EventLog()
        self._this_cpu = ThisCpu()
        self.ownership_counters = OwnershipCounters(self._this_cpu)
        self._list_locks = ListLocks(self._this_cpu, self.ownership_counters)
        self._dead_cpus: set[int] = set()
        self.blocks = new_blocks(machine, policy, self.ownership_counters)
        setting = Setting(
            machine=machine,
            rules=rules,
            policy=policy,
            blocks=self.blocks,
            allocated=self.allocated,
            events=self._log,
            assumptions=self.assumptions,
            this_cpu=self._this_cpu,
            ownership_counters=self.ownership_counters,
            list_locks=self._list_locks,
            dead_cpus=self._dead_cpus,
        )
        self.zones = [new_zone(index, setting) for index in range(len(machine.zones))]
        self.kswapd = {node: self._new_kswapd(node) for node in machine.nodes}
        self.forced = 0
        self.in_base_pages = 0
        self.failed = 0
        self.placed_pages = 0

    @property
    def events(self) -> list[Event]:
        """No kernel function: return what happened under zone->lock so far, oldest first.

        The caller may clear it.
        """
        return self._log.entries

    @property
    def work(self) -> list[Work]:
        """No kernel function: return what each hold of zone->lock did, oldest first.

        The caller may clear it.
        """
        return self._log.work_of_holds

    def zone_of(self, pfn: int) -> Zone:
        """page_zone(): return the zone a page lies in.

        Raises:
            ValueError: it lies in none.
        """
        for zone in self.zones:
            if zone.spec.spans(pfn):
                return zone
        raise ValueError(f"page {pfn} lies in no zone")

    def put_free(self, pfn: int, order: int, migratetype: int) -> None:
        """No kernel function: lay out a free buddy at the tail of its list.

        Block types are set apart.
        """
        self.zone_of(pfn).buddy.seed(pfn, order, migratetype)
        self.placed_pages += 1 << order

    def put_allocated(self, pfn: int, order: int, movable: bool) -> None:
        """No kernel function: lay out a page in use."""
        self.zone_of(pfn)
        self.allocated.add(pfn, order, movable)
        self.placed_pages += 1 << order

    def put_pcp(self, zone: int, cpu: int, index: int, pfn: int) -> None:
        """No kernel function: lay out a page at the tail of a per-CPU list.

        It carries its block's type of now.
        """
        pcp = self.zones[zone].pcp[cpu]
        pcp.push_tail(index, pfn)
        self.zones[zone].cached_types.note(pfn, self.blocks.type_of(pfn))
        self.placed_pages += 1 << pcp.layout.order(index)

    def set_block_type(self, block: int, migratetype: int) -> None:
        """No kernel function: tag a pageblock, given by number (S7.2).

        HIGHATOMIC blocks count as reserved.

        Raises:
            ValueError: the block lies in no zone.
        """
        start = block << self.machine.pageblock_order
        zone = self._first_zone_between(start, start + self.machine.pages_per_block)
        old = self.blocks.type_of(start)
        was, now = (each == Migratetype.HIGHATOMIC for each in (old, migratetype))
        zone.reserve.reserved += (now - was) * self.machine.pages_per_block
        was, now = (self.machine.is_isolate(each) for each in (old, migratetype))
        zone.isolated_blocks += now - was
        self.blocks.set_type(block, migratetype)

    def dump(self) -> dict[str, Any]:
        """No kernel function: return the comparable state, see `dump_state`."""
        return dump_state(self)

    def dump_counters(self) -> dict[str, Any]:
        """No kernel function: return what only larger machines have of state.

        See `dump_counters`.
        """
        return dump_counters(self)

    def settle_counters(self) -> None:
        """No kernel function: start with settled counters.

        No CPU keeps anything back, no list is about to expire, no lock was ever taken.
        """
        self.ownership_counters.clear()
        self._list_locks.forget()
        for zone in self.zones:
            for cpu, pcp in enumerate(zone.pcp):
                zone.counters.fold(cpu)
                pcp.expire = 0

    def check(self) -> None:
        """No kernel function: raise AssertionError unless every invariant holds.

        See `invariants.check`.
        """
        invariants.check(self)

    def _first_zone_between(self, start: int, end: int) -> Zone:
        """No kernel function: return the first zone that begins in a range."""
        for zone in self.zones:
            if max(start, zone.spec.start_pfn) < min(end, zone.spec.end_pfn):
                return zone
        raise ValueError(f"pages {start} to {end - 1} lie in no zone")

    def _new_kswapd(self, node: int) -> Kswapd:
        """No kernel function: return a node's reclaim thread."""
        return Kswapd(
            [self.zones[index] for index in self.machine.zones_of(node)],
            is_recorded=self.assumptions.kswapd_recorded,
        )
