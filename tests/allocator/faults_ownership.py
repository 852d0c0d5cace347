"""Faults in pageblock ownership, which scenarios with owned blocks must tell."""

from __future__ import annotations

from tests.allocator.fault import Fault


def _fault(name: str, module: str, right: str, wrong: str) -> Fault:
    return Fault(name, module, right, wrong, scenarios=("ownership",))


def _pressed_fault(name: str, module: str, right: str, wrong: str) -> Fault:
    return Fault(name, module, right, wrong, scenarios=("owning_elastic",))


FAULTS_OWNERSHIP = (
    _fault(
        "frees never leave the CPU",
        "ownership",
        "if not option(m, at.OPTION_ROUTES_FREES):",
        "if owner >= 0:",
    ),
    _fault(
        "a dead CPU's blocks draw frees",
        "ownership",
        "return cpu if m.st[cpu_at(m, owner) + at.CPU_IS_DEAD] else owner",
        "return owner",
    ),
    _fault(
        "whole free blocks stay owned",
        "ownership",
        "for block in range(first, first + (1 << (order - block_order))):",
        "for block in range(first, first):",
    ),
    _fault(
        "one block too many is recorded",
        "ownership",
        "if cap > 0 and entries >= cap:",
        "if cap > 0 and entries > cap:",
    ),
    _fault(
        "recorded blocks lose their followers",
        "ownership",
        "        m.st[owned_block_at(m, preceding) + at.BLOCK_NEXT] = following\n",
        "        m.st[owned_block_at(m, preceding) + at.BLOCK_NEXT] = -1\n",
    ),
    _fault(
        "recovered pages are plain",
        "ownership_refill",
        "put_refilled(m, ac, zone, pfn, order, at.MERGEABLE)",
        "put_refilled(m, ac, zone, pfn, order, 0)",
    ),
    _fault(
        "blocks of other types are recovered",
        "ownership_refill",
        "        if fits:\n",
        "        if fits or not per_type:\n",
    ),
    _fault(
        "a block must leave a page free",
        "ownership_refill",
        "return held + (1 << m.st[at.PAGEBLOCK_ORDER]) <= limit",
        "return held + (1 << m.st[at.PAGEBLOCK_ORDER]) < limit",
    ),
    _fault(
        "the fit test forgets what the lists hold",
        "ownership_refill",
        "held = m.st[pcp + at.PCP_COUNT]\n",
        "held = 0\n",
    ),
    _fault(
        "chunks as large as a block",
        "ownership_refill",
        "most = max(order, m.st[at.PAGEBLOCK_ORDER] - 1)",
        "most = max(order, m.st[at.PAGEBLOCK_ORDER])",
    ),
    _fault(
        "remainders of a split are plain",
        "ownership",
        "mark_listed(m, half, current, tag, flags)",
        "mark_listed(m, half, current, tag, 0)",
    ),
    _fault(
        "lists merge pages of blocks given up",
        "ownership",
        "if buddy >= 0 and owner_of(m, pfn >> m.st[at.PAGEBLOCK_ORDER]) == cpu:",
        "if buddy >= 0:",
    ),
    _fault(
        "merged pairs go in front",
        "ownership",
        "            append_listed(m, pcp, first, order + 1, migratetype)\n",
        "            push_listed(m, pcp, first, order + 1, migratetype)\n",
    ),
    _fault(
        "pages on top of buddies cut the walk for them short",
        "ownership",
        "    if m.st[unmerged] > 0 or listed_buddy",
        "    if listed_buddy",
    ),
    _fault(
        "a page that is taken shortens the walk by two",
        "ownership",
        "max(m.st[unmerged] - 1, 0)",
        "max(m.st[unmerged] - 2, 0)",
    ),
    _fault(
        "merged pairs are not looked for again",
        "ownership",
        "        m.st[unmerged_at(pcp, order, kind)] = m.st[lst + at.ENTRIES]\n",
        "        m.st[unmerged_at(pcp, order, kind)] = 0\n",
    ),
    _fault(
        "the smallest pages are drained first",
        "pcp",
        "    return 3 * m.st[at.PAGEBLOCK_ORDER]\n",
        "    return 0\n",
    ),
    _fault(
        "whole blocks queue last",
        "pcp",
        "is_fragment = order < m.st[at.PAGEBLOCK_ORDER] and owner_of",
        "is_fragment = order >= 0 and owner_of",
    ),
    _fault(
        "a free drains the freer's lists",
        "page_free",
        "drain_overflow(m, zone, receiver, remaining, index)",
        "drain_overflow(m, zone, cpu, remaining, index)",
    ),
    _fault(
        "a page keeps its mark on a list of another",
        "page_free",
        "mark_listed(m, pfn, order, migratetype, at.MERGEABLE if is_own else 0)",
        "mark_listed(m, pfn, order, migratetype, at.MERGEABLE)",
    ),
    _fault(
        "a folio batch has 32 pages",
        "pcp",
        "st[words + at.CPU_BATCHED] <= BATCH_MAX",
        "st[words + at.CPU_BATCHED] <= BATCH_MAX + 1",
    ),
    _fault(
        "the first to take a lock takes it over",
        "pcp",
        "        if last != 0:\n",
        "        if last >= 0:\n",
    ),
    _pressed_fault(
        "targets of compaction keep an old mark",
        "compaction_scan",
        'm.pages[pfn]["flags"] = 0\n        m.pages[pfn]["order"] = order\n        m.pages',
        'm.pages[pfn]["order"] = order\n        m.pages',
    ),
)
