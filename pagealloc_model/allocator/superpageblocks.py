"""Superpageblocks, tainted or clean, and free lists in two parts, one for each (S14).

`st[layout.SUPERPAGEBLOCKS]` is the offset of their words, 0 where the policy has none.
"""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.layout import Region, free_list_at, zone_at
from pagealloc_model.allocator.lists import list_del, list_insert
from pagealloc_model.base.errors import PolicyError
from pagealloc_model.base.jit import cold, inner
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Policy
from pagealloc_model.recording.machine import Machine

CLEAN, TAINTED = 0, 1
PACKED_ABOVE = 8
"""A zone of more superpageblocks than this packs those that are tainted (S14.4)."""

_scalars = Region()
RANGES = _scalars.word()
"""Superpageblocks from page frame 0 to the machine's end."""
TAINTS = _scalars.word()
"""Where the zones' tables begin: by superpageblock, its blocks that taint it."""
FIRST_TAINTED = _scalars.size
"""By zone, order and type: the first buddy of the list's tainted part, -1 for none."""


def superpageblock_words(
    policy: Policy, rules: KernelRules, machine: Machine, base: int
) -> np.ndarray:
    """No kernel function: return the words of superpageblocks, int64, none without them."""
    order = policy.superpageblock_order or 0
    if not order:
        return np.zeros(0, np.int64)
    if order < machine.max_order:
        raise PolicyError(
            f"policy superpageblock_order={order}: give 0 or {machine.max_order} and more, "
            "the largest order of free pages"
        )
    if not rules.lists_match_blocks:
        raise PolicyError(
            f"policy superpageblock_order={order}: not with rules {rules.spelled()}; it needs "
            "lists_match_blocks, as in 6.12 and later"
        )
    if policy.pageblock_ownership == "pcp_buddy":
        raise PolicyError(
            f"policy superpageblock_order={order}: not together with pageblock_ownership=pcp_buddy"
        )
    zones = len(machine.zones)
    ranges = -(-machine.end_pfn >> order)
    lists = zones * at.ORDERS * at.MIGRATETYPES
    words = np.zeros(FIRST_TAINTED + lists + zones * ranges, np.int64)
    words[RANGES] = ranges
    words[TAINTS] = base + FIRST_TAINTED + lists
    words[FIRST_TAINTED : FIRST_TAINTED + lists] = -1
    return words


@inner
def taints(migratetype: int) -> bool:
    """No kernel function: return whether a block of this type taints its range (S14.1)."""
    return migratetype in (at.UNMOVABLE, at.RECLAIMABLE, at.HIGHATOMIC)


@inner
def taint_at(m: at.Arrays, zone: int, pfn: int) -> int:
    """No kernel function: return where a page's superpageblock counts its tainting blocks."""
    base = m.st[at.SUPERPAGEBLOCKS]
    number = pfn >> m.st[at.POLICY_SUPERPAGEBLOCK_ORDER]
    return m.st[base + TAINTS] + zone * m.st[base + RANGES] + number


@inner
def first_tainted_at(m: at.Arrays, zone: int, order: int, migratetype: int) -> int:
    """No kernel function: return where the first buddy of a list's tainted part is kept."""
    number = (zone * at.ORDERS + order) * at.MIGRATETYPES + migratetype
    return m.st[at.SUPERPAGEBLOCKS] + FIRST_TAINTED + number


@cold
def add_to_part(
    m: at.Arrays, zone: int, pfn: int, order: int, migratetype: int, tail: bool
) -> None:
    """Part of __add_to_free_list(): put a free buddy into its part of a list (S14.2)."""
    lst = free_list_at(zone, order, migratetype)
    first = first_tainted_at(m, zone, order, migratetype)
    boundary = m.st[first]
    if m.st[taint_at(m, zone, pfn)] > 0:
        following = -1 if tail else boundary
        if boundary < 0 or not tail:
            m.st[first] = pfn
    else:
        following = boundary if tail else m.st[lst + at.HEAD]
    list_insert(m.pages, m.st, lst, pfn, following)


@cold
def leave_part(m: at.Arrays, zone: int, pfn: int, order: int, migratetype: int) -> None:
    """Part of __del_page_from_free_list(): keep the parts apart as a buddy leaves (S14.2)."""
    first = first_tainted_at(m, zone, order, migratetype)
    if m.st[first] == pfn:
        m.st[first] = m.pages[pfn]["next"]


@inner
def move_to_other_parts(m: at.Arrays, zone: int, number: int) -> None:
    """No kernel function: move a superpageblock's free buddies to the other parts (S14.2)."""
    region = zone_at(zone)
    order = m.st[at.POLICY_SUPERPAGEBLOCK_ORDER]
    pfn = max(number << order, m.st[region + at.ZONE_START])
    end = min((number + 1) << order, m.st[region + at.ZONE_END])
    while pfn < end:
        size = 1
        is_own = int(m.blocks[pfn >> m.st[at.PAGEBLOCK_ORDER]]["zone"]) == zone + 1
        if is_own and int(m.pages[pfn]["where"]) == at.BUDDY:
            buddy_order = int(m.pages[pfn]["order"])
            migratetype = int(m.pages[pfn]["tag"])
            leave_part(m, zone, pfn, buddy_order, migratetype)
            list_del(m.pages, m.st, free_list_at(zone, buddy_order, migratetype), pfn)
            add_to_part(m, zone, pfn, buddy_order, migratetype, True)
            size = 1 << buddy_order
        pfn += size


@cold
def note_retyped(m: at.Arrays, block: int, migratetype: int) -> None:
    """No kernel function: count a block's next type in its superpageblock (S14.1, S14.2)."""
    zone = int(m.blocks[block]["zone"]) - 1
    now = taints(migratetype)
    if zone < 0 or now == taints(int(m.blocks[block]["migratetype"])):
        return
    pfn = block << m.st[at.PAGEBLOCK_ORDER]
    count = taint_at(m, zone, pfn)
    m.st[count] += 1 if now else -1
    if m.st[count] == (1 if now else 0):
        move_to_other_parts(m, zone, pfn >> m.st[at.POLICY_SUPERPAGEBLOCK_ORDER])


@inner
def head_of_part(m: at.Arrays, zone: int, order: int, migratetype: int, part: int) -> int:
    """Part of get_page_from_free_area(): return the first buddy of a part, or -1 (S14.2)."""
    m.st[at.LIST_PROBES] += 1
    boundary = m.st[first_tainted_at(m, zone, order, migratetype)]
    if part == TAINTED:
        return boundary
    head = m.st[free_list_at(zone, order, migratetype) + at.HEAD]
    return head if head != boundary else -1


@cold
def smallest_fit_by_class(m: at.Arrays, zone: int, order: int, migratetype: int) -> int:
    """Part of __rmqueue_smallest(): return the buddy to cut from, or -1, by class (S14.3)."""
    for part in range(TAINTED if taints(migratetype) else CLEAN, TAINTED + 1):
        for current in range(order, m.st[at.MAX_ORDER] + 1):
            pfn = head_of_part(m, zone, current, migratetype, part)
            if pfn >= 0:
                return pfn
    return -1


@inner
def falls_back_by_class(m: at.Arrays, migratetype: int) -> bool:
    """No kernel function: return whether a request falls back in tainted ones first (S14.4)."""
    return m.st[at.SUPERPAGEBLOCKS] != 0 and migratetype != at.MOVABLE


@inner
def packs(m: at.Arrays, zone: int) -> bool:
    """No kernel function: return whether claims in tainted ones may be below a block (S14.4)."""
    region = zone_at(zone)
    order = m.st[at.POLICY_SUPERPAGEBLOCK_ORDER]
    first = m.st[region + at.ZONE_START] >> order
    last = (m.st[region + at.ZONE_END] - 1) >> order
    return last - first + 1 > PACKED_ABOVE
