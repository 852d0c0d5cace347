"""kswapd, as far as a literal replay has one: when it runs, not what it frees (S10)."""

from __future__ import annotations

from collections.abc import Sequence

from tests.oracle.request import PLAIN, Mark
from tests.oracle.zone import Zone


class Kswapd:
    """The node's reclaim thread; the pages it frees arrive as recorded frees (S10.4).

    Attributes:
        active: a run is under way.
    """

    def __init__(self, zones: Sequence[Zone]) -> None:
        self.zones = zones
        self.active = False
        self._highest_zone = 0
        self._boosts: list[int] = []

    def wake(self, order: int, highest_zone: int) -> None:
        """Start a run, unless one is under way or there is nothing to do (S10.1)."""
        boosted = any(zone.watermarks.boost for zone in self._eligible(highest_zone))
        if self.active or (self._balanced(order, highest_zone) and not boosted):
            return
        self.active = True
        self._highest_zone = highest_zone
        self._boosts = [zone.watermarks.boost for zone in self.zones]
        self._set_reclaim_active(True)

    def note_free(self) -> None:
        """End the run once some eligible zone is balanced (S10.2); its boosts expire (S1.7)."""
        if not self.active or not self._balanced(0, self._highest_zone):
            return
        self.active = False
        self._set_reclaim_active(False)
        for zone, boost in zip(self.zones, self._boosts, strict=True):
            zone.watermarks.boost = max(zone.watermarks.boost - boost, 0)

    def _eligible(self, highest_zone: int) -> list[Zone]:
        return [zone for zone in self.zones[: highest_zone + 1] if zone.spec.managed]

    def _balanced(self, order: int, highest_zone: int) -> bool:
        return any(
            zone.watermarks.ok_at(order, Mark.HIGH, highest_zone, PLAIN)
            for zone in self._eligible(highest_zone)
        )

    def _set_reclaim_active(self, active: bool) -> None:
        for zone in self.zones:
            zone.flags.reclaim_active = active
