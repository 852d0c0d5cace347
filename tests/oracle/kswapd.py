"""kswapd, as far as a literal replay has one: when it runs, not what it frees (S10)."""

from __future__ import annotations

from collections.abc import Sequence

from tests.oracle.request import Mark
from tests.oracle.zone import Zone


class Kswapd:
    """A node's reclaim thread; the pages it frees arrive as recorded frees (S10.4).

    Attributes:
        zones: the node's, lowest type first.
        is_recorded: its runs are the recording's; nothing here starts or ends one.
        active: a run is under way.
    """

    def __init__(self, zones: Sequence[Zone], *, is_recorded: bool = False) -> None:
        self.zones = zones
        self.is_recorded = is_recorded
        self.active = False
        self._highest_type = 0
        self._boosts: dict[int, int] = {}

    def wake(self, order: int, highest_type: int) -> None:
        """wakeup_kswapd(): start a run (S10.1).

        Not if one is under way or there is nothing to do.
        """
        if self.is_recorded or self.active:
            return
        boosted = any(zone.watermarks.boost for zone in self._eligible(highest_type))
        if boosted or not self._pgdat_balanced(order, highest_type):
            self.start(highest_type)

    def note_free(self) -> None:
        """No kernel function: end the run once some eligible zone is balanced (S10.2)."""
        if not self.is_recorded and self.active and self._pgdat_balanced(0, self._highest_type):
            self.stop()

    def start(self, highest_type: int) -> None:
        """Part of balance_pgdat(): begin a run (S10.2).

        One that was under way has ended. It concerns the zones up to the type that its waker may
        use: those drain their per-CPU lists sooner, and their boosts as of now are what the run is
        to take back.
        """
        self.stop()
        self.active = True
        self._highest_type = highest_type
        self._boosts = {zone.index: zone.watermarks.boost for zone in self._eligible(highest_type)}
        for zone in self._eligible(highest_type):
            zone.flags.reclaim_active = True
        self._update_reclaim_active()

    def stop(self) -> None:
        """Part of balance_pgdat(): end the run, if there was one (S1.7).

        The boosts it saw expire.
        """
        if not self.active:
            return
        self.active = False
        for zone in self._eligible(self._highest_type):
            zone.flags.reclaim_active = False
            boost = self._boosts[zone.index]
            if boost:
                zone.events.hold("boost_reset", "", 0)
            zone.watermarks.boost = max(zone.watermarks.boost - boost, 0)
        self._update_reclaim_active()

    def _update_reclaim_active(self) -> None:
        """update_reclaim_active(): tell zones whether reclaim is active."""
        for zone in self.zones:
            zone.counters.note_kswapd(self.active)

    def _eligible(self, highest_type: int) -> list[Zone]:
        """Part of balance_pgdat(): return the zones that a waker may use."""
        return [zone for zone in self.zones[: highest_type + 1] if zone.spec.managed]

    def _pgdat_balanced(self, order: int, highest_type: int) -> bool:
        """pgdat_balanced(): return whether some eligible zone has enough."""
        eligible = self._eligible(highest_type)
        return not eligible or any(
            zone.watermarks.ok_for_balance(order, Mark.HIGH, highest_type) for zone in eligible
        )
