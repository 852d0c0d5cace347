"""Faults in what recorded compaction takes and captures, for scenarios with compaction to tell."""

from __future__ import annotations

from tests.allocator.fault import Fault

_KINDS = ("compaction",)

FAULTS_COMPACTION = (
    Fault(
        "isolation takes a list's head",
        "events",
        "pfn = m.st[free_list_at(zone, order, migratetype) + at.TAIL]",
        "pfn = m.st[free_list_at(zone, order, migratetype) + at.HEAD]",
        scenarios=_KINDS,
    ),
    Fault(
        "isolated pages stay counted as free",
        "events",
        "account_freepages(m, zone, migratetype, -(1 << order))",
        "account_freepages(m, zone, migratetype, 0)",
        scenarios=_KINDS,
    ),
    Fault(
        "isolation takes the smallest buddies first",
        "events",
        "largest = m.st[at.PAGEBLOCK_ORDER] - 1",
        "largest = order",
        scenarios=_KINDS,
    ),
    Fault(
        "isolation takes more than a scan does",
        "events",
        "while largest > order and 1 << largest > wanted:",
        "while largest > order and 1 << largest > 2 * wanted:",
        scenarios=_KINDS,
    ),
    Fault(
        "pieces overlap",
        "events",
        "st[at.ISOLATED_FROM] = pfn + (1 << order)",
        "st[at.ISOLATED_FROM] = pfn",
        scenarios=_KINDS,
    ),
    Fault(
        "a captured page is gathered though a buddy is free",
        "events",
        ("    if pfn >= 0:\n        count_at_end(m, zone, 1 << order)"),
        ("    if pfn >= 0 and order == 0:\n        count_at_end(m, zone, 1 << order)"),
        scenarios=_KINDS,
    ),
)
