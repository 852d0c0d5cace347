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
        """Start a run, unless one is under way or there is nothing to do (S10.1)."""
        if self.is_recorded or self.active:
            return
        boosted = any(zone.watermarks.boost for zone in self._eligible(highest_type))
        if boosted or not self._balanced(order, highest_type):
            self.start(highest_type)

    def note_free(self) -> None:
        """End the run once some eligible zone is balanced (S10.2)."""
        if not self.is_recorded and self.active and self._balanced(0, self._highest_type):
            self.stop()

    def start(self, highest_type: int) -> None:
        """A run begins; one that was under way has ended (S10.2).

        It concerns the zones up to the type that its waker may use: those drain their per-CPU
        lists sooner, and their boosts as of now are what the run is to take back.
        """
        self.stop()
        self.active = True
        self._highest_type = highest_type
        self._boosts = {zone.index: zone.watermarks.boost for zone in self._eligible(highest_type)}
        for zone in self._eligible(highest_type):
            zone.flags.reclaim_active = True
        self._note_activity()

    def stop(self) -> None:
        """The run ends, if there was one: the boosts it saw expire (S1.7)."""
        if not self.active:
            return
        self.active = False
        for zone in self._eligible(self._highest_type):
            zone.flags.reclaim_active = False
            boost = self._boosts[zone.index]
            if boost:
                zone.events.hold("boost_reset", "", 0)
            zone.watermarks.boost = max(zone.watermarks.boost - boost, 0)
        self._note_activity()

    def _note_activity(self) -> None:
        for zone in self.zones:
            zone.counters.note_kswapd(self.active)

    def _eligible(self, highest_type: int) -> list[Zone]:
        return [zone for zone in self.zones[: highest_type + 1] if zone.spec.managed]

    def _balanced(self, order: int, highest_type: int) -> bool:
        eligible = self._eligible(highest_type)
        return not eligible or any(
            zone.watermarks.ok_for_balance(order, Mark.HIGH, highest_type) for zone in eligible
        )
