"""Where two states differ after operations of compaction, in words."""

from __future__ import annotations

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.state import State
from pagealloc_model.verdict.kernel_judge.state_differences import differences, differing_words

ZONE_FIELDS = {
    pr.ZONE_MIGRATE_ASYNC: "compact_cached_migrate_pfn[0]",
    pr.ZONE_MIGRATE_SYNC: "compact_cached_migrate_pfn[1]",
    pr.ZONE_FREE_FROM: "compact_cached_free_pfn",
    pr.ZONE_CONSIDERED: "compact_considered",
    pr.ZONE_DEFER_SHIFT: "compact_defer_shift",
    pr.ZONE_ORDER_FAILED: "compact_order_failed",
    pr.ZONE_FLUSH_SKIPS: "compact_blockskip_flush",
    pr.ZONE_INIT_MIGRATE: "compact_init_migrate_pfn",
    pr.ZONE_INIT_FREE: "compact_init_free_pfn",
}
NODE_FIELDS = {
    pr.KCOMPACTD_ORDER: "kcompactd_max_order",
    pr.KCOMPACTD_HIGHEST: "kcompactd_highest_zoneidx",
}
OWN_WORDS = (
    *(at.NOW, at.EVENT_CPU, at.LOG_ROWS, at.LOG_DROPPED),
    *(at.COUNT_SLOW_PATH, at.CAPTURE_ZONE, at.CAPTURE_ORDER, at.CAPTURE_TYPE, at.CAPTURED),
)
"""Words of the allocator that only one of the two keeps while compaction is judged."""
LISTED_MAX = 12


def compaction_differences(model: State, kernel: State) -> list[str]:
    """One line for each thing that differs; nothing where the two are the same."""
    lines = _counter_lines(model, kernel)
    lines += _region_lines(model, kernel, "zone", pr.ZONES_BASE, pr.ZONE_WORDS, ZONE_FIELDS)
    lines += _region_lines(model, kernel, "node", pr.NODES_BASE, pr.NODE_WORDS, NODE_FIELDS)
    lines += _skip_lines(model, kernel)
    allocator = _allocator_lines(model, kernel)
    return lines + allocator + _page_lines(model, kernel)


def _counter_lines(model: State, kernel: State) -> list[str]:
    first = int(model.st[at.PRESSURE_BASE]) + pr.COUNTERS
    return [
        f"{name}: model {model.st[first + number]}, kernel {kernel.st[first + number]}"
        for number, name in enumerate(pr.COUNTER_NAMES)
        if model.st[first + number] != kernel.st[first + number]
    ]


def _region_lines(
    model: State, kernel: State, what: str, base: int, stride: int, fields: dict[int, str]
) -> list[str]:
    first = int(model.st[int(model.st[at.PRESSURE_BASE]) + base])
    count = len(model.machine.zones if what == "zone" else model.machine.nodes)
    lines = []
    for number in range(count):
        title = model.machine.zone_title(number) if what == "zone" else f"node {number}"
        for word, name in fields.items():
            place = first + number * stride + word
            if model.st[place] != kernel.st[place]:
                lines.append(f"{title}: {name}: model {model.st[place]}, kernel {kernel.st[place]}")
    return lines


def _skip_lines(model: State, kernel: State) -> list[str]:
    step = 1 << model.machine.pageblock_order
    mine, theirs = model.folios["skip"][::step] != 0, kernel.folios["skip"][::step] != 0
    mine, theirs = mine[: len(model.blocks)], theirs[: len(model.blocks)]
    differs = (mine != theirs) & (model.blocks["zone"] > 0)
    return [
        f"skip mark of pageblock {block}: model {bool(mine[block])}, kernel {bool(theirs[block])}"
        for block in np.flatnonzero(differs)[:LISTED_MAX]
    ]


def _allocator_lines(model: State, kernel: State) -> list[str]:
    """What differs of zones, per-CPU lists, free lists and block types."""
    base = int(model.st[at.PRESSURE_BASE])
    words = differing_words(model, kernel)
    words = words[(words < base) & ~np.isin(words, OWN_WORDS)]
    types = (model.blocks["migratetype"] != kernel.blocks["migratetype"]).any()
    if not len(words) and not types:
        return []
    lines = [each for each in differences(model, kernel) if not each.startswith("word ")]
    more = [
        f"word {word} of the state: model {model.st[word]}, kernel {kernel.st[word]}"
        for word in words[:LISTED_MAX]
    ]
    return lines or more


def _page_lines(model: State, kernel: State) -> list[str]:
    """Pages that differ: free ones on lists, allocated ones by whose they are."""
    mine, theirs = model.pages, kernel.pages
    free = (mine["where"] == at.BUDDY) | (mine["where"] == at.ON_PCP)
    allocated = mine["where"] == at.ALLOCATED
    known = free | allocated
    differs = (mine["where"] != theirs["where"]) & (known | (theirs["where"] != 0))
    differs |= known & (mine["order"] != theirs["order"])
    for name in ("next", "prev"):
        differs |= free & (mine[name] != theirs[name])
    for name in ("object", "offset", "kind"):
        differs |= allocated & (model.folios[name] != kernel.folios[name])
    differs |= allocated & ((model.folios["place"] != 0) != (kernel.folios["place"] != 0))
    return [
        f"page {pfn}: model {_page(model, pfn)}, kernel {_page(kernel, pfn)}"
        for pfn in np.flatnonzero(differs)[:LISTED_MAX]
    ]


def _page(state: State, pfn: int) -> str:
    page, folio = state.pages[pfn], state.folios[pfn]
    where = {at.BUDDY: "free", at.ON_PCP: "on a CPU's list", at.ALLOCATED: "in use"}
    of = f" by object {folio['object']}" if int(page["where"]) == at.ALLOCATED else ""
    return f"{where.get(int(page['where']), 'part of another')}{of}, order {page['order']}"
