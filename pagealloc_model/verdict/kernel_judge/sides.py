"""The model and the kernel's code taken through the same operations, and where they differ."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.events import advance
from pagealloc_model.allocator.from_source.compiled_tree import CompiledTree, KernelState
from pagealloc_model.allocator.from_source.extraction import Unit
from pagealloc_model.allocator.state import State

Begin = Callable[[], tuple[State, np.ndarray]]
"""Makes a fresh state and the places of its objects, the same ones at each call."""
MOST_LISTED = 12
"""Pages of a list, or words, that are spelled out."""

SCRATCH = (
    *range(at.WORK, at.WORK + at.WORK_UNITS),
    *(at.LIST_PROBES, at.REFILL_PROBES, at.REFILL_PROBES_MOST),
)
"""Words that mean nothing between two operations, or that the kernel's code does not count."""
ZONE_FIELDS = {
    at.ZONE_BOOST: "watermark_boost",
    at.ZONE_FREE: "NR_FREE_PAGES",
    at.ZONE_FREE_HIGHATOMIC: "nr_free_highatomic",
    at.ZONE_RESERVED_HIGHATOMIC: "nr_reserved_highatomic",
    at.ZONE_BELOW_HIGH: "ZONE_BELOW_HIGH",
    at.ZONE_RECLAIM_ACTIVE: "ZONE_RECLAIM_ACTIVE",
    at.ZONE_BOOSTED: "ZONE_BOOSTED_WATERMARK",
    at.ZONE_FREE_CMA: "NR_FREE_CMA_PAGES",
    at.ZONE_FREE_UNFOLDED: "pages that CPUs hold back",
    at.ZONE_THRESHOLD: "stat_threshold",
    at.ZONE_REMEMBERED_BOOST: "boost that kswapd has seen",
}
PCP_FIELDS = {
    at.PCP_COUNT: "pcp->count",
    at.PCP_HIGH: "pcp->high",
    at.PCP_ALLOC_FACTOR: "pcp->alloc_factor",
    at.PCP_FREE_COUNT: "pcp->free_count",
    at.PCP_PREV_FREE_HIGH_ORDER: "pcp->flags",
    at.PCP_EXPIRE: "pcp->expire",
    at.PCP_FREE_DELTA: "pcp->vm_stat_diff",
}
LIST_LOCK_WORDS = (
    *(at.PCP_LOCK_HOLDER, at.PCP_LOCKS),
    *(at.PCP_LOCK_HANDOVERS, at.PCP_DRAIN_LOCKS),
)
"""Counted at each pcp->lock, by the model only: to the shim all locks are free."""


def differing_words(model: State, kernel: State) -> np.ndarray:
    """Offsets into `st` that differ."""
    st = model.st
    sets = np.arange(int(st[at.NR_ZONES] * st[at.NR_CPUS])) * at.PCP_STRIDE + st[at.PCP_BASE]
    of_locks = (sets[:, None] + LIST_LOCK_WORDS).ravel()
    of_cpus = st[at.CPU_BASE] + np.arange(int(st[at.NR_CPUS]) * at.CPU_STRIDE)
    words = np.flatnonzero(st != kernel.st)
    return words[~np.isin(words, [*SCRATCH, *of_locks, *of_cpus])]


def differing_pages(model: State, kernel: State) -> np.ndarray:
    """Free pages, in the buddy or on a per-CPU list, whose record differs."""
    mine, theirs = model.pages, kernel.pages
    free = (mine["where"] == at.BUDDY) | (mine["where"] == at.ON_PCP)
    differs = free & (mine["where"] != theirs["where"])
    differs |= ~free & (theirs["where"] != 0)
    for name in ("next", "prev", "order"):
        differs |= free & (mine[name] != theirs[name])
    tagged = mine["where"] == at.BUDDY if model.st[at.RULE_LISTS_MATCH_BLOCKS] else free
    differs |= tagged & (mine["tag"] != theirs["tag"])
    return np.flatnonzero(differs)


def allocator_lines(model: State, kernel: State, words: np.ndarray | None = None) -> list[str]:
    """One line for each thing that differs in zones, lists and block types.

    Where nothing does, differing words of the state (those given, else all), or pages.
    """
    lines: list[str] = []

    def compare_lists(title: str, first: int, mine: np.ndarray, theirs: np.ndarray) -> None:
        words = slice(first, first + at.LIST_WORDS)
        pages, kernel_pages = model.list_pages(mine[words]), kernel.list_pages(theirs[words])
        if pages != kernel_pages:
            lines.append(f"{title}: model {_spelled(pages)}, kernel {_spelled(kernel_pages)}")

    machine = model.machine
    for zone in range(len(machine.zones)):
        title = machine.zone_title(zone)
        regions = model.zone_region(zone), kernel.zone_region(zone)
        lines += word_lines(title, ZONE_FIELDS, *regions)
        for order in range(machine.max_order + 1):
            for number, name in enumerate(machine.migratetypes):
                first = at.ZONE_LISTS + (order * at.MIGRATETYPES + number) * at.LIST_WORDS
                compare_lists(f"{title}: free list of order {order}, {name}", first, *regions)
        for cpu in range(machine.nr_cpus):
            of_cpu = f"{title}, CPU {cpu}"
            regions = model.pcp_region(zone, cpu), kernel.pcp_region(zone, cpu)
            lines += word_lines(of_cpu, PCP_FIELDS, *regions)
            for index, first in enumerate(range(at.PCP_LISTS, at.PCP_SITES, at.LIST_WORDS)):
                compare_lists(f"{of_cpu}: per-CPU list {index}", first, *regions)
    mine, theirs = model.blocks["migratetype"], kernel.blocks["migratetype"]
    lines += [
        f"type of pageblock {block}: model {mine[block]}, kernel {theirs[block]}"
        for block in np.flatnonzero(mine != theirs)
    ]
    if lines:
        return lines
    lines = [
        f"word {word} of the state: model {model.st[word]}, kernel {kernel.st[word]}"
        for word in (differing_words(model, kernel) if words is None else words)[:MOST_LISTED]
    ]
    return lines or [f"page {pfn}" for pfn in differing_pages(model, kernel)[:MOST_LISTED]]


def word_lines(
    title: str, names: Mapping[int, str], mine: np.ndarray, theirs: np.ndarray
) -> list[str]:
    """One line for each named word of a region that differs."""
    lead = f"{title}: " if title else ""
    return [
        f"{lead}{name}: model {mine[word]}, kernel {theirs[word]}"
        for word, name in names.items()
        if mine[word] != theirs[word]
    ]


def _spelled(pages: list[int]) -> str:
    more = f" and {len(pages) - MOST_LISTED} more" if len(pages) > MOST_LISTED else ""
    return f"[{' '.join(map(str, pages[:MOST_LISTED]))}{more}]"


ROWS = {
    at.SITE_REFILL: ("refill", "rmqueue_bulk"),
    at.SITE_DRAIN_COMMIT: ("drain by a free", "free_pcppages_bulk"),
    at.SITE_DRAIN_DECAY: ("drain by decay", "free_pcppages_bulk"),
    at.SITE_DRAIN_ALL: ("full drain", "drain_pages_zone"),
    at.SITE_BUDDY_ALLOC: ("allocation from the buddy", "rmqueue_buddy"),
    at.SITE_DIRECT_FREE: ("free into the buddy", "free_one_page"),
    at.SITE_RESERVE: ("reserve", "reserve_highatomic_pageblock"),
    at.SITE_UNRESERVE: ("unreserve", "unreserve_highatomic_pageblock"),
    at.SITE_BOOST_RESET: ("boosts taken back", "balance_pgdat"),
    at.LOG_ZONE_LOCKED: ("mm_page_alloc_zone_locked", ""),
    at.LOG_PCPU_DRAIN: ("mm_page_pcpu_drain", ""),
    at.LOG_EXTFRAG: ("mm_page_alloc_extfrag", ""),
}
"""Rows of the log by kind: what they are, and the function of the tree that they are about."""
HOLD_COLUMNS = (
    *("", "time", "zone", "cpu", "order", "migratetype", "objects", "pages"),
    *("splits", "merges", "inserts", "scanned", "ran_on"),
)
PAGE_COLUMNS = ("", "time", "zone", "cpu", "pfn", "order", "migratetype")
EXTFRAG_COLUMNS = (*PAGE_COLUMNS, "fallback_order", "fallback_migratetype", "change_ownership")
PAGE_ALLOC = "mm/page_alloc.c"


@dataclass(frozen=True, kw_only=True)
class Place:
    """A function of the tree."""

    path: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.function}() at {self.path}:{self.line}"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The first operation after which the two are not the same.

    Attributes:
        position: index of the operation.
        event: the operation, in words.
        lines: what differs, one line each.
        places: functions of the tree that had to do with it.
    """

    position: int
    event: str
    lines: tuple[str, ...]
    places: tuple[Place, ...]


class Sides(ABC):
    """A state carried on by the model and, a copy of it, by the kernel's code.

    Attributes:
        model: the model's state.
        kernel: the kernel's.
        places: where the model's objects are.
        kernel_places: where the kernel's are.
    """

    def __init__(self, tree: CompiledTree, begin: Begin, kernel: type[KernelState]) -> None:
        """Begin twice."""
        self._tree = tree
        self.model, self.places = begin()
        state, self.kernel_places = begin()
        self.kernel = kernel(tree, state)

    @abstractmethod
    def same_answers(self, operations: np.ndarray, low: int, high: int) -> bool:
        """Take operations[low:high] on both; whether both say the same of them."""

    @abstractmethod
    def same_states(self) -> bool:
        """True if the model's state and the kernel's, its pages stored, are the same."""

    @abstractmethod
    def describe(self, operations: np.ndarray, position: int) -> Difference:
        """The difference that the operation just taken has made."""

    def agree_after(self, operations: np.ndarray, low: int, high: int) -> bool:
        """Take operations[low:high] on both; whether all is the same then."""
        if not self.same_answers(operations, low, high):
            return False
        self.kernel.store(pages=True)
        return self.kernel.broken_assertion is None and self.same_states()

    def broken_lines(self) -> list[str]:
        """A line on the kernel's first assertion that failed, if any did."""
        broken = self.kernel.broken_assertion
        return [f"the kernel's assertion does not hold: not ({broken[0]})"] if broken else []

    def close(self) -> None:
        """Give the kernel's memory back."""
        self.kernel.close()


class EventSides(Sides):
    """Events of the page allocator on both sides, whose answers are rows of a log."""

    def __init__(self, tree: CompiledTree, begin: Begin) -> None:
        """Begin twice."""
        super().__init__(tree, begin, KernelState)

    def same_answers(self, operations: np.ndarray, low: int, high: int) -> bool:
        """Take operations[low:high] on both; whether logs are the same, step by step."""
        model, kernel = self.model, self.kernel.state
        while low < high:
            model.st[at.LOG_ROWS] = kernel.st[at.LOG_ROWS] = 0
            reached = advance(model.arrays(self.places), operations, low, high, -1)
            if self.kernel.advance(operations, self.kernel_places, low, high, -1) != reached:
                return False
            if not np.array_equal(*self._logs()):
                return False
            low = reached
        return True

    def same_states(self) -> bool:
        """True if places and states are the same."""
        states = self.model, self.kernel.state
        return np.array_equal(self.places, self.kernel_places) and not (
            len(differing_words(*states)) or len(differing_pages(*states))
        )

    def _logs(self) -> list[np.ndarray]:
        """Rows of the last step on either side, without columns that only one of them knows."""
        logs = []
        for state in (self.model, self.kernel.state):
            rows = state.log[: int(state.st[at.LOG_ROWS])].copy()
            rows[rows[:, 0] >= at.SITES, at.LOG_WORK + 2 :] = 0
            rows[rows[:, 0] == at.SITE_UNRESERVE, 4:6] = 0
            rows[rows[:, 0] == at.SITE_DIRECT_FREE, 5] = 0
            logs.append(rows)
        return logs

    def describe(self, operations: np.ndarray, position: int) -> Difference:
        """The difference that the event just taken has made, with functions of the tree."""
        unit, _ = self._tree.built(self.kernel.configuration)
        logs = self._logs()
        kernel_lines = self.kernel.lines[: len(logs[1])]
        lines: list[str] = []
        places: list[Place] = []
        row = first_difference(*logs)
        if row is not None:
            mine, theirs = (_row_words(rows, row) for rows in logs)
            lines.append(f"row {row} of the log: model {mine}, kernel {theirs}")
            places += _around(unit, kernel_lines[max(row - 1, 0) : row + 1].tolist())
            for kind in (int(rows[row, 0]) for rows in logs if row < len(rows)):
                places += functions_named(unit, ROWS[kind][1]) if kind in ROWS else []
        lines += self.broken_lines()
        if self.kernel.broken_assertion is not None:
            places += _around(unit, [self.kernel.broken_assertion[1]])
        lines += [
            f"object {number}: model at {self.places[number]}, "
            f"kernel at {self.kernel_places[number]}"
            for number in np.flatnonzero(self.places != self.kernel_places)[:3]
        ]
        self.kernel.store(pages=True)
        state_lines = allocator_lines(self.model, self.kernel.state)
        places += _writers(unit, state_lines) or (
            [] if places else _around(unit, kernel_lines[-2:])
        )
        return Difference(
            position=position,
            event=event_words(operations[position], self.model),
            lines=(*lines, *state_lines),
            places=tuple(dict.fromkeys(places)),
        )


def first_difference(mine: np.ndarray, theirs: np.ndarray) -> int | None:
    """The first row in which two logs differ, None if none does."""
    common = min(len(mine), len(theirs))
    differs = np.flatnonzero((mine[:common] != theirs[:common]).any(axis=1))
    if len(differs):
        return int(differs[0])
    return None if len(mine) == len(theirs) else common


def _row_words(rows: np.ndarray, row: int) -> str:
    if row >= len(rows):
        return "nothing"
    kind, *values = rows[row].tolist()
    columns = HOLD_COLUMNS if kind < at.SITES else PAGE_COLUMNS
    if kind == at.LOG_EXTFRAG:
        columns = EXTFRAG_COLUMNS
    words = [f"{name}={value}" for name, value in zip(columns[2:], values[1:], strict=False)]
    return f"{ROWS[kind][0] if kind in ROWS else kind} {' '.join(words)}"


def _around(unit: Unit, lines: Iterable[int]) -> list[Place]:
    """Functions around lines of mm/page_alloc.c."""
    return [
        Place(path=PAGE_ALLOC, line=int(line), function=function)
        for line in lines
        if (function := unit.function_at(PAGE_ALLOC, int(line)))
    ]


def functions_named(unit: Unit, name: str) -> list[Place]:
    """Where a unit's functions of a name are: none, or one for each condition they stand under."""
    return [
        Place(path=item.path, line=item.line, function=name)
        for item in unit.items
        if item.kind == "function" and name in item.names
    ]


def _writers(unit: Unit, lines: list[str]) -> list[Place]:
    """Functions that set the fields that lines are about."""
    fields = {match[1] for line in lines if (match := re.search(r": (?:pcp->)?(\w+): model", line))}
    return [
        place
        for name in sorted(fields)
        for item in unit.items
        if item.kind == "function"
        and re.search(
            rf"->{name}\s*(?:[-+|&]|<<|>>)?(?:=(?!=)|\+\+|--)|(?:set|clear)_bit\({name}\b",
            item.text,
        )
        for place in functions_named(unit, item.names[0])
    ]


EVENT_WORDS = {
    at.ALLOC: "alloc order {order}, {type}, up to zone {highest}, gfp {bits:#x}, on CPU {cpu} "
    "(object {object})",
    at.HIDDEN_ALLOC: "hidden alloc order {order}, {type}, up to zone {highest}, gfp {bits:#x}, on "
    "CPU {cpu} (object {object})",
    at.FREE: "free object {object} + {offset}, order {order}, on CPU {cpu}",
    at.SET_PCP_HIGH: "set pcp->high of zone {zone}, CPU {cpu} to {offset}",
    at.RECORDED_FAILURE: "recorded failure on node {offset}, up to zone {highest}",
    at.KSWAPD_START: "kswapd start on node {offset}, up to zone {highest}",
    at.KSWAPD_STOP: "kswapd stop on node {offset}, up to zone {highest}",
}


def event_words(event: np.void, state: State) -> str:
    """An event as a line."""
    machine = state.machine
    values = {name: int(event[name]) for name in at.EVENT.names or ()}
    values["highest"] = machine.zone_types[values["zone"] % len(machine.zone_types)]
    values["type"] = machine.migratetypes[values["migratetype"]]
    return EVENT_WORDS.get(values["operation"], "event {operation} on CPU {cpu}").format(**values)
