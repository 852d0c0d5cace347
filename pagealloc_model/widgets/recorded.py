"""Where controls start: the policy values a recording itself reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pagealloc_model.policy import field_kinds

if TYPE_CHECKING:
    from pagealloc_model.bundle import Bundle
    from pagealloc_model.kernel_rules import KernelRules


def recorded_values(bundle: Bundle, rules: KernelRules) -> dict[str, int | bool]:
    """Policy fields whose recorded value is known.

    Taken from the rules of the recorded kernel, then from sysctls of a field's name, then from
    the per-CPU lists of the first snapshot; the later of them wins.

    Args:
        bundle: with or without snapshots and meta.json.
        rules: of the recorded kernel.
    """
    values: dict[str, int | bool] = {
        "pcp_free_batched": rules.free_batched,
        "highatomic_from_pcp": rules.highatomic_from_pcp,
    }
    values |= _from_sysctls(bundle)
    values |= _from_pagesets(bundle)
    return values


def _from_sysctls(bundle: Bundle) -> dict[str, int | bool]:
    kinds = field_kinds()
    texts = {
        name: text
        for name, text in bundle.meta.get("sysctl", {}).items()
        if name in kinds and str(text).isdecimal()
    }
    return {
        name: bool(int(text)) if kinds[name] == "bool" else int(text)
        for name, text in texts.items()
    }


def _from_pagesets(bundle: Bundle) -> dict[str, int | bool]:
    """batch, high_min and high_max of the largest zone, which the others resemble or undercut."""
    for snapshot in bundle.snapshots:
        zones = snapshot.zoneinfo.zones if snapshot.zoneinfo else ()
        with_lists = [zone for zone in zones if zone.pagesets]
        if with_lists:
            largest = max(with_lists, key=lambda zone: zone.managed)
            pageset = largest.pagesets[0]
            found = {
                "pcp_batch": pageset.batch,
                "pcp_high_min": pageset.high_min,
                "pcp_high_max": pageset.high_max,
            }
            return {name: value for name, value in found.items() if value is not None}
    return {}
