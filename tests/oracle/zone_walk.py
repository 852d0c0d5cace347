"""One attempt at a request: from zone to zone until one serves it (S3.1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.oracle.kswapd import Kswapd
from tests.oracle.request import Attempt, Request
from tests.oracle.rules import OraclePolicy, OracleRules
from tests.oracle.zone import Zone

Visit = Callable[[Zone, Request, Attempt], int | None]
"""What a walk does in a zone that the marks allow; None: it goes on to the next."""


@dataclass(frozen=True)
class Sweep:
    """How one sweep over a zonelist ended.

    Attributes:
        pfn: the page, None if no zone gave one.
        would_leave_node: it stopped before another node's zone, to fragment the own one first.
        skipped_busy: zones were passed over because kswapd works on their node.
    """

    pfn: int | None = None
    would_leave_node: bool = False
    skipped_busy: bool = False


class ZoneWalk:
    """Sweeps over zonelists, each sweep less choosy than the one before."""

    def __init__(
        self,
        kswapd: dict[int, Kswapd],
        rules: OracleRules,
        policy: OraclePolicy,
    ) -> None:
        self.kswapd = kswapd
        self.skips_busy_nodes = rules.skips_busy_kswapd_nodes and len(kswapd) > 1
        self.boosted_flag_needs_kswapd = rules.boosted_flag_needs_kswapd
        self.keeps_nofragment = policy.defrag_mode

    def get_page(self, request: Request, attempt: Attempt, zonelist: list[Zone]) -> int | None:
        """get_page_from_freelist(): take a page from the first zone that gives one.

        It may and can. Fragmenting the own node is better than going to another, so NOFRAGMENT is
        given up before the first remote zone. Nodes that kswapd works on are avoided as long as
        another serves. What is left to give up in the end is NOFRAGMENT.
        """
        return self._walk(request, attempt, zonelist, self._take)

    def begin_request(self, request: Request, attempt: Attempt, zonelist: list[Zone]) -> None:
        """Part of get_page_from_freelist(): refill for a request before it comes (S4.10).

        The first zone that it may have a page of does. The walk ends there.
        """

        def refill(zone: Zone, request: Request, attempt: Attempt) -> int:
            zone.begin_request(request, attempt)
            return 0

        self._walk(request, attempt, zonelist, refill)

    def _walk(
        self, request: Request, attempt: Attempt, zonelist: list[Zone], visit: Visit
    ) -> int | None:
        """Part of get_page_from_freelist(): go over the zonelist until a visit gives something."""
        skips_busy = self.skips_busy_nodes
        has_skipped = False
        while True:
            sweep = self._sweep(request, attempt, zonelist, visit, skips_busy=skips_busy)
            has_skipped |= sweep.skipped_busy
            if sweep.pfn is not None:
                return sweep.pfn
            if sweep.would_leave_node:
                attempt = attempt.may_fragment()
            elif skips_busy and has_skipped:
                skips_busy = False
            elif attempt.nofragment and not self.keeps_nofragment:
                attempt = attempt.may_fragment()
            else:
                return None

    def force_page(
        self, request: Request, attempt: Attempt, zonelist: list[Zone], imposed: Zone | None
    ) -> int | None:
        """No kernel function: take a page whatever the watermarks say.

        The request succeeded in the recording. There reclaim had made room that is missing here:
        most likely in the zone that lacks least. That one is tried first, of equals the preferred;
        then all as ever. An imposed zone is tried first whether or not the list has it: a request
        may ask for another node than its CPU's, which no event tells.
        """
        if not zonelist and imposed is None:
            return None
        attempt = attempt.ignoring_watermarks()
        nearest = imposed or max(zonelist, key=lambda zone: zone.margin(request, attempt))
        pfn = self._take(nearest, request, attempt)
        return self.get_page(request, attempt, zonelist) if pfn is None else pfn

    def _sweep(
        self,
        request: Request,
        attempt: Attempt,
        zonelist: list[Zone],
        visit: Visit,
        *,
        skips_busy: bool,
    ) -> Sweep:
        """Part of get_page_from_freelist(): go over the zonelist once."""
        skipped_busy = False
        for zone in zonelist:
            stays_local = attempt.nofragment and not self.keeps_nofragment
            if stays_local and zone.node != zonelist[0].node:
                return Sweep(would_leave_node=True, skipped_busy=skipped_busy)
            if skips_busy and self.kswapd[zone.node].active:
                skipped_busy = True
                continue
            if not zone.may_take(request, attempt):
                continue
            pfn = visit(zone, request, attempt)
            if pfn is not None:
                return Sweep(pfn=pfn)
        return Sweep(skipped_busy=skipped_busy)

    def _take(self, zone: Zone, request: Request, attempt: Attempt) -> int | None:
        """Part of get_page_from_freelist(): take a page from a zone; it may boost."""
        pfn = zone.take(request, attempt)
        self._note_boost(zone, attempt)
        return pfn

    def _note_boost(self, zone: Zone, attempt: Attempt) -> None:
        """Part of rmqueue(): wake the node's kswapd for a zone boosted by a fallback (S3.2)."""
        may_act = attempt.kswapd or not self.boosted_flag_needs_kswapd
        if zone.fallback.boosted and may_act:
            zone.fallback.boosted = False
            self.kswapd[zone.node].wake(0, zone.type)
