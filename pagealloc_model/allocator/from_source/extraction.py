"""The allocator's functions, taken from a kernel tree with what they need, as one C unit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType

from pagealloc_model.allocator.core import layout, pressure_layout
from pagealloc_model.allocator.from_source.c_items import (
    Item,
    top_level_items,
    without_comments,
    words_of,
)
from pagealloc_model.allocator.from_source.complaints import not_found
from pagealloc_model.allocator.from_source.parts import ALLOCATION, Part
from pagealloc_model.allocator.from_source.source_tree import SOURCES, SourceTree
from pagealloc_model.base.errors import PageallocError

SHIM = Path(__file__).parent / "shim"

CALLED = {
    "free": ("free_frozen_pages", "free_the_page", "free_unref_page"),
    "slow_path_flags": ("alloc_flags_slowpath", "gfp_to_alloc_flags"),
    "cma_flags": ("alloc_flags_cma", "gfp_to_alloc_flags_cma"),
}
"""Names, newest first, of what the shim calls by one name."""

JUDGED = (
    "get_page_from_freelist",
    "__zone_watermark_ok",
    "zone_watermark_fast",
    "rmqueue",
    "rmqueue_pcplist",
    "rmqueue_buddy",
    "rmqueue_bulk",
    "nr_pcp_alloc",
    "nr_pcp_free",
    "nr_pcp_high",
    "decay_pcp_high",
    "refresh_cpu_vm_stats",
    "__rmqueue",
    "__rmqueue_smallest",
    "__rmqueue_claim",
    "__rmqueue_steal",
    "expand",
    "__free_one_page",
    "free_one_page",
    "free_pcppages_bulk",
    "free_unref_page_commit",
    "drain_pages_zone",
    "reserve_highatomic_pageblock",
    "unreserve_highatomic_pageblock",
    "gfp_to_alloc_flags",
    "alloc_flags_nofragment",
    "wake_all_kswapds",
    "pgdat_balanced",
    "zone_batchsize",
    "zone_highsize",
    "__setup_per_zone_wmarks",
    "setup_per_zone_lowmem_reserve",
    "refresh_zone_stat_thresholds",
)
"""Functions under these names are the allocator's decisions; reported if a tree has none."""

LATER_NAMES = {
    "free_unref_page_commit": "free_frozen_page_commit",
    "gfp_to_alloc_flags": "alloc_flags_slowpath",
}
"""What judged functions are called in newer trees."""

WHOLES = (
    "struct per_cpu_pages",
    "struct zone",
    "struct alloc_context",
    "struct capture_control",
    "rmqueue_buddy",
)
"""Structs and functions of which the shim asks whether they have a part."""

ARGUMENTS = {
    "gfp": "gfp_mask",
    "gfp_flags": "gfp_mask",
    "alloc_order": "order",
    "highest_zone": "highest_zoneidx",
}
"""The shim's word for a parameter that trees name in several ways."""

OFFERED = frozenset(
    {
        "ac",
        "alloc_flags",
        "cpu",
        "cpu_online",
        "do_pagesets",
        "force",
        "fpi_flags",
        "gfp_mask",
        "highest_zoneidx",
        "migratetype",
        "order",
        "page",
        "pcp",
        "pgdat",
        "preferred_zone",
        "zone",
    }
)
"""Arguments that the shim has to offer, by parameter name."""


class KernelSourceError(PageallocError):
    """A kernel tree does not have what is needed, or it does not compile."""


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """What a kernel would be configured with; one compiled library has one configuration.

    Attributes:
        zone_types: names of the machine's zone types.
        pageblock_order: S1.2.
        max_order: S1.1.
        thp: transparent huge pages have per-CPU lists (S1.9).
        cma: CMA exists.
        isolation: memory isolation exists.
        costly_order: PAGE_ALLOC_COSTLY_ORDER, None for the tree's.
        batch_scale_max: CONFIG_PCP_BATCH_SCALE_MAX.
        cpus: at least as many as the machine has.
    """

    zone_types: tuple[str, ...]
    pageblock_order: int = 9
    max_order: int = 10
    thp: bool = True
    cma: bool = False
    isolation: bool = True
    costly_order: int | None = None
    batch_scale_max: int = 5
    cpus: int = 64

    def definitions(self) -> dict[str, int]:
        """Macros by name."""
        present = {
            "CONFIG_SMP": True,
            "CONFIG_NUMA": True,
            "CONFIG_MMU": True,
            "CONFIG_ZONE_DMA32": True,
            "CONFIG_ZONE_DMA": "DMA" in self.zone_types,
            "CONFIG_HIGHMEM": "HighMem" in self.zone_types,
            "CONFIG_ZONE_DEVICE": "Device" in self.zone_types,
            "CONFIG_TRANSPARENT_HUGEPAGE": self.thp,
            "CONFIG_CMA": self.cma,
            "CONFIG_MEMORY_ISOLATION": self.isolation,
        }
        optional = sum(present[f"CONFIG_{each}"] for each in ("ZONE_DMA", "HIGHMEM", "ZONE_DEVICE"))
        made = {name: 1 for name, is_there in present.items() if is_there}
        made |= {
            "CONFIG_PCP_BATCH_SCALE_MAX": self.batch_scale_max,
            "NODES_SHIFT": 5,
            "MAX_NUMNODES": 32,
            "MAX_NR_ZONES": 3 + optional,
            "MAX_BUDDY_ORDER": self.max_order,
            "SHIM_PAGEBLOCK_ORDER": self.pageblock_order,
            "SHIM_CPUS": self.cpus,
        }
        if self.costly_order is not None:
            made["PAGE_ALLOC_COSTLY_ORDER"] = self.costly_order
        return made


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A C unit to be compiled.

    Attributes:
        text: the unit.
        items: what was taken from the tree, in the order of its files.
    """

    text: str
    items: tuple[Item, ...]

    def function_at(self, path: str, line: int) -> str:
        """Name of the function around a line of the tree, "" if none of the unit's."""
        for each in self.items:
            if each.kind == "function" and each.path == path and each.line <= line <= each.end_line:
                return each.names[0]
        return ""


class TreeIndex:
    """Definitions of a tree's files by name, as a part of the kernel needs them."""

    def __init__(self, tree: SourceTree, part: Part = ALLOCATION) -> None:
        self.tree = tree
        self.part = part
        self.items = [
            item
            for path in (*SOURCES, *part.sources)
            if (text := tree.read(path)) is not None
            for item in top_level_items(text, path)
        ]

    @cached_property
    def by_name(self) -> Mapping[str, list[Item]]:
        """All variants of each name, whatever conditions they stand under."""
        found: dict[str, list[Item]] = {}
        for item in self.items:
            for name in item.names:
                found.setdefault(name, []).append(item)
        return found

    def function(self, name: str) -> Item | None:
        """The function of a name, None if there is none."""
        variants = [each for each in self.by_name.get(name, ()) if each.kind == "function"]
        return variants[0] if variants else None


def _shim_text(names: Iterable[str]) -> str:
    return "".join(f'#line 1 "shim/{name}"\n{(SHIM / name).read_text()}' for name in names)


def _shim_names(part: Part) -> tuple[set[str], frozenset[str]]:
    """What the shim defines, and every word it uses."""
    defined: set[str] = set()
    words: frozenset[str] = frozenset()
    for name in (*part.before_types, *part.after_types, *part.behind_functions):
        text = (SHIM / name).read_text()
        for item in top_level_items(text, name):
            defined.update(item.names)
        words |= words_of(without_comments(text))
    return defined - part.own_code, words


def extract(index: TreeIndex, configuration: Configuration) -> Unit:
    """The unit for a tree's definitions.

    Raises:
        KernelSourceError: functions that the shim calls are missing or take arguments it cannot
            give; the message lists all of them.
    """
    part = index.part
    definitions = configuration.definitions() | part.definitions
    defined, words = _shim_names(part)
    defined |= definitions.keys()
    calls, missing, changed = _calls(index, words)
    if missing or changed:
        lacking = not_found(index.tree, missing)
        listed = "; ".join([*([f"not found: {lacking}"] if lacking else []), *changed])
        raise KernelSourceError(f"{index.tree.path}: {listed}")
    words |= {f"{name}(" for name in part.by_address}
    items, used = _closure(index, words, defined, _functions_called(index, calls))
    traces = sorted(
        word.removesuffix("(")
        for word in used
        if word.startswith("trace_")
        and word.endswith("(")
        and word.removesuffix("(") not in defined | index.by_name.keys()
    )
    parts = [
        *(f"#define {name} {value}\n" for name, value in definitions.items()),
        *(f"#define AT_{name} ({value})\n" for name, value in _layout_words().items()),
        *(f"#define PR_{name} ({value})\n" for name, value in _numbers(pressure_layout).items()),
        *(f"#define ASK_{name.upper()} {number}\n" for number, name in enumerate(part.questions)),
        *(f"#define {name} 1\n" for name in sorted(words) if _tree_has(index, name)),
        _shim_text(part.before_types),
        *(_spelled(item, item.text) for item in items if item.kind != "function"),
        _shim_text(part.after_types),
        *(f"#define {name}(...) ((void)0)\n" for name in traces),
        *(_spelled(item, item.prototype) for item in items if item.kind == "function"),
        *(_spelled(item, item.text) for item in items if item.kind == "function"),
        *(f"#define CALL_{name} {call}\n" for name, call in calls.items()),
        _shim_text(part.behind_functions),
    ]
    return Unit(
        text="".join(parts),
        items=tuple(items),
    )


def _layout_words() -> dict[str, int]:
    """The integer constants of the model's layout, for the shim to share."""
    from pagealloc_model.recording.machine import ZONE_TYPES_MAX

    return _numbers(layout) | {"ZONE_TYPES_MAX": ZONE_TYPES_MAX}


def _numbers(module: ModuleType) -> dict[str, int]:
    return {
        name: value
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, int) and not isinstance(value, bool)
    }


def _tree_has(index: TreeIndex, word: str) -> bool:
    """Whether HAS_name is about a name that the tree has.

    Or about a field of a struct, or about a word that a function uses.
    """
    if not word.startswith("HAS_"):
        return False
    name = word.removeprefix("HAS_")
    for whole in WHOLES:
        prefix = f"{whole.removeprefix('struct ')}_"
        if name.startswith(prefix):
            part = name.removeprefix(prefix)
            return any(part in each.words for each in index.by_name.get(whole, ()))
    return name in index.by_name


def _calls(index: TreeIndex, words: frozenset[str]) -> tuple[dict[str, str], list[str], list[str]]:
    """C text of each call that the shim makes by CALL_name, and what stands in the way.

    That is: names of functions that are missing, and lines on those that take other arguments.
    """
    calls: dict[str, str] = {}
    missing, changed = [], []
    for name in sorted(each.removeprefix("CALL_") for each in words if each.startswith("CALL_")):
        names = CALLED.get(name, (name,))
        function = next((found for each in names if (found := index.function(each))), None)
        if function is None:
            missing.append(names[0])
            continue
        given = [ARGUMENTS.get(each, each) for each in function.parameters]
        where = f"{function.names[0]}() at {function.path}:{function.line}"
        offered = OFFERED | index.part.arguments
        changed += [f"{where} has a parameter {each!r}" for each in given if each not in offered]
        calls[name] = f"{function.names[0]}({', '.join(given)})"
    return calls, missing, changed


def _functions_called(index: TreeIndex, calls: Mapping[str, str]) -> list[Item]:
    names = (call.split("(")[0] for call in calls.values())
    return [found for name in names if (found := index.function(name)) is not None]


def _closure(
    index: TreeIndex, wanted: Iterable[str], defined: set[str], called: Iterable[Item]
) -> tuple[list[Item], set[str]]:
    """All items that the wanted names lead to, in the tree's order, and every word they use."""
    pending = [(name, path) for name in wanted for path in index.part.homes]
    pending += [(f"{each.names[0]}(", each.path) for each in called]
    taken: set[int] = set()
    used: set[str] = set()
    while pending:
        word, path = pending.pop()
        name = word.removesuffix("(")
        if name in defined:
            continue
        for item in index.by_name.get(name, ()):
            if id(item) in taken or item.is_called != word.endswith("("):
                continue
            if item.path.endswith(".c") and item.path != path and item.text.startswith("static"):
                continue
            taken.add(id(item))
            used |= item.words
            pending += [(each, item.path) for each in item.words]
    return [item for item in index.items if id(item) in taken], used


def _spelled(item: Item, text: str) -> str:
    """An item as its compiler shall see it: under its conditions, at its place in the tree."""
    opened = "".join(f"#if {condition}\n" for condition in item.conditions)
    closed = "#endif\n" * len(item.conditions)
    return f'{opened}#line {item.line} "{item.path}"\n{text}\n{closed}'
