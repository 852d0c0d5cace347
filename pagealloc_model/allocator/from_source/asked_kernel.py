"""The elastic event loop with a kernel's own code in place of the model's allocator.

The kernels are imported a second time (see `imported_again`). What allocates, frees, drains, ticks,
isolates and captures is then a question to a kernel's compiled code; reclaim, compaction and the
loop of the slow path stay the model's, and work on the same pages. The program is compiled once,
whichever kernel it asks: where to ask is the last of the state's words.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numba
from llvmlite import ir
from numba.core import types
from numba.np.arrayobj import make_array

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.alloc_context import AllocContext
from pagealloc_model.allocator.from_source.parts import ELASTIC
from pagealloc_model.allocator.imported_again import ELASTIC_LOOP, loop_with
from pagealloc_model.base import jit

Functions = dict[str, Callable[..., Any]]

(
    FAST_FLAGS,
    SLOW_FLAGS,
    PAGE,
    FREE,
    ISOLATE,
    MARK_MOVABLE,
    DRAIN,
    DRAIN_ALL,
    UNRESERVE,
    TICK,
    GROW,
    SET_HIGH,
    LIST_HEAD,
    LIST_TAIL,
    MOVE_HEAD,
    MOVE_TAIL,
) = range(len(ELASTIC.questions))


@numba.extending.intrinsic
def call_shim(
    _: Any,
    address: Any,
    pages: Any,
    blocks: Any,
    st: Any,
    log: Any,
    what: Any,
    a: Any,
    b: Any,
    c: Any,
    d: Any,
    e: Any,
) -> Any:
    """Call the shim's `shim_ask` at an address; it may write the arrays. Returns its answer."""
    arrays = (pages, blocks, st, log)
    numbers = [types.int64] * 6

    def made(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        word = ir.IntType(64)
        anything = ir.IntType(8).as_pointer()
        places = [
            builder.bitcast(make_array(kind)(context, builder, value).data, anything)
            for kind, value in zip(signature.args[1:5], given[1:5], strict=True)
        ]
        kind = ir.FunctionType(word, [anything] * 4 + [word] * 6)
        function = builder.inttoptr(given[0], kind.as_pointer())
        return builder.call(function, [*places, *given[5:]])

    return types.int64(types.int64, *arrays, *numbers), made


def ask(m: at.MachineArrays, what: int, a: int, b: int, c: int, d: int, e: int) -> int:
    """No kernel function: ask the kernel's code; returns its answer."""
    address = m.st[m.st.shape[0] - 1]
    return call_shim(address, m.pages, m.blocks, m.st, m.log, what, a, b, c, d, e)


def _flags(module: Any) -> Functions:
    fast, slow, asked = module.fast_path_flags, module.gfp_to_alloc_flags, jit.inner(ask)

    def fast_path_flags(m: at.MachineArrays, ac: AllocContext) -> int:
        flags = fast(m, ac)
        asked(m, FAST_FLAGS, ac.order, ac.migratetype, ac.highest_type, ac.bits, 0)
        return flags

    def gfp_to_alloc_flags(m: at.MachineArrays, ac: AllocContext, flags: int) -> int:
        asked(m, SLOW_FLAGS, ac.order, ac.migratetype, ac.highest_type, ac.bits, 0)
        return slow(m, ac, flags)

    return {"fast_path_flags": fast_path_flags, "gfp_to_alloc_flags": gfp_to_alloc_flags}


def _growth(_: Any) -> Functions:
    asked = jit.inner(ask)

    def grow_zone(m: at.MachineArrays, zone: int, pfn: int, order: int) -> None:
        asked(m, GROW, zone, pfn, order, 0, 0)

    return {"grow_zone": grow_zone}


def _limits(_: Any) -> Functions:
    asked = jit.inner(ask)

    def set_pcp_high(m: at.MachineArrays, zone: int, cpu: int, wanted: int) -> None:
        asked(m, SET_HIGH, zone, cpu, wanted, 0, 0)

    return {"set_pcp_high": set_pcp_high}


def _drains(_: Any) -> Functions:
    asked = jit.inner(ask)

    def refresh_cpu_vm_stats(m: at.MachineArrays, cpu: int) -> None:
        asked(m, TICK, cpu, 0, 0, 0, 0)

    def drain_pages_zone(m: at.MachineArrays, zone: int, cpu: int) -> None:
        asked(m, DRAIN, zone, cpu, 0, 0, 0)

    def drain_all_pages(m: at.MachineArrays) -> None:
        asked(m, DRAIN_ALL, 0, 0, 0, 0, 0)

    return {
        "refresh_cpu_vm_stats": refresh_cpu_vm_stats,
        "drain_pages_zone": drain_pages_zone,
        "drain_all_pages": drain_all_pages,
    }


def _reserve(_: Any) -> Functions:
    asked = jit.inner(ask)

    def unreserve_highatomic_pageblock(m: at.MachineArrays, ac: AllocContext, force: bool) -> bool:
        return asked(m, UNRESERVE, ac.migratetype, ac.highest_type, ac.bits, int(force), 0) != 0

    return {"unreserve_highatomic_pageblock": unreserve_highatomic_pageblock}


def _frees(_: Any) -> Functions:
    asked = jit.inner(ask)

    def __free_frozen_pages(
        m: at.MachineArrays, cpu: int, pfn: int, order: int, in_batch: bool
    ) -> None:
        m.pages[pfn]["where"] = at.NOWHERE
        asked(m, FREE, pfn, order, 0, 0, 0)

    return {"__free_frozen_pages": __free_frozen_pages}


def _walks(_: Any) -> Functions:
    asked = jit.inner(ask)

    def get_page_from_freelist(m: at.MachineArrays, ac: AllocContext, flags: int) -> int:
        return asked(m, PAGE, ac.order, ac.migratetype, ac.highest_type, ac.bits, flags)

    def walk_zones(m: at.MachineArrays, ac: AllocContext, position: int, flags: int) -> int:
        return asked(m, PAGE, ac.order, ac.migratetype, ac.highest_type, ac.bits, flags)

    return {"get_page_from_freelist": get_page_from_freelist, "walk_zones": walk_zones}


def _lists(module: Any) -> Functions:
    asked = jit.inner(ask)

    def move_freelist_head(m: at.MachineArrays, lst: int, pfn: int) -> None:
        asked(m, MOVE_HEAD, lst, pfn, 0, 0, 0)

    def move_freelist_tail(m: at.MachineArrays, lst: int, pfn: int) -> None:
        asked(m, MOVE_TAIL, lst, pfn, 0, 0, 0)

    return {"move_freelist_head": move_freelist_head, "move_freelist_tail": move_freelist_tail}


def _sources(module: Any) -> Functions:
    search, asked = module.candidate_block, jit.inner(ask)

    def candidate_block(
        m: at.MachineArrays, lst: int, high: int, scanned: int, limit: int
    ) -> tuple[int, int]:
        asked(m, LIST_HEAD, lst, limit - scanned + 1, 0, 0, 0)
        return search(m, lst, high, scanned, limit)  # type: ignore[no-any-return]

    return {"candidate_block": candidate_block}


def _targets(module: Any) -> Functions:
    hold, search, asked = module.hold, module.search_list, jit.inner(ask)

    def __isolate_free_page(m: at.MachineArrays, run: int, pfn: int) -> bool:
        order = int(m.pages[pfn]["order"])
        if asked(m, ISOLATE, pfn, order, 0, 0, 0) == 0:
            return False
        hold(m, run, pfn, order)
        return True

    def search_list(
        m: at.MachineArrays, zone: int, lst: int, low: int, least: int, limit: int, highest: int
    ) -> tuple[int, int, int, int, int, int]:
        asked(m, LIST_TAIL, lst, limit, 0, 0, 0)
        return search(m, zone, lst, low, least, limit, highest)  # type: ignore[no-any-return]

    return {"__isolate_free_page": __isolate_free_page, "search_list": search_list}


def _moves(module: Any) -> Functions:
    move, asked = module.migrate_folio_move, jit.inner(ask)

    def migrate_folio_move(m: at.MachineArrays, source: int, target: int) -> None:
        move(m, source, target)
        if int(m.pages[target]["tag"]) == 1:
            asked(m, MARK_MOVABLE, target, int(m.pages[target]["order"]), 0, 0, 0)

    return {"migrate_folio_move": migrate_folio_move}


_REPLACED = (
    ("core.alloc_context", _flags),
    ("core.buddy", _growth),
    ("core.pcp", _limits),
    ("core.pcp_drain", _drains),
    ("core.highatomic", _reserve),
    ("core.page_free", _frees),
    ("core.zone_walk", _walks),
    ("pressure.compaction_lists", _lists),
    ("pressure.compaction_sources", _sources),
    ("pressure.compaction_targets", _targets),
    ("pressure.compaction", _moves),
)


@lru_cache(maxsize=1)
def advance_asking() -> Callable[..., int]:
    """The elastic event loop that asks a kernel's code; takes what `advance_elastic` takes.

    The last of the state's words must be the address of a loaded library's `shim_ask`.
    """
    return loop_with(_REPLACED, ELASTIC_LOOP, "asked-kernel")
