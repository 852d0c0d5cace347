"""Why a policy's change leaves a figure as it was, in words that a replay bears out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pagealloc_model.base.text.counts import count_of
from pagealloc_model.notebook.widgets.moves import same
from pagealloc_model.predicted.reclaim_mode import ELASTIC_SETTINGS

if TYPE_CHECKING:
    from pagealloc_model.policy.policy import Policy
    from pagealloc_model.predicted.replay import Replay
    from pagealloc_model.show.figures.drawing import Drawing

COORDINATES = ("x", "y", "z")
DRAINS = {
    "pcp_free_batched": "commit",
    "pcp_decay_batched": "decay",
    "pcp_drain_batched": "drain_all",
}


def no_effect_words(names: Sequence[str], replay: Replay | None) -> str:
    """What to say where the figure did not move.

    Args:
        names: policy settings that changed.
        replay: under the new policy, None where what is drawn is no replay of the recording.
    """
    reasons = dict.fromkeys(_reason(name, replay) for name in names)
    return f"no effect here: {'; '.join(reasons)}"


def changed_settings(before: Policy, after: Policy) -> list[str]:
    """Names of the settings that two policies differ in."""
    old, new = before.given(), after.given()
    return [name for name in {**old, **new} if old.get(name) != new.get(name)]


def same_coordinates(first: Drawing, second: Drawing) -> bool:
    """Whether two drawings have the same points."""
    return len(first.traces) == len(second.traces) and all(
        same(mine.get(axis), other.get(axis))
        for mine, other in zip(first.traces, second.traces, strict=True)
        for axis in COORDINATES
    )


def _reason(name: str, replay: Replay | None) -> str:
    if replay is None:
        return f"all that is drawn is the same, whatever {name} is"
    if name in ELASTIC_SETTINGS:
        return f"{name} acts through reclaim and compaction, which are replayed as recorded"
    if name.startswith("ownership.") and replay.policy.pageblock_ownership in (None, "off"):
        return "pageblock_ownership is off"
    if name.startswith("highatomic"):
        return _highatomic_reason(replay)
    if name in DRAINS:
        return _drain_reason(name, replay)
    if name.startswith(("pageblock_ownership", "ownership.")):
        return f"{name} decides nothing that this recording's requests reach"
    if name == "watermark_boost_factor":
        return _boost_reason(replay)
    if name in ("min_free_kbytes", "watermark_scale_factor"):
        return _watermark_reason(replay)
    if name == "lowmem_reserve_ratio":
        return _reserve_reason(replay)
    return f"the predictions agree in all that is drawn, whatever {name} is"


def _highatomic_reason(replay: Replay) -> str:
    most = int(replay.samples.blocks[..., 3].max(initial=0))
    if not most:
        return "no pageblock is reserved for atomic requests in this span"
    return f"the reserve stays at {count_of(most, 'pageblock')} at most, as it was"


def _drain_reason(name: str, replay: Replay) -> str:
    cause = DRAINS[name]
    full = replay.transactions_full
    if not ((full["site"] == "drain") & (full["cause"] == cause)).any():
        return f"no such drain ({cause}) happens in this span"
    return f"such drains ({cause}) free the same pages, in batches or not; what is drawn agrees"


def _boost_reason(replay: Replay) -> str:
    if not replay.fallbacks["count"].sum():
        return "no fallback took a block of another type, so no watermark was boosted"
    return "boosted watermarks wake kswapd, whose work is replayed as recorded"


def _watermark_reason(replay: Replay) -> str:
    pages = replay.free_pages.groupby(["time_ns", "node", "zone"])["pages"].sum()
    lowest = pages.groupby(["node", "zone"]).min()
    highs = {(zone.node, zone.name): zone.high for zone in replay.machine.zones if zone.managed}
    spare = min(int(lowest[key]) - high for key, high in highs.items() if key in lowest.index)
    if spare > 0:
        return f"every zone stays {count_of(spare, 'page')} or more above its high watermark"
    return "reclaim is replayed as recorded, and nothing else that is drawn asks for watermarks"


def _reserve_reason(replay: Replay) -> str:
    nodes = [zone.node for zone in replay.machine.zones if zone.managed]
    if len(nodes) == len(set(nodes)):
        return "each node has all its memory in one zone, which keeps nothing from any request"
    return "no request finds a zone's free pages between what it kept before and what it keeps now"
