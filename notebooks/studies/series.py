"""The steps of defrag_mode one after the other, as policies: as posted, then fixed."""

from __future__ import annotations

from pagealloc_model.policy.policy import Policy

_UNFIXED = Policy(
    defrag_atomic_falls_back=False, defrag_promotes_order=False, promoted_fall_back_afresh=False
)
_OFF = Policy(defrag_mode=False, defrag_kswapd_assist=False, defrag_watermarks=False)
_STEPS: tuple[tuple[str, Policy], ...] = (
    ("vanilla", _OFF),
    ("whole blocks only", Policy(defrag_mode=True)),
    ("kswapd and kcompactd for blocks", Policy(defrag_kswapd_assist=True)),
    ("watermarks in whole blocks", Policy(defrag_watermarks=True)),
    ("atomics fall back", Policy(defrag_atomic_falls_back=True)),
    ("others make whole blocks", Policy(defrag_promotes_order=True)),
    ("and end sooner, as in 7.3", Policy(promoted_fall_back_afresh=True)),
)


def series(setting: Policy | None = None) -> dict[str, Policy]:
    """Each step on top of those before it, all else equal, whatever the rules say of them.

    Steps 3 to 5 of the series of March 2025 come first (S8.6). Then two fixes from production,
    "mm/page_alloc: fix defrag_mode for non-reclaimable allocations" (v2, 20 May 2026) and "mm:
    page_alloc: fix non-movable reclaim storm in defrag_mode" (26 June 2026), and how 7.3 has the
    latter (S8.7).

    Args:
        setting: what all of them have besides.

    Returns:
        Policies by a step's name, vanilla first.
    """
    policy = _UNFIXED if setting is None else _UNFIXED.changed_by(setting)
    steps = {}
    for name, changed in _STEPS:
        policy = policy.changed_by(changed)
        steps[name] = policy
    return steps
