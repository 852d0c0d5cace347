"""Reclaim: scans of LRU lists, rounds over a node, direct reclaim (S8.2, S10.5 to S10.8)."""

from __future__ import annotations

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.compaction import (
    __compaction_suitable,
    compact_gap,
    fragmentation_index,
)
from pagealloc_model.allocator.layout import cpu_at, zone_at
from pagealloc_model.allocator.lists import list_add, list_del
from pagealloc_model.allocator.lru import (
    free_waiting,
    is_dirty,
    is_referenced,
    leave_lists,
    leave_slabs,
    lru_move,
    lruvec_add_folio,
    lruvec_del_folio,
    page_zone,
    queue_free,
    remove_piece,
    slab_survives,
    workingset_age_nonresident,
    workingset_eviction,
    zone_reclaimable_pages,
)
from pagealloc_model.allocator.page_free import __free_frozen_pages
from pagealloc_model.allocator.pressure_layout import (
    node_pressure_at,
    value_of,
    word_at,
    zone_pressure_at,
)
from pagealloc_model.allocator.watermark import (
    AllocContext,
    __zone_watermark_ok,
    carefully_seen_free,
    pgdat_balanced,
    seen_free,
    wmark_pages,
)
from pagealloc_model.base.jit import inner

SKIPPED_MOST = pr.CLUSTER << 10
"""Folios in too high zones that one scan passes over, where that is capped."""


@inner
def int_sqrt(value: int) -> int:
    """int_sqrt(): return the integer square root of a small number."""
    root = 0
    while (root + 1) * (root + 1) <= value:
        root += 1
    return root


@inner
def node_lru_pages(m: at.Arrays, node: int, lst: int) -> int:
    """Part of lruvec_page_state(): return the pages on one of a node's lists."""
    return m.st[node_pressure_at(m, node) + pr.NODE_PAGES + lst]


@inner
def lruvec_lru_size(m: at.Arrays, node: int, lst: int, highest_type: int) -> int:
    """lruvec_lru_size(): return the pages on a node's list in zones up to a type."""
    first = node * m.st[at.ZONE_TYPES]
    pages = 0
    for zone in range(first, first + highest_type + 1):
        pages += m.st[zone_pressure_at(m, zone) + pr.ZONE_PAGES + lst]
    return pages


@inner
def inactive_is_low(m: at.Arrays, node: int, inactive: int) -> bool:
    """inactive_is_low(): return whether an inactive list is short beside its active one."""
    pages = node_lru_pages(m, node, inactive)
    active = node_lru_pages(m, node, inactive + 1)
    return pages * max(1, int_sqrt(10 * ((pages + active) >> 18))) < active


@inner
def is_skipped(m: at.Arrays, pfn: int, highest_type: int, skipped: int) -> bool:
    """Part of isolate_lru_folios(): return whether a scan passes over a too high zone's folio."""
    if m.st[zone_at(page_zone(m, pfn)) + at.ZONE_TYPE] <= highest_type:
        return False
    return not m.st[at.RULE_LRU_SKIPS_CAPPED] or skipped < SKIPPED_MOST  # up to 6.18


@inner
def shrink_active_list(
    m: at.Arrays, node: int, inactive: int, budget: int, highest_type: int
) -> None:
    """shrink_active_list(): move `budget` pages of low enough zones to the inactive list."""
    words = node_pressure_at(m, node) + pr.NODE_LISTS + (inactive + 1) * at.LIST_WORDS
    entries = m.st[words + at.ENTRIES]
    moved = 0
    skipped = 0
    while moved < budget and entries > 0:
        entries -= 1
        pfn = m.st[words + at.TAIL]
        if is_skipped(m, pfn, highest_type, skipped):
            skipped += 1
            lru_move(m, pfn, inactive + 1)
        else:
            moved += 1 << int(m.pages[pfn]["order"])
            lru_move(m, pfn, inactive)
    m.st[word_at(m, pr.PGDEACTIVATE)] += moved


@inner
def isolate_lru_folios(
    m: at.Arrays, node: int, inactive: int, budget: int, highest_type: int
) -> tuple[int, int, int]:
    """isolate_lru_folios(): take pages off a tail; the first, how many, how many looked at."""
    words = node_pressure_at(m, node) + pr.NODE_LISTS + inactive * at.LIST_WORDS
    entries = m.st[words + at.ENTRIES]
    first = -1
    last = -1
    taken = 0
    looked = 0
    skipped = 0
    while taken < budget and entries > 0:
        entries -= 1
        pfn = m.st[words + at.TAIL]
        looked += 1 << int(m.pages[pfn]["order"])
        if is_skipped(m, pfn, highest_type, skipped):
            skipped += 1
            lru_move(m, pfn, inactive)
        else:
            taken += 1 << int(m.pages[pfn]["order"])
            lruvec_del_folio(m, pfn)
            m.pages[pfn]["next"] = -1
            if last >= 0:
                m.pages[last]["next"] = pfn
            else:
                first = pfn
            last = pfn
    return first, taken, looked


@inner
def shrink_inactive_list(
    m: at.Arrays, node: int, inactive: int, budget: int, sc: int
) -> tuple[int, int]:
    """shrink_inactive_list() and shrink_folio_list(): look at pages; free what may go."""
    pfn, taken, looked = isolate_lru_folios(m, node, inactive, budget, m.st[sc + pr.SC_HIGHEST])
    m.st[sc + pr.SC_SCANNED] += taken
    freed = 0
    while pfn >= 0:
        following = int(m.pages[pfn]["next"])
        size = 1 << int(m.pages[pfn]["order"])
        if is_referenced(m, pfn):
            lruvec_add_folio(m, pfn, inactive + 1)
            m.st[word_at(m, pr.PGACTIVATE)] += size
            workingset_age_nonresident(m, pfn)
        elif is_dirty(m, pfn):
            lruvec_add_folio(m, pfn, inactive)
        else:
            workingset_eviction(m, pfn)
            if not m.st[at.RULE_RECLAIM_FREES_BACKWARDS]:  # from 6.12
                queue_free(m, pfn)
            elif size == 1:
                # Put a folio, out of its object, before those waiting to be freed.
                leave_lists(m, pfn)
                head = word_at(m, pr.QUEUE_HEAD)
                m.pages[pfn]["next"] = m.st[head]
                if m.st[head] < 0:
                    m.st[word_at(m, pr.QUEUE_TAIL)] = pfn
                m.st[head] = pfn
            else:
                leave_lists(m, pfn)
                __free_frozen_pages(m, m.st[at.EVENT_CPU], pfn, int(m.pages[pfn]["order"]), False)
            freed += size
        pfn = following
    free_waiting(m)
    return looked, freed


MOST_SWAPPINESS = 200
BY_SIZE, BY_SWAPPINESS, ONLY_ANON, ONLY_FILE = range(4)


@inner
def sc_swappiness(m: at.Arrays) -> int:
    """sc_swappiness(): return the setting that scans `anon_scan_percent` of file's share."""
    percent = value_of(m, pr.ANON_SCAN_PERCENT)
    return MOST_SWAPPINESS * percent // (100 + percent)


@inner
def prepare_scan_control(m: at.Arrays, node: int, sc: int) -> None:
    """prepare_scan_control(): decide which active lists may shrink and which lists lead."""
    priority = m.st[sc + pr.SC_PRIORITY]
    bits = 0
    if m.st[sc + pr.SC_FORCE_DEACTIVATE] or inactive_is_low(m, node, pr.INACTIVE_ANON):
        bits |= pr.DEACTIVATE_ANON
    if m.st[sc + pr.SC_FORCE_DEACTIVATE] or inactive_is_low(m, node, pr.INACTIVE_FILE):
        bits |= pr.DEACTIVATE_FILE
    m.st[sc + pr.SC_MAY_DEACTIVATE] = bits
    inactive = node_lru_pages(m, node, pr.INACTIVE_FILE)
    m.st[sc + pr.SC_CACHE_TRIM] = (
        inactive >> priority > 0
        and not bits & pr.DEACTIVATE_FILE
        and not m.st[sc + pr.SC_NO_CACHE_TRIM]
    )
    file = inactive + node_lru_pages(m, node, pr.ACTIVE_FILE)
    marks = 0
    first = node * m.st[at.ZONE_TYPES]
    for zone in range(first, first + m.st[at.ZONE_TYPES]):
        if m.st[zone_at(zone) + at.ZONE_MANAGED] > 0:
            marks += wmark_pages(m, zone, at.WMARK_HIGH)
        file += seen_free(m, zone)
    m.st[sc + pr.SC_FILE_IS_TINY] = (
        file <= marks
        and not bits & pr.DEACTIVATE_ANON
        and node_lru_pages(m, node, pr.INACTIVE_ANON) >> priority > 0
    )


@inner
def scan_balance(m: at.Arrays, sc: int) -> int:
    """Part of get_scan_count(): return how a scan divides between ANON's lists and FILE's."""
    if not m.st[sc + pr.SC_MAY_SWAP] or value_of(m, pr.ANON_SCAN_PERCENT) == 0:
        return ONLY_FILE
    if m.st[sc + pr.SC_PRIORITY] == 0 and sc_swappiness(m) > 0:
        return BY_SIZE
    if m.st[sc + pr.SC_FILE_IS_TINY]:
        return ONLY_ANON
    if m.st[sc + pr.SC_CACHE_TRIM]:
        return ONLY_FILE
    return BY_SWAPPINESS


@inner
def get_scan_count(m: at.Arrays, node: int, sc: int) -> None:
    """get_scan_count(): set how many pages a scan looks at on each list."""
    balance = scan_balance(m, sc)
    swappiness = sc_swappiness(m)
    for lst in range(pr.LRU_LISTS):
        is_file = lst >= pr.INACTIVE_FILE
        pages = lruvec_lru_size(m, node, lst, m.st[sc + pr.SC_HIGHEST])
        pages >>= m.st[sc + pr.SC_PRIORITY]
        if balance == BY_SWAPPINESS:
            share = MOST_SWAPPINESS - swappiness if is_file else swappiness
            pages = pages * share // MOST_SWAPPINESS
        elif balance != BY_SIZE and is_file != (balance == ONLY_FILE):
            pages = 0
        m.st[sc + pr.SC_LEFT + lst] = pages
        m.st[sc + pr.SC_TARGETS + lst] = pages


@inner
def scan_objects(m: at.Arrays, node: int, objects: int) -> int:
    """Part of do_shrink_slab(): free objects, one of each slab in turn; pages that became free."""
    words = node_pressure_at(m, node)
    freed = 0
    while objects > 0 and m.st[words + pr.SLAB_FREEABLE] > 0:
        objects -= 1
        # Take an object off the slab at a list's tail, which goes to the head.
        slab = m.st[words + pr.SLAB_LIST + at.TAIL]
        if int(m.folios[slab]["slab"]) == 1:
            leave_slabs(m, slab)
            slab = -1 if slab_survives(m, slab) else slab
        else:
            m.folios[slab]["slab"] -= 1
            m.st[words + pr.SLAB_FREEABLE] -= 1
            list_del(m.pages, m.st, words + pr.SLAB_LIST, slab)
            list_add(m.pages, m.st, words + pr.SLAB_LIST, slab)
            slab = -1
        if slab >= 0:
            freed += 1 << int(m.pages[slab]["order"])
            remove_piece(m, slab)
            queue_free(m, slab)
    free_waiting(m)
    return freed


@inner
def do_shrink_slab(m: at.Arrays, node: int, sc: int) -> int:
    """do_shrink_slab(): free a share by a pass's priority, in batches, or defer; pages freed."""
    objects = m.st[node_pressure_at(m, node) + pr.SLAB_FREEABLE]
    freeable = objects * m.st[at.POLICY_VFS_CACHE_PRESSURE] // 100
    if freeable == 0:
        return 0
    deferred = node_pressure_at(m, node) + pr.SLAB_DEFERRED
    priority = m.st[sc + pr.SC_PRIORITY]
    delta = (freeable >> priority) * 4 // pr.DEFAULT_SEEKS
    left = min((m.st[deferred] >> priority) + delta, 2 * freeable)
    scanned = 0
    freed = 0
    while m.st[sc + pr.SC_MAY_FS] and (left >= pr.SHRINK_BATCH or left >= freeable):
        batch = min(pr.SHRINK_BATCH, left)
        freed += scan_objects(m, node, batch)
        left -= batch
        scanned += batch
    m.st[deferred] = min(max(m.st[deferred] + delta - scanned, 0), 2 * freeable)
    m.st[word_at(m, pr.SLABS_SCANNED)] += scanned
    return freed


@inner
def shrink_slab(m: at.Arrays, node: int, sc: int) -> int:
    """shrink_slab(): call a node's one shrinker; returns pages that became free, to be counted."""
    freed = do_shrink_slab(m, node, sc)
    m.st[word_at(m, pr.RECLAIMED_SLABS)] += freed
    return freed


@inner
def begin_control(m: at.Arrays, sc: int, order: int, highest_type: int) -> None:
    """Set up what reclaim goes by, for an order and zones up to a type."""
    for word in range(sc, sc + pr.SC_WORDS):
        m.st[word] = 0
    m.st[sc + pr.SC_ORDER] = order
    m.st[sc + pr.SC_HIGHEST] = highest_type
    m.st[sc + pr.SC_PRIORITY] = pr.LOWEST_PRIORITY


@inner
def begin_shrinking(m: at.Arrays, node: int, sc: int) -> None:
    """Part of shrink_node(): set up one round over a node's lists."""
    prepare_scan_control(m, node, sc)
    get_scan_count(m, node, sc)
    m.st[sc + pr.SC_LRU_RECLAIMED] = 0


@inner
def shrink_list(m: at.Arrays, node: int, lst: int, budget: int, sc: int) -> tuple[int, int]:
    """shrink_list(): look at pages of one list; returns pages looked at and pages freed."""
    if lst & 1 == 0:
        return shrink_inactive_list(m, node, lst, budget, sc)
    bit = pr.DEACTIVATE_FILE if lst == pr.ACTIVE_FILE else pr.DEACTIVATE_ANON
    if m.st[sc + pr.SC_MAY_DEACTIVATE] & bit:
        shrink_active_list(m, node, lst - 1, budget, m.st[sc + pr.SC_HIGHEST])
    else:
        m.st[sc + pr.SC_SKIPPED_DEACTIVATE] = 1
    return 0, 0


@inner
def is_left(m: at.Arrays, sc: int) -> bool:
    """Part of shrink_lruvec(): return whether lists besides ANON's active one are to be scanned."""
    left = sc + pr.SC_LEFT
    return (
        m.st[left + pr.INACTIVE_ANON] > 0
        or m.st[left + pr.ACTIVE_FILE] > 0
        or m.st[left + pr.INACTIVE_FILE] > 0
    )


@inner
def shrink_cluster(m: at.Arrays, node: int, sc: int) -> int:
    """Part of shrink_lruvec(): look at up to a cluster of each list; returns kswapd's work, ns."""
    words = node_pressure_at(m, node)
    # isolate_lru_folios(): a large folio is a cluster, with the work of one (S10.14)
    most = pr.CLUSTER if m.st[words + pr.KSWAPD_CPU_TIME + pr.SPANS] > 0 else at.NEVER
    looked = 0
    freed = 0
    work_ns = 0
    for lst in range(pr.LRU_LISTS):
        left = sc + pr.SC_LEFT + lst
        if m.st[left] > 0:
            budget = min(m.st[left], pr.CLUSTER)
            m.st[left] -= budget
            scanned, stolen = shrink_list(m, node, lst, budget, sc)
            looked += scanned
            freed += stolen
            work_ns += min(scanned, most) * value_of(m, pr.RECLAIM_SCAN_NS)
            work_ns += min(stolen, most) * m.st[words + pr.KSWAPD_FREE_NS]
    m.st[sc + pr.SC_LRU_RECLAIMED] += freed
    is_kswapd = m.st[sc + pr.SC_IS_KSWAPD]
    m.st[word_at(m, pr.PGSCAN_KSWAPD if is_kswapd else pr.PGSCAN_DIRECT)] += looked
    m.st[word_at(m, pr.PGSTEAL_KSWAPD if is_kswapd else pr.PGSTEAL_DIRECT)] += freed
    is_first_pass = m.st[sc + pr.SC_PRIORITY] == pr.LOWEST_PRIORITY
    if m.st[sc + pr.SC_LRU_RECLAIMED] >= m.st[sc + pr.SC_GOAL] and (is_kswapd or not is_first_pass):
        # Leave the class with less to scan; scan the other as far.
        left = sc + pr.SC_LEFT
        targets = sc + pr.SC_TARGETS
        anon = m.st[left + pr.INACTIVE_ANON] + m.st[left + pr.ACTIVE_ANON]
        file = m.st[left + pr.INACTIVE_FILE] + m.st[left + pr.ACTIVE_FILE]
        if anon == 0 or file == 0:
            for lst in range(pr.LRU_LISTS):
                m.st[left + lst] = 0
        else:
            smaller = pr.INACTIVE_ANON if file > anon else pr.INACTIVE_FILE
            target = m.st[targets + smaller] + m.st[targets + smaller + 1] + 1
            percent = min(anon, file) * 100 // target
            m.st[left + smaller] = 0
            m.st[left + smaller + 1] = 0
            larger = pr.INACTIVE_FILE - smaller
            for lst in range(larger, larger + 2):
                scanned = m.st[targets + lst] - m.st[left + lst]
                wanted = m.st[targets + lst] * (100 - percent) // 100
                m.st[left + lst] = max(wanted - scanned, 0)
    return max(work_ns, 1000)


@inner
def end_shrinking(m: at.Arrays, node: int, sc: int) -> bool:
    """Part of shrink_node(): shrink slabs, end a round; returns whether another follows."""
    if value_of(m, pr.ANON_SCAN_PERCENT) > 0 and inactive_is_low(m, node, pr.INACTIVE_ANON):
        shrink_active_list(m, node, pr.INACTIVE_ANON, pr.CLUSTER, m.st[sc + pr.SC_HIGHEST])
    freed = m.st[sc + pr.SC_LRU_RECLAIMED] + shrink_slab(m, node, sc)
    m.st[sc + pr.SC_RECLAIMED] += freed
    if freed > 0:
        m.st[sc + pr.SC_RECLAIMABLE] = 1
    if should_continue_reclaim(m, node, freed, sc):
        begin_shrinking(m, node, sc)
        return True
    if m.st[sc + pr.SC_RECLAIMABLE]:
        clear_failures(m, node, sc)
    elif m.st[sc + pr.SC_CACHE_TRIM]:
        m.st[sc + pr.SC_CACHE_TRIM_FAILED] = 1
    m.st[sc + pr.SC_RECLAIMABLE] = 0
    return False


@inner
def clear_failures(m: at.Arrays, node: int, sc: int) -> None:
    """kswapd_try_clear_hopeless(): forget a node's failures after progress, or once balanced."""
    if not m.st[at.RULE_REVIVED_WHEN_BALANCED] or pgdat_balanced(  # up to 6.18
        m, node, m.st[sc + pr.SC_ORDER], m.st[sc + pr.SC_HIGHEST]
    ):
        m.st[node_pressure_at(m, node) + pr.KSWAPD_FAILURES] = 0


@inner
def in_reclaim_compaction(m: at.Arrays, sc: int) -> bool:
    """in_reclaim_compaction(): return whether reclaim is to help compaction."""
    order = m.st[sc + pr.SC_ORDER]
    if order == 0 or not m.st[sc + pr.SC_MAY_COMPACT]:
        return False
    is_pressed = m.st[sc + pr.SC_PRIORITY] < pr.LOWEST_PRIORITY - 2
    return order > m.st[at.POLICY_COSTLY_ORDER] or is_pressed


@inner
def should_continue_reclaim(m: at.Arrays, node: int, freed: int, sc: int) -> bool:
    """should_continue_reclaim(): return whether the round is repeated for compaction's sake."""
    if not in_reclaim_compaction(m, sc) or freed == 0:
        return False
    order = m.st[sc + pr.SC_ORDER]
    highest = m.st[sc + pr.SC_HIGHEST]
    first = node * m.st[at.ZONE_TYPES]
    for zone in range(first, first + highest + 1):
        if m.st[zone_at(zone) + at.ZONE_MANAGED] > 0:
            mark = wmark_pages(m, zone, at.WMARK_MIN)
            if __zone_watermark_ok(m, zone, order, mark, highest, 0, seen_free(m, zone)):
                return False
            if compaction_suitable(m, zone, order, mark, highest):
                return False
    pages = node_lru_pages(m, node, pr.INACTIVE_FILE)
    if value_of(m, pr.ANON_SCAN_PERCENT) > 0:
        pages += node_lru_pages(m, node, pr.INACTIVE_ANON)
    return pages > compact_gap(m, order)


@inner
def compaction_suitable(m: at.Arrays, zone: int, order: int, mark: int, highest_type: int) -> bool:
    """compaction_suitable(): return whether compaction for a mark is worth a try (S9.1)."""
    if not __compaction_suitable(m, zone, order, mark, highest_type, seen_free(m, zone)):
        return False
    if order <= m.st[at.POLICY_COSTLY_ORDER]:
        return True
    index = fragmentation_index(m, zone, order)
    return index < 0 or index > m.st[at.POLICY_EXTFRAG_THRESHOLD]


@inner
def wake_sleeper(m: at.Arrays, node: int) -> None:
    """Part of wakeup_kswapd(): let a kswapd that sleeps or naps run soon."""
    words = node_pressure_at(m, node)
    m.st[words + pr.KSWAPD_WOKEN] = 1
    m.st[words + pr.KSWAPD_DUE] = m.st[at.NOW] + value_of(m, pr.KSWAPD_WAKE_NS)


@inner
def kswapd_test_hopeless(m: at.Arrays, node: int) -> bool:
    """kswapd_test_hopeless(): return whether kswapd has given up on a node."""
    return m.st[node_pressure_at(m, node) + pr.KSWAPD_FAILURES] >= pr.RETRIES_MAX


@inner
def compaction_ready(m: at.Arrays, zone: int, sc: int) -> bool:
    """compaction_ready(): return whether compaction can do the rest for a costly order."""
    order = m.st[sc + pr.SC_ORDER]
    highest = m.st[sc + pr.SC_HIGHEST]
    if order <= m.st[at.POLICY_COSTLY_ORDER] or not m.st[sc + pr.SC_MAY_COMPACT]:
        return False
    mark = wmark_pages(m, zone, at.WMARK_MIN)
    if __zone_watermark_ok(m, zone, order, mark, highest, 0, seen_free(m, zone)):
        return True
    high = wmark_pages(m, zone, at.WMARK_HIGH)
    if m.st[at.RULE_READY_BY_HIGH_MARK]:  # from 7.2
        return compaction_suitable(m, zone, order, high, highest)
    if not compaction_suitable(m, zone, order, mark, highest):
        return False
    free = carefully_seen_free(m, zone)
    return __zone_watermark_ok(m, zone, 0, high + compact_gap(m, order), highest, 0, free)


@inner
def shrink_node(m: at.Arrays, node: int, sc: int) -> None:
    """shrink_node(): scan a node's lists for a request, whose CPU that keeps busy (S10.10)."""
    until = cpu_at(m, m.st[at.EVENT_CPU]) + at.CPU_RECLAIMS_UNTIL
    begin_shrinking(m, node, sc)
    goes_on = True
    while goes_on:
        while is_left(m, sc):
            m.st[until] += shrink_cluster(m, node, sc)
        goes_on = end_shrinking(m, node, sc)


@inner
def try_to_free_pages(m: at.Arrays, ac: AllocContext, order: int) -> int:
    """try_to_free_pages(): reclaim for a request.

    `order` is what is wanted in the end, which may be more than the request's (S8.7). Returns how
    much progress it made: pages freed, or 1 if compaction is to do the rest (S8.2).
    """
    if not ac.bits & at.KERNEL_THREAD:
        throttle_direct_reclaim(m, ac)
    m.st[word_at(m, pr.REQUEST_STALLED)] = 1
    cpu = cpu_at(m, m.st[at.EVENT_CPU])
    if m.st[cpu + at.CPU_RECLAIMS_FROM] < m.st[at.NOW]:
        m.st[cpu + at.CPU_RECLAIMS_FROM] = m.st[at.NOW]
        m.st[cpu + at.CPU_RECLAIMS_UNTIL] = m.st[at.NOW]
    sc = word_at(m, pr.DIRECT_SCAN)
    begin_control(m, sc, order, ac.highest_type)
    m.st[sc + pr.SC_GOAL] = pr.CLUSTER
    m.st[sc + pr.SC_MAY_SWAP] = 1
    m.st[sc + pr.SC_MAY_COMPACT] = ac.bits & pr.GFP_IO != 0
    m.st[sc + pr.SC_MAY_FS] = ac.bits & pr.GFP_FS != 0
    progress = do_try_to_free_pages(m, ac, sc)
    if progress == 0 and m.st[at.RULE_FRUITLESS_RECLAIM_REPEATED]:  # from 6.12
        progress = do_try_to_free_pages(m, ac, sc)
    if progress == 0 and m.st[sc + pr.SC_SKIPPED_DEACTIVATE]:
        m.st[sc + pr.SC_FORCE_DEACTIVATE] = 1
        progress = do_try_to_free_pages(m, ac, sc)
    return progress


@inner
def do_try_to_free_pages(m: at.Arrays, ac: AllocContext, sc: int) -> int:
    """do_try_to_free_pages(): reclaim ever harder; pages freed, or 1 if compaction is to go on."""
    m.st[word_at(m, pr.ALLOCSTALL + ac.highest_type)] += 1
    for priority in range(pr.LOWEST_PRIORITY, -1, -1):
        m.st[sc + pr.SC_PRIORITY] = priority
        shrink_zones(m, ac, sc)
        if m.st[sc + pr.SC_RECLAIMED] >= m.st[sc + pr.SC_GOAL]:
            break
        if m.st[sc + pr.SC_COMPACTION_READY]:
            break
    return max(m.st[sc + pr.SC_RECLAIMED], m.st[sc + pr.SC_COMPACTION_READY])


@inner
def shrink_zones(m: at.Arrays, ac: AllocContext, sc: int) -> None:
    """shrink_zones(): pass once over the nodes of a request."""
    position = ac.zonelist
    scanned_node = -1
    while m.st[position] >= 0:
        zone = m.st[position]
        position += 1
        node = m.st[zone_at(zone) + at.ZONE_NODE]
        if compaction_ready(m, zone, sc):
            m.st[sc + pr.SC_COMPACTION_READY] = 1
        elif node != scanned_node:
            scanned_node = node
            shrink_node(m, node, sc)


@inner
def allow_direct_reclaim(m: at.Arrays, node: int) -> bool:
    """allow_direct_reclaim(): return whether a node has half of its min marks free (S8.2)."""
    if kswapd_test_hopeless(m, node):
        return True
    marks = 0
    free = 0
    first = node * m.st[at.ZONE_TYPES]
    for zone in range(first, first + highest_normal(m) + 1):
        if m.st[zone_at(zone) + at.ZONE_MANAGED] == 0:
            continue
        has_free = m.st[zone_at(zone) + at.ZONE_FREE] > 0
        if zone_reclaimable_pages(m, zone) == 0 and (
            has_free or m.st[at.RULE_FREE_COUNTS_AS_RECLAIMABLE]  # up to 6.18
        ):
            continue
        marks += wmark_pages(m, zone, at.WMARK_MIN)
        if m.st[at.RULE_THROTTLE_COUNTS_EXACTLY]:  # from 6.12
            free += m.st[zone_at(zone) + at.ZONE_FREE]
        else:
            free += seen_free(m, zone)
    if marks == 0 or free > marks // 2:
        return True
    words = node_pressure_at(m, node)
    if m.st[words + pr.KSWAPD_PHASE] != pr.RUNNING and not m.st[words + pr.KSWAPD_WOKEN]:
        wanted = m.st[words + pr.KSWAPD_WANTED_HIGHEST]
        if wanted < 0 or wanted > highest_normal(m):
            m.st[words + pr.KSWAPD_WANTED_HIGHEST] = highest_normal(m)
        wake_sleeper(m, node)
    return False


@inner
def highest_normal(m: at.Arrays) -> int:
    """Return the highest zone type that any kernel memory may come from."""
    return value_of(m, pr.HIGHEST_NORMAL)


@inner
def throttle_direct_reclaim(m: at.Arrays, ac: AllocContext) -> None:
    """throttle_direct_reclaim(): wake kswapd where the first usable node's reserves end (S8.2)."""
    position = ac.zonelist
    while m.st[position] >= 0:
        region = zone_at(m.st[position])
        position += 1
        if m.st[region + at.ZONE_TYPE] <= highest_normal(m):
            if not allow_direct_reclaim(m, m.st[region + at.ZONE_NODE]):
                m.st[word_at(m, pr.PGSCAN_DIRECT_THROTTLE)] += 1
            return
