"""Who owns a pageblock, what ends that, and lists with buddies of every order (S12.1 to S12.8)."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.layout import (
    cpu_at,
    lockless_at,
    owned_block_at,
    owned_set_at,
    owner_at,
    pcp_at,
)
from pagealloc_model.allocator.lists import list_add, list_add_tail, list_del
from pagealloc_model.base.errors import PolicyError
from pagealloc_model.base.jit import hot, inner
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.ownership_options import OwnershipOptions
from pagealloc_model.policy.policy import Policy
from pagealloc_model.policy.policy_fields import CHOICE


@inner
def option(m: at.Arrays, which: int) -> int:
    """Return an ownership option."""
    return m.st[m.st[at.OWNERSHIP] + which]


@inner
def owner_of(m: at.Arrays, block: int) -> int:
    """Return the CPU that owns a block, or -1."""
    return m.st[owner_at(m, block)] - 1


@inner
def count_owning(m: at.Arrays, zone: int, counter: int, change: int) -> None:
    """Count what the CPU at work did in a zone."""
    m.st[owned_set_at(m, zone, m.st[at.EVENT_CPU]) + counter] += change


@inner
def unrecord_block(m: at.Arrays, zone: int, cpu: int, block: int) -> None:
    """Take a block off its owner's list."""
    lst = owned_set_at(m, zone, cpu) + at.SET_RECORDED
    words = owned_block_at(m, block)
    following = m.st[words + at.BLOCK_NEXT]
    preceding = m.st[words + at.BLOCK_PREV]
    if preceding >= 0:
        m.st[owned_block_at(m, preceding) + at.BLOCK_NEXT] = following
    else:
        m.st[lst + at.HEAD] = following
    if following >= 0:
        m.st[owned_block_at(m, following) + at.BLOCK_PREV] = preceding
    else:
        m.st[lst + at.TAIL] = preceding
    m.st[lst + at.ENTRIES] -= 1
    m.st[words + at.BLOCK_IS_RECORDED] = 0


@inner
def take_ownership(m: at.Arrays, zone: int, cpu: int, block: int) -> None:
    """Make a CPU the owner of a block that is free as a whole."""
    m.st[owner_at(m, block)] = cpu + 1
    count_owning(m, zone, at.BLOCKS_CLAIMED, 1)


@inner
def end_ownership(m: at.Arrays, block: int) -> None:
    """End the ownership of a block, if it has an owner."""
    cpu = owner_of(m, block)
    if cpu < 0:
        return
    zone = int(m.blocks[block]["zone"]) - 1
    if m.st[owned_block_at(m, block) + at.BLOCK_IS_RECORDED]:
        unrecord_block(m, zone, cpu, block)
    m.st[owner_at(m, block)] = 0
    count_owning(m, zone, at.OWNERSHIPS_ENDED, 1)


@inner
def end_recorded(m: at.Arrays, zone: int, cpu: int) -> None:
    """End the ownership of all blocks on a CPU's list of recorded ones."""
    lst = owned_set_at(m, zone, cpu) + at.SET_RECORDED
    while m.st[lst + at.HEAD] >= 0:
        end_ownership(m, m.st[lst + at.HEAD])


@inner
def note_drained(m: at.Arrays, zone: int, block: int) -> None:
    """Record an owned block of which a fragment went to the zone's lists."""
    cpu = owner_of(m, block)
    if cpu < 0:
        return
    if option(m, at.OPTION_OWNERSHIP_ENDS) == at.ENDS_DRAINED:
        end_ownership(m, block)
    elif not m.st[owned_block_at(m, block) + at.BLOCK_IS_RECORDED]:
        cap = option(m, at.OPTION_RECORDED_CAP)
        entries = m.st[owned_set_at(m, zone, cpu) + at.SET_RECORDED + at.ENTRIES]
        if cap > 0 and entries >= cap:
            end_ownership(m, block)
        else:
            lst = owned_set_at(m, zone, cpu) + at.SET_RECORDED
            words = owned_block_at(m, block)
            tail = m.st[lst + at.TAIL]
            m.st[words + at.BLOCK_IS_RECORDED] = 1
            m.st[words + at.BLOCK_PREV] = tail
            m.st[words + at.BLOCK_NEXT] = -1
            if tail >= 0:
                m.st[owned_block_at(m, tail) + at.BLOCK_NEXT] = block
            else:
                m.st[lst + at.HEAD] = block
            m.st[lst + at.TAIL] = block
            m.st[lst + at.ENTRIES] += 1
            count_owning(m, zone, at.BLOCKS_RECORDED, 1)


@inner
def disown_cpu(m: at.Arrays, cpu: int) -> None:
    """Take an offline CPU's blocks, unless it keeps them for its return."""
    if not m.st[at.OWNERSHIP] or option(m, at.OPTION_OFFLINE_OWNER) == at.OFFLINE_KEEPS:
        return
    for block in range(m.blocks.shape[0]):
        if owner_of(m, block) == cpu:
            end_ownership(m, block)


@inner
def receiver_of(m: at.Arrays, owner: int, is_plain: bool, cpu: int) -> int:
    """Return whose lists get a page: an owner's, or those of `cpu`."""
    if not option(m, at.OPTION_ROUTES_FREES):
        return cpu
    if is_plain and option(m, at.OPTION_PLAIN_FREES) == at.PLAIN_STAYS_LOCAL:
        return cpu
    return cpu if m.st[cpu_at(m, owner) + at.CPU_IS_DEAD] else owner


@inner
def owned_list_at(pcp: int, order: int, migratetype: int) -> int:
    """Return the offset of a pageset's list: orders, each with all types."""
    return pcp + at.PCP_LISTS + (3 * order + migratetype) * at.LIST_WORDS


@inner
def smallest_listed(m: at.Arrays, pcp: int, order: int, migratetype: int) -> int:
    """Return the smallest sufficient order listed for a type, or -1."""
    for current in range(order, m.st[at.PAGEBLOCK_ORDER] + 1):
        if m.st[owned_list_at(pcp, current, migratetype) + at.HEAD] >= 0:
            return current
    return -1


@inner
def mark_listed(m: at.Arrays, pfn: int, order: int, tag: int, flags: int) -> None:
    """Describe a page that is about to go on a per-CPU list."""
    m.pages[pfn]["order"] = order
    m.pages[pfn]["where"] = at.ON_PCP
    m.pages[pfn]["tag"] = tag
    m.pages[pfn]["flags"] = flags


@inner
def unmerged_at(pcp: int, order: int, migratetype: int) -> int:
    """Return where it says how far a list's unmerged buddies reach."""
    return pcp + at.PCP_UNMERGED + 3 * order + migratetype


@inner
def push_listed(m: at.Arrays, pcp: int, pfn: int, order: int, kind: int) -> None:
    """Push a page, described already, on its list's head."""
    list_add(m.pages, m.st, owned_list_at(pcp, order, kind), pfn)
    unmerged = unmerged_at(pcp, order, kind)
    if m.st[unmerged] > 0 or listed_buddy(m, pfn, order, kind) >= 0:
        m.st[unmerged] += 1


@inner
def append_listed(m: at.Arrays, pcp: int, pfn: int, order: int, kind: int) -> None:
    """Append a page, described already, to its list."""
    lst = owned_list_at(pcp, order, kind)
    list_add_tail(m.pages, m.st, lst, pfn)
    if listed_buddy(m, pfn, order, kind) >= 0:
        m.st[unmerged_at(pcp, order, kind)] = m.st[lst + at.ENTRIES]


@inner
def pop_listed(m: at.Arrays, zone: int, pcp: int, order: int, from_order: int, kind: int) -> int:
    """Take a list's head, keep its low part, push the halves."""
    lst = owned_list_at(pcp, from_order, kind)
    pfn = m.st[lst + at.HEAD]
    list_del(m.pages, m.st, lst, pfn)
    unmerged = unmerged_at(pcp, from_order, kind)
    m.st[unmerged] = max(m.st[unmerged] - 1, 0)
    tag = int(m.pages[pfn]["tag"])
    flags = int(m.pages[pfn]["flags"])
    current = from_order
    while current > order:
        current -= 1
        half = pfn + (1 << current)
        mark_listed(m, half, current, tag, flags)
        push_listed(m, pcp, half, current, kind)
    if from_order > order:
        count_owning(m, zone, at.LIST_SPLITS, from_order - order)
    m.st[pcp + at.PCP_COUNT] -= 1 << order
    return pfn


@inner
def listed_buddy(m: at.Arrays, pfn: int, order: int, migratetype: int) -> int:
    """Return the buddy of a listed page if both are mergeable, or -1."""
    buddy = pfn ^ (1 << order)
    if (
        order < m.st[at.PAGEBLOCK_ORDER]
        and int(m.pages[pfn]["flags"]) & at.MERGEABLE
        and int(m.pages[buddy]["where"]) == at.ON_PCP
        and int(m.pages[buddy]["order"]) == order
        and int(m.pages[buddy]["tag"]) == migratetype
        and int(m.pages[buddy]["flags"]) & at.MERGEABLE
    ):
        return buddy
    return -1


@inner
def mergeable_buddy(m: at.Arrays, cpu: int, pfn: int, order: int, migratetype: int) -> int:
    """Return the buddy that a listed page can merge with, or -1."""
    buddy = listed_buddy(m, pfn, order, migratetype)
    if buddy >= 0 and owner_of(m, pfn >> m.st[at.PAGEBLOCK_ORDER]) == cpu:
        return buddy
    return -1


@inner
def join(m: at.Arrays, zone: int, lst: int, pfn: int, buddy: int, migratetype: int) -> int:
    """Make one page of two listed buddies; returns its first page."""
    order = int(m.pages[pfn]["order"])
    list_del(m.pages, m.st, lst, pfn)
    list_del(m.pages, m.st, lst, buddy)
    m.pages[max(pfn, buddy)]["where"] = at.NOWHERE
    first = min(pfn, buddy)
    mark_listed(m, first, order + 1, migratetype, at.MERGEABLE)
    count_owning(m, zone, at.LIST_MERGES, 1)
    return first


@inner
def merge_upward(m: at.Arrays, zone: int, cpu: int, pfn: int, migratetype: int) -> None:
    """Merge a page just pushed with its listed buddies, as far as it goes."""
    pcp = pcp_at(m, zone, cpu)
    while True:
        order = int(m.pages[pfn]["order"])
        buddy = mergeable_buddy(m, cpu, pfn, order, migratetype)
        count_owning(m, zone, at.MERGE_ENTRIES, 1)
        if buddy < 0:
            return
        lst = owned_list_at(pcp, order, migratetype)
        pfn = join(m, zone, lst, pfn, buddy, migratetype)
        list_add(m.pages, m.st, owned_list_at(pcp, order + 1, migratetype), pfn)


@hot
def push_freed(m: at.Arrays, zone: int, cpu: int, pfn: int, order: int, is_own: bool) -> int:
    """Part of free_frozen_page_commit(): push a page on a CPU's list; returns the list's number."""
    migratetype = int(m.blocks[pfn >> m.st[at.PAGEBLOCK_ORDER]]["migratetype"])
    kind = migratetype if migratetype < at.PCP_TYPES else at.MOVABLE
    mark_listed(m, pfn, order, migratetype, at.MERGEABLE if is_own else 0)
    push_listed(m, pcp_at(m, zone, cpu), pfn, order, kind)
    if is_own and option(m, at.OPTION_MERGES_AT) == at.MERGES_AT_FREE:
        merge_upward(m, zone, cpu, pfn, kind)
    return 3 * order + kind


@inner
def push_lockless(m: at.Arrays, zone: int, cpu: int, pfn: int, order: int) -> None:
    """Push a page freed elsewhere on a CPU's lockless list (S12.8)."""
    lst = lockless_at(m, zone, cpu)
    mark_listed(m, pfn, order, 0, 0)
    m.pages[pfn]["next"] = m.st[lst + at.LOCKLESS_HEAD]
    m.st[lst + at.LOCKLESS_HEAD] = pfn
    m.st[lst + at.LOCKLESS_PAGES] += 1 << order


@inner
def absorb_lockless(m: at.Arrays, zone: int, cpu: int) -> None:
    """Move a CPU's lockless list to its lists, newest page first (S12.8)."""
    if option(m, at.OPTION_REMOTE_FREE) != at.REMOTE_FREE_IS_LOCKLESS:
        return
    lst = lockless_at(m, zone, cpu)
    pfn = m.st[lst + at.LOCKLESS_HEAD]
    m.st[lst + at.LOCKLESS_HEAD] = -1
    m.st[pcp_at(m, zone, cpu) + at.PCP_COUNT] += m.st[lst + at.LOCKLESS_PAGES]
    m.st[lst + at.LOCKLESS_PAGES] = 0
    while pfn >= 0:
        following = int(m.pages[pfn]["next"])
        is_own = owner_of(m, pfn >> m.st[at.PAGEBLOCK_ORDER]) == cpu
        push_freed(m, zone, cpu, pfn, int(m.pages[pfn]["order"]), is_own)
        pfn = following


@inner
def merge_list(m: at.Arrays, zone: int, cpu: int, order: int, migratetype: int) -> int:
    """Merge the buddies on one list, head to tail."""
    pcp = pcp_at(m, zone, cpu)
    lst = owned_list_at(pcp, order, migratetype)
    looked_at = m.st[lst + at.ENTRIES]
    unmerged = m.st[unmerged_at(pcp, order, migratetype)]
    m.st[unmerged_at(pcp, order, migratetype)] = 0
    pfn = m.st[lst + at.HEAD]
    while unmerged > 0 and pfn >= 0:
        unmerged -= 1
        following = int(m.pages[pfn]["next"])
        buddy = mergeable_buddy(m, cpu, pfn, order, migratetype)
        if buddy >= 0:
            if following == buddy:
                following = int(m.pages[buddy]["next"])
            first = join(m, zone, lst, pfn, buddy, migratetype)
            append_listed(m, pcp, first, order + 1, migratetype)
            looked_at -= 1
        pfn = following
    return looked_at


@inner
def absorb_and_merge(m: at.Arrays, zone: int, cpu: int) -> None:
    """Before a drain: absorb, and merge what lists hold of the CPU's blocks, bottom up (S12.5)."""
    if not m.st[at.OWNERSHIP]:
        return
    absorb_lockless(m, zone, cpu)
    if option(m, at.OPTION_MERGES_AT) == at.MERGES_AT_FREE:
        return
    looked_at = 0
    for order in range(m.st[at.PAGEBLOCK_ORDER]):
        for migratetype in range(at.PCP_TYPES):
            looked_at += merge_list(m, zone, cpu, order, migratetype)
    count_owning(m, zone, at.MERGE_ENTRIES, looked_at)


def is_owning(policy: Policy) -> bool:
    """Return whether blocks can be owned under a policy."""
    return policy.pageblock_ownership == "pcp_buddy"


def ownership_words(
    policy: Policy, rules: KernelRules, pagesets: int, blocks: int, base: int
) -> np.ndarray:
    """Return the words of ownership as a replay begins, int64; none without ownership.

    Raises:
        PolicyError: ownership cannot be added to such a kernel.
    """
    if not is_owning(policy):
        return np.zeros(0, np.int64)
    if not (rules.lists_match_blocks and rules.pcp_auto_tuned):
        raise PolicyError(
            f"policy pageblock_ownership=pcp_buddy: not with rules {rules.spelled()}; it needs "
            "lists_match_blocks and pcp_auto_tuned, as in 6.12 and later"
        )
    options = policy.ownership or OwnershipOptions()
    sets_end = at.OWNERSHIP_SCALARS + pagesets * at.OWNED_SET_STRIDE
    owners_end = sets_end + blocks
    words = np.zeros(owners_end + blocks * at.OWNED_BLOCK_WORDS, np.int64)
    for each in fields(options):
        value = getattr(options, each.name)
        if each.metadata["kind"] == CHOICE:
            value = each.metadata["choices"].index(value)
        words[at.OPTION_WORDS[each.name]] = int(value)
    words[at.OWNED_SETS] = base + at.OWNERSHIP_SCALARS
    words[at.OWNERS] = base + sets_end
    words[at.OWNED_BLOCKS] = base + owners_end
    recorded = words[at.OWNERSHIP_SCALARS : sets_end].reshape(pagesets, at.OWNED_SET_STRIDE)
    recorded[:, at.SET_RECORDED + at.HEAD] = -1
    recorded[:, at.SET_RECORDED + at.TAIL] = -1
    if options.remote_free != "lockless":
        return words
    lockless = np.zeros((pagesets, at.LOCKLESS_WORDS), np.int64)
    lockless[:, at.LOCKLESS_HEAD] = -1
    return np.concatenate([words, lockless.ravel()])
