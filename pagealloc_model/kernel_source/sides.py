"""The model and the kernel's code taken through the same operations, and where they differ."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import operations as op
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.events import advance
from pagealloc_model.allocator.state import State
from pagealloc_model.kernel_source.compiled_tree import (
    CompiledTree,
    KernelCompaction,
    KernelReclaim,
    KernelState,
)
from pagealloc_model.kernel_source.extraction import Unit
from pagealloc_model.kernel_source.random_operations import Begin

_MOST_LISTED = 12
"""Pages of a list, or words, that are spelled out."""
_ZONE_FIELDS = {
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
_PCP_FIELDS = {
    at.PCP_COUNT: "pcp->count",
    at.PCP_HIGH: "pcp->high",
    at.PCP_ALLOC_FACTOR: "pcp->alloc_factor",
    at.PCP_FREE_COUNT: "pcp->free_count",
    at.PCP_PREV_FREE_HIGH_ORDER: "pcp->flags",
    at.PCP_EXPIRE: "pcp->expire",
    at.PCP_FREE_DELTA: "pcp->vm_stat_diff",
}


def differing_words(model: State, kernel: State) -> np.ndarray:
    """Offsets into `st` that differ, of words that both sides keep between two operations.

    Each pcp->lock is counted by the model only: to the shim all locks are free.
    """
    st = model.st
    sets = np.arange(int(st[at.NR_ZONES] * st[at.NR_CPUS])) * at.PCP_STRIDE + st[at.PCP_BASE]
    locks = [at.PCP_LOCK_HOLDER, at.PCP_LOCKS, at.PCP_LOCK_HANDOVERS, at.PCP_DRAIN_LOCKS]
    own = [
        *range(at.WORK, at.WORK + at.WORK_UNITS),
        *(at.LIST_PROBES, at.REFILL_PROBES, at.REFILL_PROBES_MOST),
        *(sets[:, None] + locks).ravel(),
        *(st[at.CPU_BASE] + np.arange(int(st[at.NR_CPUS]) * at.CPU_STRIDE)),
    ]
    words = np.flatnonzero(st != kernel.st)
    return words[~np.isin(words, own)]


def differing_pages(model: State, kernel: State, *, in_use: bool = False) -> np.ndarray:
    """Free pages whose record differs; `in_use`: and those in use, with folios but no tags."""
    pages, others = model.pages, kernel.pages
    free = (pages["where"] == at.BUDDY) | (pages["where"] == at.ON_PCP)
    used = (pages["where"] == at.ALLOCATED) & in_use
    compared = [(pages, others, ("next", "prev"), free), (pages, others, ("order",), free | used)]
    differs = (pages["where"] != others["where"]) & (free | used | (others["where"] != 0))
    if in_use:
        folios = model.folios, kernel.folios
        compared.append((*folios, ("object", "offset", "kind"), used))
        differs |= used & ((folios[0]["place"] != 0) != (folios[1]["place"] != 0))
    else:
        tagged = pages["where"] == at.BUDDY if model.st[at.RULE_LISTS_MATCH_BLOCKS] else free
        compared.append((pages, others, ("tag",), tagged))
    for own, other, names, rows in compared:
        for name in names:
            differs |= rows & (own[name] != other[name])
    return np.flatnonzero(differs)


def region_names(
    titles: Iterable[str], first: int, stride: int, fields: Mapping[int, str]
) -> dict[int, str]:
    """Names of words by offset into the state, of regions of one kind that follow each other."""
    return {
        first + number * stride + word: f"{title}: {name}"
        for number, title in enumerate(titles)
        for word, name in fields.items()
    }


def word_lines(names: Mapping[int, str], model: np.ndarray, kernel: np.ndarray) -> list[str]:
    """One line for each named word that differs."""
    return [
        f"{name}: model {model[word]}, kernel {kernel[word]}"
        for word, name in names.items()
        if model[word] != kernel[word]
    ]


def _allocator_lines(model: State, kernel: State, words: np.ndarray | None = None) -> list[str]:
    """One line for each thing that differs in zones, lists and block types.

    Where nothing does, differing words of the state (those given, else all), or pages.
    """
    machine = model.machine
    zones = [machine.zone_title(zone) for zone in range(len(machine.zones))]
    sets = [f"{zone}, CPU {cpu}" for zone in zones for cpu in range(machine.nr_cpus)]
    free_lists = {
        at.ZONE_LISTS + (order * at.MIGRATETYPES + number) * at.LIST_WORDS: f"free list of order "
        f"{order}, {name}"
        for order in range(machine.max_order + 1)
        for number, name in enumerate(machine.migratetypes)
    }
    firsts = range(at.PCP_LISTS, at.PCP_SITES, at.LIST_WORDS)
    pcp_lists = {first: f"per-CPU list {index}" for index, first in enumerate(firsts)}
    of_zones = zones, at.ZONES, at.ZONE_STRIDE
    of_sets = sets, int(model.st[at.PCP_BASE]), at.PCP_STRIDE
    names = region_names(*of_zones, _ZONE_FIELDS) | region_names(*of_sets, _PCP_FIELDS)
    lines = word_lines(names, model.st, kernel.st)
    lists = region_names(*of_zones, free_lists) | region_names(*of_sets, pcp_lists)
    for first, name in lists.items():
        listed, others = (
            side.list_pages(side.st[first : first + at.LIST_WORDS]) for side in (model, kernel)
        )
        if listed != others:
            lines.append(f"{name}: model {_list_words(listed)}, kernel {_list_words(others)}")
    types = model.blocks["migratetype"], kernel.blocks["migratetype"]
    blocks = np.flatnonzero(types[0] != types[1]).tolist()
    lines += word_lines({block: f"type of pageblock {block}" for block in blocks}, *types)
    if lines:
        return lines
    words = (differing_words(model, kernel) if words is None else words)[:_MOST_LISTED].tolist()
    names = {word: f"word {word} of the state" for word in words}
    pages = differing_pages(model, kernel)[:_MOST_LISTED]
    return word_lines(names, model.st, kernel.st) or [f"page {pfn}" for pfn in pages]


def _list_words(pages: list[int]) -> str:
    more = f" and {len(pages) - _MOST_LISTED} more" if len(pages) > _MOST_LISTED else ""
    return f"[{' '.join(map(str, pages[:_MOST_LISTED]))}{more}]"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The first operation after which the two differ, what does, and functions about it."""

    position: int
    event: str
    lines: tuple[str, ...]
    places: tuple[str, ...]


_PAGE_ALLOC = "mm/page_alloc.c"


def _around(unit: Unit, lines: Iterable[int]) -> list[str]:
    """Functions around lines of mm/page_alloc.c."""
    return [
        f"{function}() at {_PAGE_ALLOC}:{line}"
        for line in lines
        if (function := unit.function_at(_PAGE_ALLOC, int(line)))
    ]


def functions_named(unit: Unit, names: Iterable[str]) -> list[str]:
    """Where functions of a unit are: none, or one for each condition they stand under."""
    return [
        f"{name}() at {item.path}:{item.line}"
        for name in names
        for item in unit.items
        if item.kind == "function" and name in item.names
    ]


def _writers(unit: Unit, lines: list[str]) -> list[str]:
    """Functions that set the fields that lines are about."""
    fields = {match[1] for line in lines if (match := re.search(r": (?:pcp->)?(\w+): model", line))}
    setting = r"->{0}\s*(?:[-+|&]|<<|>>)?(?:=(?!=)|\+\+|--)|(?:set|clear)_bit\({0}\b"
    names = [
        item.names[0]
        for name in sorted(fields)
        for item in unit.items
        if item.kind == "function" and re.search(setting.format(name), item.text)
    ]
    return functions_named(unit, names)


class Sides:
    """A state carried on by the model and, a copy of it, by the kernel's code: of allocation.

    Operations are events, and the answers to them rows of a log; `places` are of objects.
    """

    def __init__(
        self,
        tree: CompiledTree,
        begin: Begin,
        kernel: type[KernelState] = KernelState,
        words: Callable[[np.void, State], str] | None = None,
    ) -> None:
        """Begin twice; `words` puts an operation in words."""
        self._tree, self.words = tree, words or _event_words
        self.model, self.places = begin()
        state, self.kernel_places = begin()
        self.kernel = kernel(tree, state)
        self.close = self.kernel.close

    def agree_after(self, operations: np.ndarray, low: int, high: int) -> bool:
        """Take operations[low:high] on both; whether all is the same then."""
        if not self._same_answers(operations, low, high):
            return False
        self.kernel.store(pages=True)
        return self.kernel.broken_assertion is None and self._same_states()

    def describe(self, operations: np.ndarray, position: int) -> Difference:
        """The difference that the operation just taken has made, with functions of the tree."""
        unit, _ = self._tree.built(self.kernel.configuration)
        lines, places = self._answer_lines(unit, operations, position)
        broken = self.kernel.broken_assertion
        if broken:
            lines.append(f"the kernel's assertion does not hold: not ({broken[0]})")
        self.kernel.store(pages=True)
        more, functions = self._state_lines(unit, places, broken)
        return Difference(
            position=position,
            event=self.words(operations[position], self.model),
            lines=(*lines, *more),
            places=tuple(dict.fromkeys([*places, *functions])),
        )

    def _same_answers(self, operations: np.ndarray, low: int, high: int) -> bool:
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

    def _same_states(self) -> bool:
        states = self.model, self.kernel.state
        same_places = np.array_equal(self.places, self.kernel_places)
        return same_places and not (len(differing_words(*states)) or len(differing_pages(*states)))

    def _logs(self) -> list[np.ndarray]:
        """Rows of the last step on either side, without columns that only one of them knows."""
        logs = []
        for state in (self.model, self.kernel.state):
            rows = state.log[: int(state.st[at.LOG_ROWS])].copy()
            unreserves = rows["kind"] == at.SITE_UNRESERVE
            rows["order"][unreserves] = 0
            direct_frees = rows["kind"] == at.SITE_DIRECT_FREE
            rows["migratetype"][unreserves | direct_frees] = 0
            logs.append(rows)
        return logs

    def _answer_lines(
        self, unit: Unit, operations: np.ndarray, position: int
    ) -> tuple[list[str], list[str]]:
        """The first row in which the logs of the last step differ, and functions about it."""
        logs = self._logs()
        common = min(map(len, logs))
        differs = np.flatnonzero(logs[0][:common] != logs[1][:common])
        row = int(differs[0]) if len(differs) else common
        if row == max(map(len, logs)):
            return [], []
        words, others = (_row_words(rows, row) for rows in logs)
        places = _around(unit, self.kernel.lines[: len(logs[1])][max(row - 1, 0) : row + 1])
        kinds = [int(rows["kind"][row]) for rows in logs if row < len(rows)]
        places += functions_named(unit, [_ROWS[kind][1] for kind in kinds if kind in _ROWS])
        return [f"row {row} of the log: model {words}, kernel {others}"], places

    def _state_lines(
        self, unit: Unit, places: list[str], broken: tuple[str, int] | None
    ) -> tuple[list[str], list[str]]:
        """Differences of objects and the state, and functions of the tree that set it."""
        functions = _around(unit, [broken[1]]) if broken else []
        objects = np.flatnonzero(self.places != self.kernel_places)[:3].tolist()
        lines = [
            f"object {number}: model at {self.places[number]}, "
            f"kernel at {self.kernel_places[number]}"
            for number in objects
        ]
        differing = _allocator_lines(self.model, self.kernel.state)
        functions += _writers(unit, differing)
        if not (places or functions):
            rows = int(self.kernel.state.st[at.LOG_ROWS])
            functions = _around(unit, self.kernel.lines[:rows][-2:])
        return [*lines, *differing], functions


_ROWS = {
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
_HOLD_COLUMNS = (*("zone", "cpu", "order", "migratetype", *at.LOG_WORK, "ran_on"),)
_PAGE_COLUMNS = ("zone", "cpu", "pfn", "order", "migratetype")
_EXTFRAG_COLUMNS = (*_PAGE_COLUMNS, "fallback_order", "fallback_migratetype", "change_ownership")


def _row_words(rows: np.ndarray, row: int) -> str:
    if row >= len(rows):
        return "nothing"
    kind = int(rows["kind"][row])
    columns = _HOLD_COLUMNS if kind < at.SITES else _PAGE_COLUMNS
    if kind == at.LOG_EXTFRAG:
        columns = _EXTFRAG_COLUMNS
    words = [f"{name}={rows[name][row]}" for name in columns]
    return f"{_ROWS[kind][0] if kind in _ROWS else kind} {' '.join(words)}"


_ALLOC_WORDS = (
    "alloc order {order}, {type}, up to zone {highest}, gfp {bits:#x}, on CPU {cpu} "
    "(object {object})"
)
_EVENT_WORDS = {
    at.ALLOC: _ALLOC_WORDS,
    at.HIDDEN_ALLOC: f"hidden {_ALLOC_WORDS}",
    at.FREE: "free object {object} + {offset}, order {order}, on CPU {cpu}",
    at.SET_PCP_HIGH: "set pcp->high of zone {zone}, CPU {cpu} to {offset}",
    at.RECORDED_FAILURE: "recorded failure on node {offset}, up to zone {highest}",
    at.KSWAPD_START: "kswapd start on node {offset}, up to zone {highest}",
    at.KSWAPD_STOP: "kswapd stop on node {offset}, up to zone {highest}",
}


def _event_words(event: np.void, state: State) -> str:
    machine = state.machine
    values = {name: int(event[name]) for name in at.EVENT.names or ()}
    values["highest"] = machine.zone_types[values["zone"] % len(machine.zone_types)]
    values["type"] = machine.migratetypes[values["migratetype"]]
    words = _EVENT_WORDS.get(values["operation"], "event {operation} on CPU {cpu}")
    return words.format(**values)


@dataclass(frozen=True, kw_only=True)
class _Pressure:
    """Operations of reclaim or of compaction: how they are taken, and what is compared then."""

    kernel: type[KernelReclaim | KernelCompaction]
    take: Callable[..., object]
    answers: tuple[str, ...]
    words: Callable[[np.void, State], str]
    counters: Mapping[int, str]
    has_stalls: bool = False
    zone_fields: Mapping[int, str] = field(default_factory=dict)
    node_fields: Mapping[int, str]
    other_lines: Callable[[State, State], list[str]]
    functions: Callable[[np.void], tuple[str, ...]] = lambda _: ()
    most_lines: int | None = None

    def differences(self, model: State, kernel: State) -> list[str]:
        """One line for each thing that differs; none where the two are the same."""
        base, machine = int(model.st[at.PRESSURE_BASE]), model.machine
        names = {base + word: name for word, name in self.counters.items()}
        for number, name in enumerate(machine.zone_types if self.has_stalls else ()):
            names[base + pr.ALLOCSTALL + number] = f"allocstall_{name}"
        zones = [machine.zone_title(number) for number in range(len(machine.zones))]
        nodes = [f"node {number}" for number in range(len(machine.nodes))]
        for titles, first, stride, fields in (
            (zones, pr.ZONES_BASE, pr.ZONE_WORDS, self.zone_fields),
            (nodes, pr.NODES_BASE, pr.NODE_WORDS, self.node_fields),
        ):
            names |= region_names(titles, int(model.st[base + first]), stride, fields)
        lines = word_lines(names, model.st, kernel.st)
        return [*lines, *self.other_lines(model, kernel)][: self.most_lines]


class PressureSides(Sides):
    """Operations of reclaim or compaction on both sides, each with its answers."""

    def __init__(self, tree: CompiledTree, begin: Begin, count: int) -> None:
        """Begin twice, with room for the answers of `count` operations."""
        self._part = PRESSURE[tree.part.name]
        super().__init__(tree, begin, self._part.kernel, self._part.words)
        answers = len(self._part.answers)
        self._answers = np.zeros((2, count) if answers == 1 else (2, count, answers), np.int64)

    def _same_answers(self, operations: np.ndarray, low: int, high: int) -> bool:
        answers, others = self._answers
        self._part.take(self.model.arrays(self.places), operations, answers, low, high)
        self.kernel.take(operations, others, low, high)
        return np.array_equal(answers[low:high], others[low:high])

    def _same_states(self) -> bool:
        return not self._part.differences(self.model, self.kernel.state)

    def _answer_lines(
        self, unit: Unit, operations: np.ndarray, position: int
    ) -> tuple[list[str], list[str]]:
        answers = dict(enumerate(self._part.answers))
        lines = word_lines(answers, *self._answers[:, position].reshape(2, -1))
        return lines, functions_named(unit, self._part.functions(operations[position]))

    def _state_lines(
        self, unit: Unit, places: list[str], broken: tuple[str, int] | None
    ) -> tuple[list[str], list[str]]:
        return self._part.differences(self.model, self.kernel.state), []


_REQUEST = "order {order}, up to zone {zone}, gfp {bits:#x}"
_RECLAIM_STEPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (f"allocate {_REQUEST}, {{migratetype}}, class {{class}}", ("get_page_from_freelist",)),
    ("free {page}", ()),
    ("use {page}", ()),
    (f"wake kswapd on node {{node}}, {_REQUEST}", ("wakeup_kswapd", "pgdat_balanced")),
    (
        "run kswapd on node {node}",
        ("balance_pgdat", "kswapd_try_to_sleep", "shrink_node", "shrink_lruvec"),
    ),
    ("end its nap on node {node}", ("kswapd_try_to_sleep", "balance_pgdat")),
    (
        f"reclaim {_REQUEST}",
        ("do_try_to_free_pages", "shrink_zones", "shrink_node", "shrink_lruvec"),
    ),
)
"""Operations of reclaim by kind: in words, and functions of the tree that it runs."""


def _reclaim_words(operation: np.void, state: State) -> str:
    values: dict[str, object] = {name: operation[name].item() for name in operation.dtype.names}
    page = int(operation["page"])
    taken, used = f"the page that operation {-1 - page} took", f"the page in use from {page} on"
    values["page"] = taken if page < 0 else used
    values["zone"] = state.machine.zone_types[int(operation["zone"])]
    values["migratetype"] = state.machine.migratetypes[int(operation["migratetype"])]
    return _RECLAIM_STEPS[int(operation["kind"])][0].format(**values)


def _reclaim_lines(model: State, kernel: State) -> list[str]:
    """Differences of folios and, but for the clock and kswapd's own, the allocator."""
    in_use = model.pages["where"] == at.ALLOCATED
    listed = in_use & (model.folios["place"] > 0)
    folios, pages = (model.folios, kernel.folios), (model.pages, kernel.pages)
    lines = [
        f"page {pfn}: {name}{where}: model {own[name][pfn]}, kernel {others[name][pfn]}"
        for (own, others), names, where, rows in (
            (folios, ("kind", "scans", "writes", "place"), "", in_use),
            (pages, ("next", "prev"), " on its LRU list", listed),
        )
        for name in names
        for pfn in np.flatnonzero(rows & (own[name] != others[name]))[:3]
    ]
    own = [at.NOW, at.EVENT_CPU, at.KSWAPD_RUNS, at.COUNT_KSWAPD_WAKES, at.LOG_ROWS, at.LOG_DROPPED]
    zones, nodes = len(model.machine.zones), int(model.st[at.NODE_BASE])
    own += range(at.ZONES + at.ZONE_REMEMBERED_BOOST, at.ZONES + zones * at.ZONE_STRIDE)[
        :: at.ZONE_STRIDE
    ]
    own += range(nodes, nodes + len(model.machine.nodes) * at.NODE_STRIDE)
    words = differing_words(model, kernel)
    words = words[(words < model.st[at.PRESSURE_BASE]) & ~np.isin(words, own)]
    if len(words) or len(differing_pages(model, kernel)):
        lines += _allocator_lines(model, kernel)
    return lines


_COMPACTION_STEPS = (
    "direct compaction for order {order}, {type}, up to zone {highest}, priority {priority}, "
    "flags {flags:#x}, on CPU {cpu}, page {kept}",
    "wake of kcompactd of node {node} for order {order}, up to zone {highest}{again}",
    "time passes, node {node}, {count}",
    "compaction of a node, node {node}, {count}",
    "skip marks cleared, node {node}, {count}",
    "kswapd runs or not, node {node}, {count}",
    "pages taken from {zone}: {count} of order {order}, {type}",
    "pages freed in {zone}: {count} per mille, on CPU {cpu}",
)


def _compaction_words(row: np.ndarray, state: State) -> str:
    return _COMPACTION_STEPS[int(row[op.KIND])].format(
        node=row[op.NODE],
        order=row[op.ORDER],
        priority=row[op.PRIORITY],
        flags=row[op.FLAGS],
        cpu=row[op.CPU],
        count=row[op.COUNT],
        again=f", then for order {row[op.COUNT]} while it works" if row[op.COUNT] else "",
        kept="kept" if row[op.KEEP] else "freed",
        zone=state.machine.zone_title(int(row[op.ZONE])),
        type=state.machine.migratetypes[int(row[op.TYPE])],
        highest=state.machine.zone_types[int(row[op.HIGHEST])],
    )


def _compaction_lines(model: State, kernel: State) -> list[str]:
    """Differences of skip marks, the allocator's lists and block types, and pages."""
    step = 1 << model.machine.pageblock_order
    skips = [side.folios["skip"][::step][: len(model.blocks)] != 0 for side in (model, kernel)]
    blocks = np.flatnonzero((skips[0] != skips[1]) & (model.blocks["zone"] > 0))[:_MOST_LISTED]
    marks = {block: f"skip mark of pageblock {block}" for block in blocks.tolist()}
    lines = word_lines(marks, *skips)
    # Words of the allocator that only one of the two keeps while compaction is judged.
    own = [at.NOW, at.EVENT_CPU, at.LOG_ROWS, at.LOG_DROPPED, at.COUNT_SLOW_PATH]
    own += [at.CAPTURE_ZONE, at.CAPTURE_ORDER, at.CAPTURE_TYPE, at.CAPTURED]
    words = differing_words(model, kernel)
    words = words[(words < model.st[at.PRESSURE_BASE]) & ~np.isin(words, own)]
    if len(words) or (model.blocks["migratetype"] != kernel.blocks["migratetype"]).any():
        lines += _allocator_lines(model, kernel, words)
    return lines + [
        f"page {pfn}: model {_page_words(model, pfn)}, kernel {_page_words(kernel, pfn)}"
        for pfn in differing_pages(model, kernel, in_use=True)[:_MOST_LISTED]
    ]


def _page_words(state: State, pfn: int) -> str:
    page, folio = state.pages[pfn], state.folios[pfn]
    where = {at.BUDDY: "free", at.ON_PCP: "on a CPU's list", at.ALLOCATED: "in use"}
    of = f" by object {folio['object']}" if int(page["where"]) == at.ALLOCATED else ""
    return f"{where.get(int(page['where']), 'part of another')}{of}, order {page['order']}"


_COUNTERS = {pr.COUNTERS + number: name for number, name in enumerate(pr.COUNTER_NAMES)}
RECLAIM_COUNTERS = {
    word: name
    for word, name in _COUNTERS.items()
    if name.startswith(("pgscan", "pgsteal", "pgactivate", "pgdeactivate", "pageout", "kswapd"))
}
_KCOMPACTD_FIELDS = {
    pr.KCOMPACTD_ORDER: "kcompactd_max_order",
    pr.KCOMPACTD_HIGHEST: "kcompactd_highest_zoneidx",
}
PRESSURE = {
    "reclaim": _Pressure(
        kernel=KernelReclaim,
        take=op.take_reclaim_operations,
        answers=("the answer",),
        words=_reclaim_words,
        counters=RECLAIM_COUNTERS,
        has_stalls=True,
        node_fields={
            pr.KSWAPD_PHASE: "how kswapd sleeps",
            pr.KSWAPD_WOKEN: "whether it is woken",
            pr.KSWAPD_FAILURES: "kswapd_failures",
            pr.KSWAPD_WANTED_ORDER: "kswapd_order",
            pr.KSWAPD_WANTED_HIGHEST: "kswapd_highest_zoneidx",
            **_KCOMPACTD_FIELDS,
            **{
                pr.NODE_PAGES + number: f"pages on LRU list {number}"
                for number in range(pr.LRU_LISTS)
            },
            **{
                pr.NODE_LISTS + number: f"LRU list {number // at.LIST_WORDS}"
                for number in range(pr.LRU_LISTS * at.LIST_WORDS)
            },
        },
        other_lines=_reclaim_lines,
        functions=lambda operation: _RECLAIM_STEPS[int(operation["kind"])][1],
        most_lines=40,
    ),
    "compaction": _Pressure(
        kernel=KernelCompaction,
        take=op.take_compaction_operations,
        answers=("result", "page"),
        words=_compaction_words,
        counters=_COUNTERS,
        zone_fields={
            pr.ZONE_MIGRATE_ASYNC: "compact_cached_migrate_pfn[0]",
            pr.ZONE_MIGRATE_SYNC: "compact_cached_migrate_pfn[1]",
            pr.ZONE_FREE_FROM: "compact_cached_free_pfn",
            pr.ZONE_CONSIDERED: "compact_considered",
            pr.ZONE_DEFER_SHIFT: "compact_defer_shift",
            pr.ZONE_ORDER_FAILED: "compact_order_failed",
            pr.ZONE_FLUSH_SKIPS: "compact_blockskip_flush",
            pr.ZONE_INIT_MIGRATE: "compact_init_migrate_pfn",
            pr.ZONE_INIT_FREE: "compact_init_free_pfn",
        },
        node_fields=_KCOMPACTD_FIELDS,
        other_lines=_compaction_lines,
    ),
}
"""By name of the part."""
