"""The model and the kernel's code taken through the same events."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.replay import advance
from pagealloc_model.allocator.core.state import State
from pagealloc_model.allocator.from_source.compiled_tree import CompiledTree
from pagealloc_model.allocator.from_source.extraction import Unit
from pagealloc_model.allocator.from_source.kernel_state import KernelState
from pagealloc_model.verdict.kernel_judge.state_differences import differences, states_agree

ROW_NAMES = {
    at.SITE_REFILL: "refill",
    at.SITE_DRAIN_COMMIT: "drain by a free",
    at.SITE_DRAIN_DECAY: "drain by decay",
    at.SITE_DRAIN_ALL: "full drain",
    at.SITE_BUDDY_ALLOC: "allocation from the buddy",
    at.SITE_DIRECT_FREE: "free into the buddy",
    at.SITE_RESERVE: "reserve",
    at.SITE_UNRESERVE: "unreserve",
    at.SITE_BOOST_RESET: "boosts taken back",
    at.LOG_ZONE_LOCKED: "mm_page_alloc_zone_locked",
    at.LOG_PCPU_DRAIN: "mm_page_pcpu_drain",
    at.LOG_EXTFRAG: "mm_page_alloc_extfrag",
}
ROW_FUNCTIONS = {
    at.SITE_REFILL: "rmqueue_bulk",
    at.SITE_DRAIN_COMMIT: "free_pcppages_bulk",
    at.SITE_DRAIN_DECAY: "free_pcppages_bulk",
    at.SITE_DRAIN_ALL: "drain_pages_zone",
    at.SITE_BUDDY_ALLOC: "rmqueue_buddy",
    at.SITE_DIRECT_FREE: "free_one_page",
    at.SITE_RESERVE: "reserve_highatomic_pageblock",
    at.SITE_UNRESERVE: "unreserve_highatomic_pageblock",
    at.SITE_BOOST_RESET: "balance_pgdat",
}
HOLD_COLUMNS = (
    *("", "time", "zone", "cpu", "order", "migratetype", "objects", "pages"),
    *("splits", "merges", "inserts", "scanned", "ran_on"),
)
PAGE_COLUMNS = ("", "time", "zone", "cpu", "pfn", "order", "migratetype")
EXTFRAG_COLUMNS = (*PAGE_COLUMNS, "fallback_order", "fallback_migratetype", "change_ownership")

PAGE_ALLOC = "mm/page_alloc.c"


@dataclass(frozen=True, kw_only=True)
class Place:
    """A function of the tree.

    Attributes:
        path: file in the tree.
        line: in that file.
        function: around that line.
    """

    path: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.function}() at {self.path}:{self.line}"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The first event after which the two are not the same.

    Attributes:
        position: index of the event.
        event: the event, in words.
        lines: what differs, one line each.
        places: functions of the tree that had to do with it.
    """

    position: int
    event: str
    lines: tuple[str, ...]
    places: tuple[Place, ...]


class SideBySide:
    """A state carried on by the model and, a copy of it, by the kernel's code.

    Attributes:
        model: the model's state.
        kernel: the kernel's.
        places: where the model's objects are.
        kernel_places: where the kernel's are.
    """

    def __init__(self, tree: CompiledTree, begin: Callable[[], State], places: np.ndarray) -> None:
        """Begin twice."""
        self._tree = tree
        self.model = begin()
        self.kernel = KernelState(tree, begin())
        self.places, self.kernel_places = places.copy(), places.copy()

    def agree_after(self, events: np.ndarray, low: int, high: int) -> bool:
        """Take events[low:high] on both; whether logs, places and states are the same then."""
        position = low
        while position < high:
            reached = self._advance(events, position, high)
            if reached < 0:
                return False
            position = reached
        self.kernel.store(pages=True)
        return (
            np.array_equal(self.places, self.kernel_places)
            and self.kernel.broken_assertion is None
            and states_agree(self.model, self.kernel.state)
        )

    def _advance(self, events: np.ndarray, low: int, high: int) -> int:
        """The event reached by both with equal logs, -1 if they differ."""
        model, kernel = self.model, self.kernel.state
        model.st[at.LOG_ROWS] = kernel.st[at.LOG_ROWS] = 0
        arrays = (model.pages, model.blocks, model.st, model.log)
        reached = advance(*arrays, events, self.places, low, high, -1)
        if self.kernel.advance(events, self.kernel_places, low, high, -1) != reached:
            return -1
        return reached if np.array_equal(*self.logs()) else -1

    def logs(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the last step on the model and on the kernel, as far as both say the same."""
        return _comparable(self.model), _comparable(self.kernel.state)

    def describe(self, events: np.ndarray, position: int) -> Difference:
        """The difference that the event just taken has made."""
        unit, _ = self._tree.built(self.kernel.configuration)
        mine, theirs = self.logs()
        lines: list[str] = []
        places: list[Place] = []
        row = _first_difference(mine, theirs)
        if row is not None:
            lines.append(
                f"row {row} of the log: model {_spelled(mine, row)}, kernel {_spelled(theirs, row)}"
            )
            reached = self.kernel.lines[: len(theirs)][max(row - 1, 0) : row + 1]
            places += _places(unit, reached.tolist())
            places += _row_functions(unit, *mine[row : row + 1], *theirs[row : row + 1])
        broken = self.kernel.broken_assertion
        if broken is not None:
            lines.append(f"the kernel's assertion does not hold: not ({broken[0]})")
            places += _places(unit, [broken[1]])
        for number in np.flatnonzero(self.places != self.kernel_places)[:3]:
            lines.append(
                f"object {number}: model at {self.places[number]}, "
                f"kernel at {self.kernel_places[number]}"
            )
        self.kernel.store(pages=True)
        found = differences(self.model, self.kernel.state)
        lines += found
        places += _writers(unit, found)
        if not places:
            places += _places(unit, self.kernel.lines[: len(theirs)][-2:].tolist())
        return Difference(
            position=position,
            event=event_words(events[position], self.model),
            lines=tuple(lines),
            places=tuple(dict.fromkeys(places)),
        )

    def close(self) -> None:
        """Give the kernel's memory back."""
        self.kernel.close()


def _comparable(state: State) -> np.ndarray:
    """Log rows without columns that hold nothing, or that only one of the two knows."""
    rows = state.log[: int(state.st[at.LOG_ROWS])].copy()
    rows[rows[:, 0] >= at.SITES, at.LOG_WORK + 2 :] = 0
    rows[rows[:, 0] == at.SITE_UNRESERVE, 4:6] = 0
    rows[rows[:, 0] == at.SITE_DIRECT_FREE, 5] = 0
    return rows


def _first_difference(mine: np.ndarray, theirs: np.ndarray) -> int | None:
    common = min(len(mine), len(theirs))
    differs = np.flatnonzero((mine[:common] != theirs[:common]).any(axis=1))
    if len(differs):
        return int(differs[0])
    return None if len(mine) == len(theirs) else common


def _spelled(rows: np.ndarray, row: int) -> str:
    if row >= len(rows):
        return "nothing"
    values = rows[row].tolist()
    columns = HOLD_COLUMNS if values[0] < at.SITES else PAGE_COLUMNS
    if values[0] == at.LOG_EXTFRAG:
        columns = EXTFRAG_COLUMNS
    words = [f"{name}={value}" for name, value in zip(columns[2:], values[2:], strict=False)]
    return f"{ROW_NAMES.get(values[0], values[0])} {' '.join(words)}"


def _places(unit: Unit, lines: list[int]) -> list[Place]:
    """Functions around lines of mm/page_alloc.c."""
    return [
        Place(path=PAGE_ALLOC, line=line, function=function)
        for line in lines
        if (function := unit.function_at(PAGE_ALLOC, line))
    ]


def _row_functions(unit: Unit, *rows: np.ndarray) -> list[Place]:
    """Functions that rows of the log are about, be it that the kernel's did nothing."""
    kinds = [int(each[0]) for each in rows if len(each)]
    return [
        place
        for kind in kinds
        if kind in ROW_FUNCTIONS
        for place in functions_named(unit, ROW_FUNCTIONS[kind])
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
    names = {found[1] for line in lines if (found := re.search(r": (?:pcp->)?(\w+): model", line))}
    return [
        place
        for name in sorted(names)
        for item in unit.items
        if item.kind == "function"
        and re.search(
            rf"->{name}\s*(?:[-+|&]|<<|>>)?(?:=(?!=)|\+\+|--)|(?:set|clear)_bit\({name}\b",
            item.text,
        )
        for place in functions_named(unit, item.names[0])
    ]


def event_words(event: np.void, state: State) -> str:
    """An event as a line."""
    names = ("alloc", "free", "recorded failure", "hidden alloc", "kswapd start", "kswapd stop")
    operation = int(event["operation"])
    cpu, order, number = int(event["cpu"]), int(event["order"]), int(event["object"])
    zone = state.machine.zone_types[int(event["zone"]) % len(state.machine.zone_types)]
    if operation == at.SET_PCP_HIGH:
        return f"set pcp->high of zone {event['zone']}, CPU {cpu} to {event['offset']}"
    if operation == at.FREE:
        return f"free object {number} + {event['offset']}, order {order}, on CPU {cpu}"
    if operation in (at.ALLOC, at.HIDDEN_ALLOC):
        migratetype = state.machine.migratetypes[int(event["migratetype"])]
        return (
            f"{names[operation]} order {order}, {migratetype}, up to zone {zone}, "
            f"gfp {int(event['bits']):#x}, on CPU {cpu} (object {number})"
        )
    return f"{names[operation]} on node {event['offset']}, up to zone {zone}"
