"""The model and the kernel's code taken through the same operations until they differ."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.events import advance
from pagealloc_model.allocator.from_source.compiled_tree import CompiledTree, KernelState
from pagealloc_model.allocator.from_source.extraction import Unit
from pagealloc_model.allocator.state import State
from pagealloc_model.policy.kernel_rules import KernelRules

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
    at.PCP_LOCK_HOLDER,
    at.PCP_LOCKS,
    at.PCP_LOCK_HANDOVERS,
    at.PCP_DRAIN_LOCKS,
)
LISTED_MAX = 12
"""Pages of a list that are spelled out."""


def states_agree(model: State, kernel: State) -> bool:
    """Whether the model's state and the kernel's, its pages stored, are the same."""
    return not len(differing_words(model, kernel)) and not len(differing_pages(model, kernel))


def differing_words(model: State, kernel: State) -> np.ndarray:
    """Offsets into `st` that differ."""
    found = np.flatnonzero(model.st != kernel.st)
    return found[~np.isin(found, [*SCRATCH, *_words_of_list_locks(model)])]


def _words_of_list_locks(model: State) -> np.ndarray:
    """Offsets of what is counted at each pcp->lock: to the shim all locks are free."""
    st = model.st
    sets = np.arange(int(st[at.NR_ZONES] * st[at.NR_CPUS])) * at.PCP_STRIDE + st[at.PCP_BASE]
    of_cpus = st[at.CPU_BASE] + np.arange(int(st[at.NR_CPUS]) * at.CPU_STRIDE)
    return np.concatenate([(sets[:, None] + LIST_LOCK_WORDS).ravel(), of_cpus])


def differing_pages(model: State, kernel: State) -> np.ndarray:
    """Free pages, in the buddy or on a per-CPU list, whose record differs."""
    mine, theirs = model.pages, kernel.pages
    free = (mine["where"] == at.BUDDY) | (mine["where"] == at.ON_PCP)
    differs = free & (mine["where"] != theirs["where"])
    differs |= ~free & (theirs["where"] != 0)
    for name in ("next", "prev", "order"):
        differs |= free & (mine[name] != theirs[name])
    tagged = mine["where"] == at.BUDDY
    if not model.st[at.RULE_LISTS_MATCH_BLOCKS]:
        tagged = free
    differs |= tagged & (mine["tag"] != theirs["tag"])
    return np.flatnonzero(differs)


def differences(model: State, kernel: State) -> list[str]:
    """One line for each thing that differs."""
    lines = [
        line
        for zone in range(len(model.machine.zones))
        for line in _zone_lines(model, kernel, zone)
    ]
    types = np.flatnonzero(model.blocks["migratetype"] != kernel.blocks["migratetype"])
    lines += [
        f"type of pageblock {block}: model {model.blocks[block]['migratetype']}, "
        f"kernel {kernel.blocks[block]['migratetype']}"
        for block in types
    ]
    if not lines:
        lines = [
            f"word {word} of the state: model {model.st[word]}, kernel {kernel.st[word]}"
            for word in differing_words(model, kernel)[:LISTED_MAX]
        ]
    if not lines:
        lines = [f"page {pfn}" for pfn in differing_pages(model, kernel)[:LISTED_MAX]]
    return lines


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


def _zone_lines(model: State, kernel: State, zone: int) -> list[str]:
    title = model.machine.zone_title(zone)
    mine, theirs = model.zone_region(zone), kernel.zone_region(zone)
    lines = word_lines(title, ZONE_FIELDS, mine, theirs)
    for order in range(model.machine.max_order + 1):
        for number, name in enumerate(model.machine.migratetypes):
            first = at.ZONE_LISTS + (order * at.MIGRATETYPES + number) * at.LIST_WORDS
            words = slice(first, first + at.LIST_WORDS)
            lines += _list_lines(
                f"{title}: free list of order {order}, {name}",
                (model, mine[words]),
                (kernel, theirs[words]),
            )
    for cpu in range(model.machine.nr_cpus):
        lines += _page_set_lines(model, kernel, zone, cpu)
    return lines


def _page_set_lines(model: State, kernel: State, zone: int, cpu: int) -> list[str]:
    title = f"{model.machine.zone_title(zone)}, CPU {cpu}"
    mine, theirs = model.pcp_region(zone, cpu), kernel.pcp_region(zone, cpu)
    lines = word_lines(title, PCP_FIELDS, mine, theirs)
    for index, first in enumerate(range(at.PCP_LISTS, at.PCP_SITES, at.LIST_WORDS)):
        words = slice(first, first + at.LIST_WORDS)
        lines += _list_lines(
            f"{title}: per-CPU list {index}", (model, mine[words]), (kernel, theirs[words])
        )
    return lines


def _list_lines(
    title: str, model: tuple[State, np.ndarray], kernel: tuple[State, np.ndarray]
) -> list[str]:
    mine, theirs = (state.list_pages(words) for state, words in (model, kernel))
    if mine == theirs:
        return []
    return [f"{title}: model {_spelled(mine)}, kernel {_spelled(theirs)}"]


def _spelled(pages: list[int]) -> str:
    more = f" and {len(pages) - LISTED_MAX} more" if len(pages) > LISTED_MAX else ""
    return f"[{' '.join(map(str, pages[:LISTED_MAX]))}{more}]"


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
        reached = advance(model.arrays(self.places), events, low, high, -1)
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
                f"row {row} of the log: model {_row_words(mine, row)}, "
                f"kernel {_row_words(theirs, row)}"
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


def _row_words(rows: np.ndarray, row: int) -> str:
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


SHRINKING_RUNS = 2_000
"""Most runs spent on making a failing sequence shorter."""


class Sides(Protocol):
    """A state carried on by the model and, a copy of it, by the kernel's code."""

    def agree_after(self, operations: np.ndarray, low: int, high: int) -> bool:
        """Take operations[low:high] on both; return whether they are the same then."""

    def describe(self, operations: np.ndarray, position: int) -> Difference:
        """Return the difference that the operation just taken has made."""

    def close(self) -> None:
        """Give the kernel's memory back."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What judging has found.

    Attributes:
        rules: of the model.
        release: of the tree.
        operations: taken on both without a difference, or up to it.
        scenarios: machines begun.
        seconds: wall-clock, of everything.
        seed: of the run.
        scenario: number of the one that differs, -1 if none does.
        missing: functions judged elsewhere that this tree does not have under their names.
        difference: the first one, None if there is none.
        shortest: the shortest sequence found that still ends in a difference, in words.
        part: what was judged.
    """

    rules: str
    release: str
    operations: int
    scenarios: int
    seconds: float
    seed: int
    missing: tuple[str, ...] = ()
    scenario: int = -1
    difference: Difference | None = None
    shortest: tuple[str, ...] = ()
    part: str = "allocation"


@dataclass(frozen=True, kw_only=True, eq=False)
class Scenario:
    """A machine and what happens on it.

    Attributes:
        sides: begins the machine on both sides; each call begins anew.
        operations: taken in order.
        compared_every: operations between two comparisons of the whole state.
        words: an operation as a line.
        recorded: it is a recording's demand, whole.
    """

    sides: Callable[[], Sides]
    operations: np.ndarray
    compared_every: int
    words: Callable[[np.void], str]
    recorded: bool = False

    def agreeing(self, progress: Callable[[float], None] | None = None) -> int:
        """Return the operations, in steps, after which both were still the same."""
        count = len(self.operations)
        sides = self.sides()
        try:
            for low in range(0, count, self.compared_every):
                high = min(low + self.compared_every, count)
                if not sides.agree_after(self.operations, low, high):
                    return low
                if progress is not None:
                    progress(high / count)
            return count
        finally:
            sides.close()

    def narrowed(self, same_until: int) -> tuple[Difference, tuple[str, ...]]:
        """Return the difference behind so many operations, and a sequence as short as it gets."""
        difference = self.first_difference(same_until)
        short = shrunk(self.operations[: difference.position + 1], self._differs)
        return difference, tuple(self.words(each) for each in short)

    def first_difference(self, same: int) -> Difference:
        """Return the difference behind so many operations; each try begins at the start."""
        differs = min(same + self.compared_every, len(self.operations))
        while True:
            middle = (same + differs) // 2 if differs - same > 1 else same
            sides = self.sides()
            try:
                if middle and not sides.agree_after(self.operations, 0, middle):
                    same, differs = same if middle > same else 0, middle
                elif middle == same:
                    sides.agree_after(self.operations, same, differs)
                    return sides.describe(self.operations, same)
                else:
                    same = middle
            finally:
                sides.close()

    def _differs(self, some: np.ndarray) -> bool:
        """Whether the two differ at the end of other operations."""
        sides = self.sides()
        try:
            return not sides.agree_after(some, 0, len(some))
        finally:
            sides.close()


def judge_scenarios(
    begin: Callable[[int, int], Scenario | Difference],
    rules: KernelRules,
    release: str,
    *,
    operations: int,
    seed: int,
    part: str = "allocation",
    missing: tuple[str, ...] = (),
    progress: Callable[[float], None] | None = None,
) -> Verdict:
    """Take scenario after scenario until a difference, or until enough operations were taken.

    One that was recorded is not made shorter.

    Args:
        begin: makes a scenario from its number and the most operations that it may have, or
            returns a difference that is there before any of them.
        rules: of the model.
        release: of the tree that judges.
        operations: how many.
        seed: that `begin` goes by.
        part: what is judged.
        missing: functions that the tree does not have under their names.
        progress: called with the share done.
    """
    began = time.perf_counter()
    done = number = 0
    found: tuple[Difference, tuple[str, ...]] | None = None
    while done < operations and found is None:
        scenario = begin(number, operations - done)
        if isinstance(scenario, Difference):
            found = scenario, ()
            break
        agreed = scenario.agreeing(progress if scenario.recorded else None)
        done += agreed
        if agreed == len(scenario.operations):
            number += 1
        elif scenario.recorded:
            found = scenario.first_difference(agreed), ()
            done = found[0].position
        else:
            found = scenario.narrowed(agreed)
        if progress is not None:
            progress(done / operations)
    return Verdict(
        rules=rules.spelled(),
        release=release,
        operations=done,
        scenarios=number,
        seconds=time.perf_counter() - began,
        seed=seed,
        missing=missing,
        scenario=-1 if found is None else number,
        difference=None if found is None else found[0],
        shortest=() if found is None else found[1],
        part=part,
    )


def shrunk(events: np.ndarray, fails: Callable[[np.ndarray], bool]) -> np.ndarray:
    """A shorter sequence that still fails, by leaving out ever smaller parts (delta debugging).

    A free whose allocation is left out does nothing, so that any part may go.

    Args:
        events: a sequence that fails.
        fails: whether a sequence does.
    """
    runs = 0
    size = max(len(events) // 2, 1)
    while runs < SHRINKING_RUNS:
        low = 0
        removed = False
        while low < len(events) and runs < SHRINKING_RUNS:
            candidate = np.concatenate([events[:low], events[low + size :]])
            runs += 1
            if len(candidate) and fails(candidate):
                events, removed = candidate, True
            else:
                low += size
        if size == 1 and not removed:
            break
        size = max(size // 2, 1)
    return events
