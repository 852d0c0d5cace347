"""The whole allocator: requests over the zonelist, frees, ticks; and its state for comparison."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.oracle import invariants
from tests.oracle.allocated import AllocatedPages
from tests.oracle.dump import dump_state
from tests.oracle.events import Event, EventLog
from tests.oracle.kswapd import Kswapd
from tests.oracle.machine import Migratetype, OracleMachine
from tests.oracle.pageblocks import Pageblocks
from tests.oracle.request import Attempt, Bits, Request, fast_attempt, slow_attempt
from tests.oracle.rules import OraclePolicy, OracleRules
from tests.oracle.zone import Setting, Zone


def _request(cpu: int, order: int, migratetype: int, highest_zone: int, bits: int) -> Request:
    return Request(
        cpu=cpu,
        order=order,
        migratetype=migratetype,
        highest_zone=highest_zone,
        bits=Bits(bits)
        & (Bits.HIGH | Bits.ATOMIC | Bits.DIRECT_RECLAIM | Bits.KSWAPD | Bits.NOMEMALLOC),
    )


class Oracle:
    """A page allocator that can be read.

    It starts with no page anywhere; `put_*` and `set_block_type` lay out the start state. Events
    are replayed literally: a trace decides which requests succeed, and reclaim's frees come from
    the trace (S10.4).

    Attributes:
        zones: all zones by index.
        forced: requests that succeeded only by ignoring the watermarks, as the recording did.
        in_base_pages: requests that asked for single pages where the recording had a buddy.
        failed: requests that failed here, wholly or in part, though the recording served them.
        placed_pages: base pages laid out at the start.
    """

    def __init__(self, machine: OracleMachine, rules: OracleRules, policy: OraclePolicy) -> None:
        self.machine = machine
        self.rules = rules
        self.policy = policy
        self.allocated = AllocatedPages()
        self.blocks = Pageblocks(machine)
        self._log = EventLog()
        setting = Setting(machine, rules, policy, self.blocks, self.allocated, self._log)
        self.zones = [Zone(index, setting) for index in range(len(machine.zones))]
        self.kswapd = Kswapd(self.zones)
        self.forced = 0
        self.in_base_pages = 0
        self.failed = 0
        self.placed_pages = 0

    @property
    def events(self) -> list[Event]:
        """What happened under zone->lock so far, oldest first; may be cleared by the caller."""
        return self._log.entries

    def zone_of(self, pfn: int) -> Zone:
        """The zone a page lies in.

        Raises:
            ValueError: it lies in none.
        """
        for zone in self.zones:
            if zone.spec.spans(pfn):
                return zone
        raise ValueError(f"page {pfn} lies in no zone")

    def put_free(self, pfn: int, order: int, migratetype: int) -> None:
        """Lay out a free buddy at the tail of its list; block types are set apart."""
        self.zone_of(pfn).buddy.seed(pfn, order, migratetype)
        self.placed_pages += 1 << order

    def put_allocated(self, pfn: int, order: int, movable: bool) -> None:
        """Lay out a page in use."""
        self.zone_of(pfn)
        self.allocated.add(pfn, order, movable)
        self.placed_pages += 1 << order

    def put_pcp(self, zone: int, cpu: int, index: int, pfn: int) -> None:
        """Lay out a page at the tail of a per-CPU list; it carries its block's type of now."""
        pcp = self.zones[zone].pcp[cpu]
        pcp.push_tail(index, pfn)
        self.zones[zone].cached_types.note(pfn, self.blocks.type_of(pfn))
        self.placed_pages += 1 << pcp.layout.order(index)

    def set_pcp_high(self, zone: int, cpu: int, high: int) -> None:
        """Set the tuned limit of a page set, as a recording found it."""
        self.zones[zone].pcp[cpu].high = high

    def set_block_type(self, block: int, migratetype: int) -> None:
        """Tag a pageblock (by number); HIGHATOMIC blocks count as reserved (S7.2).

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

    def alloc(
        self,
        cpu: int,
        order: int,
        migratetype: int,
        highest_zone: int,
        bits: int,
        recorded_success: bool = True,
    ) -> int | None:
        """Allocate; the page, or None.

        Args:
            cpu: CPU of the request.
            order: power of two of pages.
            migratetype: 0 to 2.
            highest_zone: highest zone index allowed.
            bits: gfp bits, see `Bits`; others are ignored.
            recorded_success: what the recording saw. Only then are watermarks overridden in the
                end, and only then is that, or a failure, a divergence.
        """
        request = _request(cpu, order, migratetype, highest_zone, bits)
        pfn = self._alloc(request, recorded_success)
        self.failed += pfn is None and recorded_success
        return pfn

    def alloc_as_recorded(
        self, cpu: int, order: int, migratetype: int, highest_zone: int, bits: int
    ) -> tuple[tuple[int, int], ...]:
        """Serve a request that succeeded in the recording, in single pages if no buddy will do.

        Arguments are those of `alloc`.

        Returns:
            (first page, order) of the buddy; or of single pages in the order they were handed
            out, at most as many as were asked for; or nothing.
        """
        request = _request(cpu, order, migratetype, highest_zone, bits)
        pfn = self._alloc(request, recorded_success=True)
        if pfn is not None:
            return ((pfn, order),)
        pages = self._alloc_singly(replace(request, order=0), 1 << order) if order else ()
        self.in_base_pages += order > 0
        self.failed += len(pages) < 1 << order
        return pages

    def free(self, cpu: int, pfn: int, order: int) -> None:
        """Free pages in use, all or part of what was handed out (S4.6, T10.1)."""
        self.allocated.remove(pfn, order)
        self.zone_of(pfn).free(cpu, pfn, order)
        self.kswapd.note_free()

    def tick(self, cpu: int) -> None:
        """The CPU's vmstat worker runs (S4.8)."""
        for zone in self.zones:
            zone.decay(cpu)

    def drain_all(self) -> None:
        """Empty the lists of every CPU, CPU by CPU (S4.9)."""
        for cpu in range(self.machine.nr_cpus):
            for zone in self.zones:
                zone.drain_all(cpu)

    def dump(self) -> dict[str, Any]:
        """The comparable state, see `dump_state`."""
        return dump_state(self)

    def check(self) -> None:
        """Raise AssertionError unless every invariant holds, see `invariants.check`."""
        invariants.check(self)

    def _first_zone_between(self, start: int, end: int) -> Zone:
        for zone in self.zones:
            if max(start, zone.spec.start_pfn) < min(end, zone.spec.end_pfn):
                return zone
        raise ValueError(f"pages {start} to {end - 1} lie in no zone")

    def _zonelist(self, highest_zone: int) -> list[Zone]:
        """Populated zones the request may use, preferred first (S1.4)."""
        return [zone for zone in self.zones[highest_zone::-1] if zone.spec.present]

    def _alloc(self, request: Request, recorded_success: bool) -> int | None:
        pfn = self._alloc_fast(request)
        if pfn is None:
            pfn = self._alloc_slow(request, recorded_success)
        if pfn is not None:
            is_movable = request.migratetype == Migratetype.MOVABLE
            self.allocated.add(pfn, request.order, is_movable)
        return pfn

    def _alloc_singly(self, request: Request, count: int) -> tuple[tuple[int, int], ...]:
        pages: list[tuple[int, int]] = []
        while len(pages) < count:
            pfn = self._alloc(request, recorded_success=True)
            if pfn is None:
                break
            pages.append((pfn, 0))
        return tuple(pages)

    def _alloc_fast(self, request: Request) -> int | None:
        zonelist = self._zonelist(request.highest_zone)
        preferred_is_normal = bool(zonelist) and zonelist[0].spec.name == "Normal"
        attempt = fast_attempt(
            request,
            preferred_is_normal=preferred_is_normal,
            defrag_mode=self.policy.defrag_mode,
        )
        return self._get_page(request, attempt)

    def _alloc_slow(self, request: Request, recorded_success: bool) -> int | None:
        """Wake kswapd, try harder, make room, give up caution (S8, literal replay)."""
        attempt = slow_attempt(request, defrag_mode=self.policy.defrag_mode)
        if attempt.kswapd:
            self._wake_kswapd(request)
        pfn = self._get_page(request, attempt)
        may_reclaim = Bits.DIRECT_RECLAIM in request.bits
        if pfn is None and may_reclaim:
            self._make_room(request)
            pfn = self._get_page(request, attempt)
        if pfn is None and attempt.nofragment and (may_reclaim or attempt.kswapd):
            attempt = attempt.may_fragment()
            pfn = self._get_page(request, attempt)
        if pfn is None and recorded_success:
            pfn = self._get_page(request, attempt.ignoring_watermarks())
            self.forced += pfn is not None
        return pfn

    def _wake_kswapd(self, request: Request) -> None:
        order = request.order
        if self.policy.defrag_mode:
            order = max(order, self.machine.pageblock_order)
        self.kswapd.wake(order, request.highest_zone)

    def _make_room(self, request: Request) -> None:
        """What direct reclaim does when its own frees did not help (S8.2)."""
        for zone in self._zonelist(request.highest_zone):
            if zone.reserve.unreserve(request.migratetype):
                break
        self.drain_all()

    def _get_page(self, request: Request, attempt: Attempt) -> int | None:
        """Walk the zonelist; once more without NOFRAGMENT if that was set (S3.1)."""
        pfn = self._walk_zonelist(request, attempt)
        if pfn is None and attempt.nofragment and not self.policy.defrag_mode:
            pfn = self._walk_zonelist(request, attempt.may_fragment())
        return pfn

    def _walk_zonelist(self, request: Request, attempt: Attempt) -> int | None:
        for zone in self._zonelist(request.highest_zone):
            if not zone.may_take(request, attempt):
                continue
            pfn = zone.take(request, attempt)
            self._note_boost(zone, attempt)
            if pfn is not None:
                return pfn
        return None

    def _note_boost(self, zone: Zone, attempt: Attempt) -> None:
        """A zone boosted by a fallback gets kswapd's attention (S3.2)."""
        may_act = attempt.kswapd or not self.rules.boosted_flag_needs_kswapd
        if zone.fallback.boosted and may_act:
            zone.fallback.boosted = False
            self.kswapd.wake(0, zone.index)
