"""Refills that must steal every page, with the mode that persists and without (S6.2, S6.7)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pagealloc_model.notebooks.studies.steals import refills_that_steal

from pagealloc_model.allocator import layout as at
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Policy

RULES = KernelRules.preset("6.12")
ORDERS = 11


def stolen(migratetype: int, persists: bool) -> SimpleNamespace:
    policy = Policy(refill_mode_persists=persists, watermark_boost_factor=0)
    run = refills_that_steal(migratetype, policy, rules=RULES, requests=500, gib=0.5)
    refills = run.holds().query("site == 'refill'")
    return SimpleNamespace(
        refills=len(refills),
        pages=refills["pages"].sum(),
        scanned=refills["scanned"].sum(),
        probes=run.refill_probes[0],
        stolen=run.fallbacks.query("kind == 'steal'")["count"].sum(),
    )


@pytest.mark.parametrize(("migratetype", "types"), [(at.MOVABLE, 2), (at.UNMOVABLE, 2)])
def test_lists_looked_at_are_those_worked_out_by_hand(migratetype: int, types: int) -> None:
    """A search anew: the own lists, both other types where a claim may look, then the steal.

    Only order 0 has free pages, so that no other order's lists are looked at (S6.7). Movable
    requests claim from order 4 on, the others down to the order asked. The steal finds its page on
    the second list of order 0.
    """
    found = stolen(migratetype, persists=False)
    claims = 0 if migratetype == at.MOVABLE else 1
    assert found.stolen == found.pages
    assert found.probes == found.pages * (ORDERS + types * claims + types)
    kept = stolen(migratetype, persists=True)
    assert (kept.pages, kept.stolen) == (found.pages, found.stolen)
    searches = kept.refills * (ORDERS + types * claims)
    assert kept.probes == searches + types * kept.pages


def test_claims_that_fail_scan_a_block_for_each_page_or_for_each_refill() -> None:
    anew, kept = (stolen(at.UNMOVABLE, persists=persists) for persists in (False, True))
    assert anew.scanned == anew.pages * 512
    assert kept.scanned == kept.refills * 512
