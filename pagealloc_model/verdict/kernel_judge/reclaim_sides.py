"""A state under pressure carried on by the model's reclaim and, a copy of it, by the kernel's."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.state import State
from pagealloc_model.allocator.from_source.compiled_tree import CompiledTree
from pagealloc_model.allocator.from_source.kernel_reclaim import KernelReclaim
from pagealloc_model.allocator.pressure.judged_reclaim import take_reclaim_operations
from pagealloc_model.verdict.kernel_judge.random_pressure import NO_OBJECTS
from pagealloc_model.verdict.kernel_judge.side_by_side import Difference, functions_named
from pagealloc_model.verdict.kernel_judge.state_differences import (
    differences,
    differing_pages,
    differing_words,
)

OPERATIONS = ("allocate", "free", "use", "wake kswapd", "run kswapd", "end its nap", "reclaim")
COUNTERS = {
    pr.COUNTERS + number: name
    for number, name in enumerate(pr.COUNTER_NAMES)
    if name.startswith(("pgscan", "pgsteal", "pgactivate", "pgdeactivate", "pageout", "kswapd"))
}
NODE_FIELDS = {
    pr.KSWAPD_PHASE: "how kswapd sleeps",
    pr.KSWAPD_WOKEN: "whether it is woken",
    pr.KSWAPD_FAILURES: "kswapd_failures",
    pr.KSWAPD_WANTED_ORDER: "kswapd_order",
    pr.KSWAPD_WANTED_HIGHEST: "kswapd_highest_zoneidx",
    pr.KCOMPACTD_ORDER: "kcompactd_max_order",
    pr.KCOMPACTD_HIGHEST: "kcompactd_highest_zoneidx",
    **{pr.NODE_PAGES + number: f"pages on LRU list {number}" for number in range(pr.LRU_LISTS)},
    **{
        pr.NODE_LISTS + number: f"LRU list {number // at.LIST_WORDS}"
        for number in range(pr.LRU_LISTS * at.LIST_WORDS)
    },
}
FOLIO_FIELDS = ("kind", "scans", "writes", "place")
FUNCTIONS = {
    "allocate": ("get_page_from_freelist",),
    "wake kswapd": ("wakeup_kswapd", "pgdat_balanced"),
    "run kswapd": ("balance_pgdat", "kswapd_try_to_sleep", "shrink_node", "shrink_lruvec"),
    "end its nap": ("kswapd_try_to_sleep", "balance_pgdat"),
    "reclaim": ("do_try_to_free_pages", "shrink_zones", "shrink_node", "shrink_lruvec"),
}
"""Functions of the tree that an operation runs."""


class Beginning(Protocol):
    """What both sides begin with."""

    def state(self) -> State:
        """A fresh state of an elastic replay, kswapds asleep."""


class ReclaimSides:
    """Both sides.

    Attributes:
        model: the model's state.
        kernel: the kernel's.
    """

    def __init__(self, tree: CompiledTree, pressed: Beginning, count: int) -> None:
        """Begin twice, with room for the answers of `count` operations."""
        self._tree = tree
        self.model = pressed.state()
        self.kernel = KernelReclaim(tree, pressed.state())
        self._answers = np.zeros((2, count), np.int64)

    def agree_after(self, operations: np.ndarray, low: int, high: int) -> bool:
        """Take operations[low:high] on both; whether answers and states are the same then."""
        mine, theirs = self._answers
        take_reclaim_operations(self.model.arrays(NO_OBJECTS), operations, mine, low, high)
        self.kernel.take(operations, theirs, low, high)
        if not np.array_equal(mine[low:high], theirs[low:high]):
            return False
        self.kernel.store(pages=True)
        return self.kernel.broken_assertion is None and not self._lines(most=1)

    def _lines(self, most: int = 40) -> list[str]:
        """What differs, one line each."""
        model, kernel = self.model, self.kernel.state
        base = int(model.st[at.PRESSURE_BASE])
        lines = [
            f"{name}: model {model.st[base + word]}, kernel {kernel.st[base + word]}"
            for word, name in COUNTERS.items()
            if model.st[base + word] != kernel.st[base + word]
        ]
        for number, name in enumerate(model.machine.zone_types):
            word = base + pr.ALLOCSTALL + number
            if model.st[word] != kernel.st[word]:
                lines.append(f"allocstall_{name}: model {model.st[word]}, kernel {kernel.st[word]}")
        lines += self._node_lines(base)
        if len(lines) < most:
            lines += self._folio_lines()
        if len(lines) < most and (
            len(_allocator_words(model, kernel)) or len(differing_pages(model, kernel))
        ):
            lines += differences(model, kernel)
        return lines[:most]

    def _node_lines(self, base: int) -> list[str]:
        model, kernel = self.model, self.kernel.state
        first = int(model.st[base + pr.NODES_BASE])
        return [
            f"node {node}: {name}: model {model.st[place]}, kernel {kernel.st[place]}"
            for node in range(len(model.machine.nodes))
            for word, name in NODE_FIELDS.items()
            if model.st[place := first + node * pr.NODE_WORDS + word] != kernel.st[place]
        ]

    def _folio_lines(self) -> list[str]:
        model, kernel = self.model, self.kernel.state
        in_use = model.pages["where"] == at.ALLOCATED
        listed = in_use & (model.folios["place"] > 0)
        mine, theirs = model.folios, kernel.folios
        lines = [
            f"page {pfn}: {name}: model {mine[name][pfn]}, kernel {theirs[name][pfn]}"
            for name in FOLIO_FIELDS
            for pfn in np.flatnonzero(in_use & (mine[name] != theirs[name]))[:3]
        ]
        return lines + [
            f"page {pfn}: {name} on its LRU list: model {model.pages[name][pfn]}, "
            f"kernel {kernel.pages[name][pfn]}"
            for name in ("next", "prev")
            for pfn in np.flatnonzero(listed & (model.pages[name] != kernel.pages[name]))[:3]
        ]

    def describe(self, operations: np.ndarray, position: int) -> Difference:
        """The difference that the operation just taken has made."""
        unit, _ = self._tree.built(self.kernel.configuration)
        self.kernel.store(pages=True)
        mine, theirs = self._answers[:, position]
        lines = [f"the answer: model {mine}, kernel {theirs}"] if mine != theirs else []
        broken = self.kernel.broken_assertion
        if broken is not None:
            lines.append(f"the kernel's assertion does not hold: not ({broken[0]})")
        name = OPERATIONS[int(operations[position]["kind"])]
        return Difference(
            position=position,
            event=operation_words(operations[position], self.model),
            lines=(*lines, *self._lines()),
            places=tuple(
                place for each in FUNCTIONS.get(name, ()) for place in functions_named(unit, each)
            ),
        )

    def close(self) -> None:
        """Give the kernel's memory back."""
        self.kernel.close()


def _allocator_words(model: State, kernel: State) -> np.ndarray:
    """Offsets of the allocator's words that differ, but for the clock and kswapd's own."""
    found = differing_words(model, kernel)
    own = [at.NOW, at.EVENT_CPU, at.KSWAPD_RUNS, at.COUNT_KSWAPD_WAKES, at.LOG_ROWS, at.LOG_DROPPED]
    for node in range(len(model.machine.nodes)):
        first = int(model.st[at.NODE_BASE]) + node * at.NODE_STRIDE
        own += range(first, first + at.NODE_STRIDE)
    for zone in range(len(model.machine.zones)):
        own.append(at.ZONES + zone * at.ZONE_STRIDE + at.ZONE_REMEMBERED_BOOST)
    return found[(found < model.st[at.PRESSURE_BASE]) & ~np.isin(found, own)]


def operation_words(operation: np.void, state: State) -> str:
    """An operation as a line."""
    name = OPERATIONS[int(operation["kind"])]
    zone = state.machine.zone_types[int(operation["zone"])]
    request = f"order {operation['order']}, up to zone {zone}, gfp {int(operation['bits']):#x}"
    if name == "allocate":
        kind = state.machine.migratetypes[int(operation["migratetype"])]
        return f"{name} {request}, {kind}, class {operation['class']}"
    if name in ("free", "use"):
        page = int(operation["page"])
        if page < 0:
            return f"{name} the page that operation {-1 - page} took"
        return f"{name} the page in use from {page} on"
    if name == "reclaim":
        return f"{name} {request}"
    node = f"node {operation['node']}"
    return f"{name} on {node}, {request}" if name == "wake kswapd" else f"{name} on {node}"
