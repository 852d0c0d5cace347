"""The allocator's functions, taken from a kernel tree with what they need, as one C unit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Literal

from pagealloc_model.allocator import layout, pressure_layout
from pagealloc_model.base.errors import PageallocError
from pagealloc_model.kernel_source.source_tree import SOURCES, SourceTree, not_found
from pagealloc_model.policy.policy import PCP_BATCH_SCALE_MAX
from pagealloc_model.recording.machine import ZONE_TYPES_MAX

Kind = Literal["macro", "type", "variable", "function"]

_OPAQUE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
_LINE = re.compile(r"(?:\\\n|[^\n])*")
_STRUCTURE = re.compile(r"[{}()\[\];]|\n[ \t]*#")
_DIRECTIVE = re.compile(r"\s*#\s*(\w+)\s*(.*)", re.DOTALL)
_WORD = re.compile(r"\b(struct|union|enum)\s+(\w+)|\b([A-Za-z_]\w*)\b(\s*\()?")
_DEFINED = re.compile(r"\bdefined\s*\(?\s*\w+\s*\)?")
_TAG_DEFINITION = re.compile(r"\b(struct|union|enum)\s+(?:__\w+\s+)*(\w+)\s*\{")
_PARAMETER_NAME = re.compile(r"(\w+)\s*(?:\[[^]]*\])?\s*$")
_ATTRIBUTES = {"__attribute__", "__aligned", "__printf", "__must_hold", "__acquires", "__releases"}
_KEYWORDS = {"if", "while", "for", "switch", "return", "sizeof", "typeof"}


@dataclass(frozen=True, kw_only=True)
class Item:
    """One top-level definition.

    Attributes:
        path: file it is in, as its tree names it.
        line: where it begins.
        kind: what it is.
        names: what it defines: identifiers, and tags as "struct zone".
        conditions: preprocessor conditions it stands under, outermost first.
        text: as in the file, comments blanked.
        words: identifiers and tags it and its conditions use; "name(" is a call.
        parameters: a function's parameter names, in order.
        is_called: it is used as "name(": a function, or a macro with parameters.
    """

    path: str
    line: int
    kind: Kind
    names: tuple[str, ...]
    conditions: tuple[str, ...]
    text: str
    words: frozenset[str]
    parameters: tuple[str, ...] = ()
    is_called: bool = False

    @property
    def end_line(self) -> int:
        """Its last line."""
        return self.line + self.text.count("\n")

    @property
    def prototype(self) -> str:
        """A function's declaration."""
        return self.text[: without_comments(self.text).index("{")].rstrip() + ";"


def without_comments(text: str, *, literals: bool = False) -> str:
    """The text with comments blanked, and what is inside literals unless they are wanted."""

    def blank(match: re.Match[str]) -> str:
        found = match[0]
        if found[0] not in "\"'":
            return re.sub(r"[^\n]", " ", found)
        return found if literals else found[0] + " " * (len(found) - 2) + found[0]

    return _OPAQUE.sub(blank, text)


def top_level_items(text: str, path: str) -> Iterator[Item]:
    """All definitions of a file, in its order; includes and prototypes are left out."""
    plain = without_comments(text)
    text = without_comments(text, literals=True)
    conditions: list[list[str]] = []  # an entry: branches so far, all but the last refused
    position = 0
    while match := re.compile(r"\S").search(plain, position):
        start = match.start()
        is_directive = plain[start] == "#"
        if is_directive:
            end = position = _LINE.match(plain, start).end()  # type: ignore[union-attr]
            directive, rest = _DIRECTIVE.match(plain[start:end]).groups()  # type: ignore[union-attr]
            condition = " ".join(rest.replace("\\\n", " ").split())
            if directive in ("ifdef", "ifndef"):
                conditions.append([f"{'!' * (directive == 'ifndef')}defined({condition})"])
            elif directive == "if":
                conditions.append([condition])
            elif directive in ("elif", "else") and conditions:
                conditions[-1].append(condition if directive == "elif" else "1")
            elif directive == "endif" and conditions:
                conditions.pop()
            if directive != "define":
                continue
            name = re.compile(r"#\s*define\s+(\w+)").match(plain, start)
            assert name is not None
            kind: Kind = "macro"
            names, parameters, body = (name[1],), (), plain[name.end() : end]
        else:
            end = position = _end_of_item(plain, start)
            body = plain[start:end]
            kind, names, parameters = _named(body)
            if not names:
                continue
        spelled = tuple(
            " && ".join([*(f"!({each})" for each in branches[:-1]), f"({branches[-1]})"])
            for branches in conditions
        )
        # names that conditions only ask for are not used
        words = words_of(body) | words_of(_DEFINED.sub("", " ".join(spelled)))
        yield Item(
            path=path,
            line=text.count("\n", 0, start) + 1,
            kind=kind,
            names=names,
            conditions=spelled,
            text=text[start:end],
            words=words if is_directive else words - set(names),
            parameters=parameters,
            is_called=body.startswith("(") if is_directive else kind == "function",
        )


def _end_of_item(plain: str, start: int) -> int:
    """Behind the `;` or the function body that ends an item."""
    depth = 0
    position = start
    is_function = False
    while match := _STRUCTURE.search(plain, position):
        char, position = match[0][-1], match.end()
        if char == "#":
            position = _LINE.match(plain, position).end()  # type: ignore[union-attr]
        elif char == "{":
            if depth == 0:
                before = plain[start : match.start()].rstrip()
                is_function = before.endswith(")") and "=" not in before
            depth += 1
        elif char in "([":
            depth += 1
        elif char in ")]}":
            depth -= 1
            if char == "}" and depth == 0 and is_function:
                return position
        elif depth == 0:
            return position
    return len(plain)


def words_of(plain: str) -> frozenset[str]:
    """Identifiers and tags in text without comments; a call "name(" counts as "name" too."""
    words = set()
    for match in _WORD.finditer(plain):
        words.add(f"{match[1]} {match[2]}" if match[1] else match[3])
        if match[4]:
            words.add(f"{match[3]}(")
    return frozenset(words)


def _named(body: str) -> tuple[Kind, tuple[str, ...], tuple[str, ...]]:
    """Kind, names and parameters of a declaration; no names for one that defines nothing."""
    brace = body.find("{")
    head = body if brace < 0 else body[:brace]
    if body.endswith("}") and brace >= 0:
        name, parameters = _function_name(head)
        return "function", (name,) if name else (), parameters
    tags = tuple(f"{match[1]} {match[2]}" for match in _TAG_DEFINITION.finditer(body))
    enumerators = tuple(
        name
        for inside in re.findall(r"\benum\b[^{;]*\{([^}]*)\}", re.sub(r"\n\s*#[^\n]*", "\n", body))
        for name in re.findall(r"(?:^|,)\s*(\w+)", inside)
    )
    if head.startswith("typedef"):
        alias = re.search(r"\(\s*\*\s*(\w+)\s*\)|(\w+)\s*(?:\[[^]]*\])?\s*;$", body)
        return "type", (*tags, *enumerators, (alias[1] or alias[2]) if alias else ""), ()
    if tags or enumerators:
        return "type", (*tags, *enumerators), ()
    made = re.match(r"(?:static\s+)?DEFINE_\w+\s*\([^;]*?(\w+)\s*\)\s*;$", body, re.DOTALL)
    if made:
        return "variable", (made[1],), ()
    if re.match(r"(struct|union|enum)\s+\w+\s*;", body):
        return "variable", (), ()
    if head.startswith("extern") or "(" in head.split("=")[0]:
        return "variable", (), ()
    first = re.match(r"[\w\s*]*?\b(\w+)\s*(?:\[[^;=]*\]|__\w+|\s)*(?:=|;|,)", body)
    return "variable", (first[1],) if first and " " in head.strip() else (), ()


def _function_name(head: str) -> tuple[str, tuple[str, ...]]:
    for match in re.finditer(r"(\w+)\s*\(", head):
        if match[1] in _ATTRIBUTES or match[1] in _KEYWORDS:
            continue
        depth, end = 1, match.end()
        while depth and end < len(head):
            depth += {"(": 1, ")": -1}.get(head[end], 0)
            end += 1
        inside = head[match.end() : end - 1]
        names = [_PARAMETER_NAME.search(each.strip()) for each in inside.split(",")]
        parameters = tuple(found[1] for found in names if found and found[1] != "void")
        return match[1], parameters
    return "", ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """What is compiled together.

    Attributes:
        name: as verdicts print it.
        homes: files whose static functions the shim names.
        sources: files of the tree that are looked into beside those of the allocator.
        before_types: files of the shim that come before the kernel's types.
        after_types: those behind the types, before the functions.
        behind_functions: those behind the functions.
        by_address: functions that others pass on without calling them.
        definitions: macros beside those of the machine's configuration.
        own_code: what the shim stands for elsewhere, and the tree's own code decides here.
        arguments: parameters of the tree's functions that the shim offers beside the allocator's.
        questions: what the model asks of the part; the shim has each one's number.
    """

    name: str
    homes: tuple[str, ...] = ("mm/page_alloc.c",)
    sources: tuple[str, ...] = ()
    before_types: tuple[str, ...] = ("basics.h", "types.h")
    after_types: tuple[str, ...] = ("machine.h",)
    behind_functions: tuple[str, ...] = ("event_log.c", "state.c", "operations.c", "sizes.c")
    by_address: tuple[str, ...] = ()
    definitions: Mapping[str, int] = field(default_factory=dict)
    own_code: frozenset[str] = frozenset()
    arguments: frozenset[str] = frozenset()
    questions: tuple[str, ...] = ()


ALLOCATION = Part(name="allocation")
"""The allocator alone."""

RECLAIM = Part(
    name="reclaim",
    homes=("mm/page_alloc.c", "mm/vmscan.c"),
    sources=(
        "include/linux/vm_event_item.h",
        "include/linux/compaction.h",
        "include/linux/swap.h",
        "mm/compaction.c",
    ),
    before_types=("basics.h", "types.h", "reclaim_types.h"),
    after_types=("machine.h", "reclaim.h"),
    behind_functions=("event_log.c", "state.c", "operations.c", "sizes.c", "reclaim.c"),
    definitions={"SHIM_RECLAIM": 1, "__KERNEL__": 1, "CONFIG_COMPACTION": 1, "CONFIG_SWAP": 1},
    own_code=frozenset({"wakeup_kswapd", "kswapd_test_hopeless", "kswapd_clear_hopeless"}),
    arguments=frozenset({"p", "zonelist", "nodemask"}),
)
"""What balances a node: kswapd, direct reclaim, and what they look at of LRU lists."""

COMPACTION = Part(
    name="compaction",
    homes=("mm/page_alloc.c", "mm/compaction.c"),
    sources=("include/linux/compaction.h", "mm/compaction.c"),
    after_types=("machine.h", "compaction.h"),
    behind_functions=("event_log.c", "state.c", "operations.c", "sizes.c", "compaction.c"),
    by_address=("compaction_alloc", "compaction_free"),
    definitions={"CONFIG_COMPACTION": 1, "CONFIG_COMPACT_UNEVICTABLE_DEFAULT": 1},
)
"""The allocator with compaction, direct and kcompactd's."""

_QUESTIONS = """
    fast_flags slow_flags page free isolate mark_movable drain drain_all
    unreserve tick grow set_high list_head list_tail move_head move_tail
"""

ELASTIC = Part(
    name="elastic replay",
    behind_functions=("event_log.c", "state.c", "operations.c", "sizes.c", "under_pressure.c"),
    definitions={"CONFIG_COMPACTION": 1, "SHIM_SHARED": 1},
    arguments=frozenset({"cpu"}),
    questions=tuple(_QUESTIONS.split()),
)
"""The allocator under the model's reclaim and compaction, which work on its pages."""


SHIM = Path(__file__).parent / "shim"

CALLED = {
    "free": ("free_frozen_pages", "free_the_page", "free_unref_page"),
    "slow_path_flags": ("alloc_flags_slowpath", "gfp_to_alloc_flags"),
    "cma_flags": ("alloc_flags_cma", "gfp_to_alloc_flags_cma"),
}
"""Names, newest first, of what the shim calls by one name."""

_JUDGED = """
    get_page_from_freelist __zone_watermark_ok zone_watermark_fast rmqueue rmqueue_pcplist
    rmqueue_buddy rmqueue_bulk nr_pcp_alloc nr_pcp_free nr_pcp_high decay_pcp_high
    refresh_cpu_vm_stats __rmqueue __rmqueue_smallest __rmqueue_claim __rmqueue_steal expand
    __free_one_page free_one_page free_pcppages_bulk free_unref_page_commit drain_pages_zone
    reserve_highatomic_pageblock unreserve_highatomic_pageblock gfp_to_alloc_flags
    alloc_flags_nofragment wake_all_kswapds pgdat_balanced zone_batchsize zone_highsize
    __setup_per_zone_wmarks setup_per_zone_lowmem_reserve refresh_zone_stat_thresholds
"""
JUDGED = tuple(_JUDGED.split())
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

_OFFERED = """
    ac alloc_flags cpu cpu_online do_pagesets force fpi_flags gfp_mask highest_zoneidx
    migratetype order page pcp pgdat preferred_zone zone
"""
OFFERED = frozenset(_OFFERED.split())
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
    batch_scale_max: int = PCP_BATCH_SCALE_MAX
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
        definitions = {name: 1 for name, is_there in present.items() if is_there} | {
            "CONFIG_PCP_BATCH_SCALE_MAX": self.batch_scale_max,
            "NODES_SHIFT": 5,
            "MAX_NUMNODES": 32,
            "MAX_NR_ZONES": 3 + optional,
            "MAX_BUDDY_ORDER": self.max_order,
            "SHIM_PAGEBLOCK_ORDER": self.pageblock_order,
            "SHIM_CPUS": self.cpus,
        }
        if self.costly_order is not None:
            definitions["PAGE_ALLOC_COSTLY_ORDER"] = self.costly_order
        return definitions


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
        variants: dict[str, list[Item]] = {}
        for item in self.items:
            for name in item.names:
                variants.setdefault(name, []).append(item)
        return variants

    def function(self, name: str) -> Item | None:
        """The function of a name, None if there is none."""
        variants = [each for each in self.by_name.get(name, ()) if each.kind == "function"]
        return variants[0] if variants else None


def _shim_text(names: Iterable[str]) -> str:
    return "".join(f'#line 1 "shim/{name}"\n{(SHIM / name).read_text()}' for name in names)


def extract(index: TreeIndex, configuration: Configuration) -> Unit:
    """The unit for a tree's definitions."""
    part = index.part
    definitions = configuration.definitions() | part.definitions
    defined: set[str] = set()
    words: frozenset[str] = frozenset()
    for file in (*part.before_types, *part.after_types, *part.behind_functions):
        text = (SHIM / file).read_text()
        defined |= {name for item in top_level_items(text, file) for name in item.names}
        words |= words_of(without_comments(text))
    defined = defined - part.own_code | definitions.keys()
    calls, missing, changed = _calls(index, words)
    if missing or changed:
        lacking = not_found(index.tree, missing)
        listed = "; ".join([*([f"not found: {lacking}"] if lacking else []), *changed])
        raise KernelSourceError(f"{index.tree.path}: {listed}")
    words |= {f"{name}(" for name in part.by_address}
    called = filter(None, (index.function(call.split("(")[0]) for call in calls.values()))
    items, used = _closure(index, words, defined, called)
    traces = sorted(
        word.removesuffix("(")
        for word in used
        if word.startswith("trace_")
        and word.endswith("(")
        and word.removesuffix("(") not in defined | index.by_name.keys()
    )
    words_of_layout = _numbers(layout) | {"ZONE_TYPES_MAX": ZONE_TYPES_MAX}
    parts = [
        *(f"#define {name} {value}\n" for name, value in definitions.items()),
        *(f"#define AT_{name} ({value})\n" for name, value in words_of_layout.items()),
        *(f"#define PR_{name} ({value})\n" for name, value in _numbers(pressure_layout).items()),
        *(f"#define ASK_{name.upper()} {number}\n" for number, name in enumerate(part.questions)),
        *(f"#define {name} 1\n" for name in sorted(words) if _tree_has(index, name)),
        _shim_text(part.before_types),
        *(_placed(item, item.text) for item in items if item.kind != "function"),
        _shim_text(part.after_types),
        *(f"#define {name}(...) ((void)0)\n" for name in traces),
        *(_placed(item, item.prototype) for item in items if item.kind == "function"),
        *(_placed(item, item.text) for item in items if item.kind == "function"),
        *(f"#define CALL_{name} {call}\n" for name, call in calls.items()),
        _shim_text(part.behind_functions),
    ]
    return Unit(text="".join(parts), items=tuple(items))


def _numbers(module: ModuleType) -> dict[str, int]:
    return {
        name: value
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, int) and not isinstance(value, bool)
    }


def _tree_has(index: TreeIndex, word: str) -> bool:
    """Whether HAS_name is about a name, a struct's field or a function's word that the tree has."""
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
    """C text of each call that the shim makes by CALL_name, and what stands in the way."""
    calls: dict[str, str] = {}
    missing, changed = [], []
    for name in sorted(each.removeprefix("CALL_") for each in words if each.startswith("CALL_")):
        names = CALLED.get(name, (name,))
        function = next((found for each in names if (found := index.function(each))), None)
        if function is None:
            missing.append(names[0])
            continue
        arguments = [ARGUMENTS.get(each, each) for each in function.parameters]
        where = f"{function.names[0]}() at {function.path}:{function.line}"
        offered = OFFERED | index.part.arguments
        changed += [
            f"{where} has a parameter {each!r}" for each in arguments if each not in offered
        ]
        calls[name] = f"{function.names[0]}({', '.join(arguments)})"
    return calls, missing, changed


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


def _placed(item: Item, text: str) -> str:
    """An item as its compiler shall see it: under its conditions, at its place in the tree."""
    opened = "".join(f"#if {condition}\n" for condition in item.conditions)
    closed = "#endif\n" * len(item.conditions)
    return f'{opened}#line {item.line} "{item.path}"\n{text}\n{closed}'
