"""Why a request fails, or is served, as memory stands: zone by zone, by the kernel's own tests.

Every verdict is the model's: `zone_verdicts` asks the functions that a replay goes through, on a
state that holds the zones' counts and no page.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator import zone_verdicts as verdict
from pagealloc_model.allocator.state import State, make_state, with_pressure
from pagealloc_model.base.errors import PolicyError, UsageError
from pagealloc_model.base.table import Table, word_columns
from pagealloc_model.base.text import NOT_AVAILABLE, TERMINAL, count_of, paragraph
from pagealloc_model.policy.assumptions import Assumptions
from pagealloc_model.policy.kernel_rules import KernelRules, preset_names
from pagealloc_model.policy.policy import Policy, policy_settings
from pagealloc_model.predicted.demand.rows import highest_type_by_gfp
from pagealloc_model.recording.machine import (
    DEFAULT_MIGRATETYPES,
    FALLING_BACK,
    MIGRATETYPES,
    Machine,
    Zone,
)
from pagealloc_model.recording.memory_state import open_memory_state
from pagealloc_model.recording.proc.mem_info import (
    LETTERS,
    ZONE_NAMES,
    MemoryState,
    Request,
    ZoneMemory,
)
from pagealloc_model.recording.trace.formats import gfp_word

if TYPE_CHECKING:
    import pandas as pd

READ_FIELDS = (
    "min_free_kbytes",
    "watermark_scale_factor",
    "lowmem_reserve_ratio",
    "highatomic_gate_order",
    "highatomic_fastpath",
    "extfrag_threshold",
    "compact_gap",
    "costly_order",
)
"""Fields of a policy that can change a verdict on memory as it stands."""
_ATOMIC, _MAY_SLEEP = "GFP_ATOMIC", "GFP_KERNEL"
_HARDWALL = 0x100000
_HIGH_ZONES = {"HighMem", "Movable", "Device"}
_KERNEL_RECLAIM = at.GFP_DIRECT_RECLAIM | at.GFP_KSWAPD_RECLAIM | pr.GFP_IO | 0x80


@dataclass(frozen=True, kw_only=True)
class ZoneVerdict:
    """What a zone answers a request, pages.

    Attributes:
        zone: its memory.
        place: in the zonelist, from 1 on; 0 if the request may not use it.
        passes: it would serve the request at the min mark, the slow path's.
        passes_low: it would at the first attempt, at the low mark.
        usable: free pages that count for this request: the order, CMA and the reserve left out.
        needed: pages of the min mark that this request must leave.
        reserve: lowmem_reserve against it.
        above: pages above both, at most 0 where it fails for want of memory that it may take.
        has_block: a free block of the order or above is of a type that it may take.
        compaction: "suitable", "not suitable" or "not needed".
        index: fragmentation index in thousandths, -1000 with a free block of any type.
    """

    zone: ZoneMemory
    place: int
    passes: bool
    passes_low: bool
    usable: int
    needed: int
    reserve: int
    above: int
    has_block: bool
    compaction: str
    index: int

    @property
    def protected(self) -> int:
        """Pages above its mark that lowmem_reserve keeps from the request, if that shuts it out."""
        return max(self.above + self.reserve, 0) if self.above <= 0 else 0

    @property
    def why(self) -> str:
        """Why the zone does not serve the request, "" if it does."""
        if not self.place or self.passes:
            return "" if self.place else "not in the zonelist"
        lacks = "lowmem_reserve" if self.protected else "too little memory"
        return lacks if self.above <= 0 else "no block"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The verdicts on one request under one policy.

    Attributes:
        order: the request's.
        zones: by place in the zonelist, those outside it last.
        may_compact: its gfp flags allow compaction.
        types: names of the types that it may take blocks of.
    """

    order: int
    zones: tuple[ZoneVerdict, ...]
    may_compact: bool
    types: tuple[str, ...]

    @property
    def asked(self) -> tuple[ZoneVerdict, ...]:
        """The zones that the request may use, in its order."""
        return tuple(zone for zone in self.zones if zone.place)

    @property
    def serving(self) -> ZoneVerdict | None:
        """The first zone that would serve it, None if none would."""
        return next((zone for zone in self.asked if zone.passes), None)


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Why a request fails, or would be served.

    Attributes:
        state: memory as read.
        request: what was asked for; of the report, or ours.
        bits: its gfp word, in bits of 6.1 and later (S2.3).
        unknown_flags: names of gfp flags whose bits are not known and are left out.
        rules: the kernel's.
        rules_note: how well they fit.
        answer: the verdicts.
        changes: what was tried instead, by name, and its verdicts.
        unseen: memory that the request may use and that the report leaves out, in words.
        notes: what the text lacks and what that means.
    """

    state: MemoryState
    request: Request
    bits: int
    unknown_flags: tuple[str, ...]
    rules: KernelRules
    rules_note: str
    answer: Answer
    changes: Mapping[str, Answer] = field(default_factory=dict)
    unseen: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def zones(self) -> pd.DataFrame:
        """A row for each zone: node, zone, and the numbers of `ZoneVerdict`, pages."""
        import pandas as pd

        names = ("place", "passes", "passes_low", "usable", "needed", "reserve", "above")
        names += ("has_block", "compaction", "index", "why")
        rows = [
            {"node": each.zone.node, "zone": each.zone.name, "free": each.zone.free}
            | {name: getattr(each, name) for name in names}
            for each in self.answer.zones
        ]
        return pd.DataFrame(rows)

    @property
    def free_blocks(self) -> pd.DataFrame:
        """Free blocks: node, zone, order, migratetype, blocks, pages, may_take.

        Where the text has no counts by type, `migratetype` has the letters of all types there.
        """
        import pandas as pd

        rows = []
        for each in self.answer.zones:
            for order, migratetype, blocks, may_take in _blocks(each.zone, self.answer.types):
                rows.append(
                    {
                        "node": each.zone.node,
                        "zone": each.zone.name,
                        "order": order,
                        "migratetype": migratetype,
                        "blocks": blocks,
                        "pages": blocks << order,
                        "may_take": may_take and each.place > 0,
                    }
                )
        columns = ["node", "zone", "order", "migratetype", "blocks", "pages", "may_take"]
        return pd.DataFrame(rows, columns=columns)

    @property
    def alternatives(self) -> pd.DataFrame:
        """A row for each change tried: change, served, zone (the first that serves), above."""
        import pandas as pd

        rows = []
        for name, answer in self.changes.items():
            by = answer.serving
            best = by or max(answer.asked, key=lambda each: each.above, default=None)
            rows.append(
                {
                    "change": name,
                    "served": by is not None,
                    "zone": self.zone_title(by) if by else "",
                    "above": best.above if best else None,
                }
            )
        return pd.DataFrame(rows, columns=["change", "served", "zone", "above"])

    @cached_property
    def sentence(self) -> str:
        """Why the request failed, in one sentence."""
        asked, order = self.answer.asked, self.request.order
        if not asked:
            return "No zone that this request may use has memory."
        by = self.answer.serving
        if by is not None:
            verb = "is" if self.request.what == "asked for" else "would now be"
            after = "; memory came free between the failure and the report, or went to others"
            after = "" if self.request.what == "asked for" else after
            return (
                f"Order {order} {verb} served by zone {self.zone_title(by)}: "
                f"{_pages(by.above)} above its min mark"
                + (f" and a free block of order {order} or above{after}." if order else f"{after}.")
            )
        shut = [each for each in asked if each.protected]
        short = [each for each in asked if each.above <= 0 and not each.protected]
        lacking = [each for each in asked if each.above > 0]
        fails = "would fail" if self.request.what == "asked for" else "failed"
        parts = []
        if lacking:
            parts.append(
                f"{self._titles(lacking)} {_have(lacking, 'has', 'have')} free memory "
                f"({_pages(max(each.above for each in lacking))} above the min mark) but no free "
                f"block of order {order} or above that this request may take{self._held(lacking)}"
            )
        if short:
            worst = max(short, key=lambda each: each.above)
            parts.append(
                f"{self._titles(short)} {_have(short, 'is', 'are')} below the mark that holds for "
                f"it ({_pages(1 - worst.above)} short{' at best' if len(short) > 1 else ''}"
                f"{self._left_out(short)})"
            )
        parts += [
            f"{self.zone_title(each)} has {_pages(each.protected)} above its min mark, but its "
            f"lowmem_reserve keeps {each.reserve:,} from requests that other zones may serve"
            for each in shut
        ]
        reasons = {"fragmentation": lacking, "lack of memory": short, "lowmem_reserve": shut}
        what = " and ".join(reason for reason, zones in reasons.items() if zones)
        if self.unseen:
            parts.append(f"{' and '.join(self.unseen)}, not in the report, might serve it")
        return f"Order {order} {fails} for {what}: {'; '.join(parts)}."

    def _left_out(self, short: Sequence[ZoneVerdict]) -> str:
        """Pages of the highatomic reserve and CMA without which the zones are short."""
        said = ""
        for each in short:
            pages = each.zone.free - each.usable - ((1 << self.request.order) - 1)
            is_cma = each.zone.free_cma and "CMA" not in self.answer.types
            what = "CMA" if is_cma else "the highatomic reserve"
            if each.above + pages > 0:
                said += f"; {pages:,} of {what} in {self.zone_title(each)} are not for it"
        return said

    def _held(self, lacking: Sequence[ZoneVerdict]) -> str:
        """Which blocks of the order are there and of no use."""
        held: dict[str, int] = {}
        for each in lacking:
            for order, migratetype, blocks, may_take in _blocks(each.zone, self.answer.types):
                if order >= self.request.order and not may_take:
                    held[migratetype] = held.get(migratetype, 0) + blocks
        if not held:
            return ""
        return "; those there are " + " and ".join(
            f"{blocks} of {name}" for name, blocks in held.items()
        )

    def zone_title(self, each: ZoneVerdict) -> str:
        """A zone as sentences name it, its node added where there are others than node 0."""
        is_plain = {zone.node for zone in self.state.zones} == {0}
        return each.zone.name if is_plain else f"{each.zone.name} of node {each.zone.node}"

    def _titles(self, zones: Sequence[ZoneVerdict]) -> str:
        *first, last = [self.zone_title(each) for each in zones]
        return f"{', '.join(first)} and {last}" if first else last

    def to_json(self) -> dict[str, object]:
        """What `pagealloc explain --json` prints; tables are lists of rows."""
        request = self.request
        return {
            "sentence": self.sentence,
            "source": self.state.source,
            "release": self.state.release or None,
            "rules": self.rules.spelled(),
            "page_kb": self.state.page_kb,
            "request": {
                "what": request.what,
                "order": request.order,
                "gfp": request.gfp,
                "comm": request.comm or None,
                "in_interrupt": request.in_interrupt,
            },
            "zones": self.zones,
            "free_blocks": self.free_blocks,
            "alternatives": self.alternatives,
            "unseen": list(self.unseen),
            "notes": list(self.notes),
        }

    def to_text(self, width: int = TERMINAL) -> str:
        """The answer in one screen."""
        return "\n".join(self._lines(width))

    __str__ = to_text

    def _lines(self, width: int) -> list[str]:
        request, state = self.request, self.state
        lines = [paragraph(self.sentence, width=width), ""]
        kb = state.page_kb << request.order
        who = f" by {request.comm}" if request.comm else ""
        context = {True: ", in an interrupt", False: ", in a task", None: ""}
        text = (
            f"order {request.order} ({kb} KiB), {request.gfp}{who}{context[request.in_interrupt]}"
            f"{self._confined()}"
        )
        lines.append(paragraph(text, width=width, label="request:  "))
        lines.append(
            paragraph(
                f"{state.release or 'release not in the text'}; {self.rules_note}; pages of "
                f"{state.page_kb} KiB"
                + (f"; report {state.number} of {state.reports}" if state.reports > 1 else ""),
                width=width,
                label="kernel:   ",
            )
        )
        lines += ["", *self._zone_lines(width), "", *self._block_lines(width), ""]
        lines += self._slow_path_lines(width)
        if self.changes:
            lines += ["", "What the same memory says to another request or setting:"]
            for name, answer in self.changes.items():
                lines.append(f"  {name}: {self._outcome(answer)}")
        lines += ["", *(paragraph(note, width=width, label="note: ") for note in self.notes)]
        while not lines[-1]:
            lines.pop()
        return lines

    def _confined(self) -> str:
        """Which nodes the request is bound to, "" if none is known that it may not use."""
        request = self.request
        cpuset = request.cpuset_nodes if _is_in_cpuset(request, self.bits) else None
        for what, nodes in (("memory policy", request.nodes), ("cpuset", cpuset)):
            if nodes and _others(nodes, self.state.zones):
                return f", bound to {_nodes(nodes)} by its {what}"
        return ""

    def _outcome(self, answer: Answer) -> str:
        if (by := answer.serving) is not None:
            return f"served by {self.zone_title(by)}, {_pages(by.above)} above the mark"
        able = [each for each in answer.asked if each.compaction == "suitable"]
        if answer.may_compact and able and not self.answer.may_compact:
            return f"not at once, but compaction would be tried in {self._titles(able)}"
        reasons = dict.fromkeys(each.why for each in answer.asked)
        return f"not served ({' and '.join(reasons) or 'no zone'})"

    def _zone_lines(self, width: int) -> list[str]:
        """Zones in the zonelist's order: the marks that hold for the request."""
        rows = []
        for each in self.answer.zones:
            words = each.why or "serves it"
            numbers: list[str | float] = [each.zone.free, *[NOT_AVAILABLE] * 4]
            if each.place:
                left_out = each.zone.free - each.usable
                numbers = [each.zone.free, left_out, each.needed, each.reserve, each.above]
            rows.append([self.zone_title(each), *map(str, numbers), words])
        columns = word_columns("zone")
        columns += ["free", "not for it", "min mark", "reserve", "above", "verdict"]
        return Table(columns, rows, grouped=False).to_text(width).splitlines()

    def _block_lines(self, width: int) -> list[str]:
        """Free blocks that are large enough, by zone."""
        order = self.request.order
        lines = [
            f"Free blocks of order {order} and above (types it may take: "
            f"{', '.join(self.answer.types)}):"
        ]
        for each in self.answer.asked:
            zone = each.zone
            if not zone.buddies:
                lines.append(f"  {self.zone_title(each)}: {NOT_AVAILABLE}")
                continue
            found: dict[int, list[str]] = {}
            for size, name, blocks, may_take in _blocks(zone, self.answer.types):
                if size >= order:
                    words = f"{blocks} {name}{'' if may_take else ' (not for it)'}"
                    found.setdefault(size, []).append(words)
            words = "; ".join(f"order {size}: {', '.join(them)}" for size, them in found.items())
            if not found:
                largest = max(
                    (size for size, count in enumerate(zone.buddies) if count), default=-1
                )
                words = f"none; the largest is of order {largest}" if largest >= 0 else "none"
            lines.append(paragraph(words, width=width, label=f"  {self.zone_title(each)}: "))
        return lines

    def _slow_path_lines(self, width: int) -> list[str]:
        """What the slow path may do for the request."""
        bits, state = self.bits, self.state
        woken = "is woken" if bits & at.GFP_KSWAPD_RECLAIM else "is not woken"
        if state.hopeless:
            woken += " but has given up (all_unreclaimable)"
        reclaim = "no: the request may not sleep"
        if bits & at.GFP_DIRECT_RECLAIM:
            pages = [each.zone.file_pages for each in self.answer.asked]
            known = [count for count in pages if count is not None]
            reclaim = "yes"
            if known:
                reclaim += f", {_pages(sum(known))} of files to reclaim"
            if state.swap_kb is not None:
                reclaim += f", {state.swap_kb // state.page_kb} pages of free swap"
        compaction = "no: its flags forbid it" if self.request.order else "no: order 0"
        if self.answer.may_compact and self.answer.serving is not None:
            compaction = "not needed"
        elif self.answer.may_compact:
            compaction = "; ".join(
                f"{self.zone_title(each)}: {each.compaction}, fragmentation index "
                + ("-1 (a block is free)" if each.index < 0 else f"{each.index / 1000:.3f}")
                for each in self.answer.asked
            )
            compaction += f"; whether it was deferred: {NOT_AVAILABLE}"
            if state.compact_stall:
                compaction += f" ({state.compact_fail} of {state.compact_stall} runs were in vain)"
        return [
            paragraph(text, width=width, label=label)
            for label, text in (
                ("kswapd:         ", woken),
                ("direct reclaim: ", reclaim),
                ("compaction:     ", compaction),
            )
        ]


def _pages(pages: int) -> str:
    return count_of(pages, "page")


def _have(zones: Collection[object], one: str, more: str) -> str:
    return one if len(zones) == 1 else more


def _blocks(zone: ZoneMemory, may_take: Sequence[str]) -> list[tuple[int, str, int, bool]]:
    """Order, type or types, free blocks, and whether a request may take one of them."""
    rows = []
    for order, count in enumerate(zone.buddies):
        if zone.by_type:
            for name, counts in zone.by_type.items():
                if counts[order]:
                    rows.append((order, name, counts[order], name in may_take))
        elif count:
            letters = zone.types[order]
            names = [LETTERS.get(letter, letter) for letter in letters or ""]
            can = letters is None or any(name in may_take for name in names)
            rows.append((order, "/".join(names) or "of unknown type", count, can))
    return rows


def explain(
    source: str | Path | MemoryState,
    *,
    order: int | None = None,
    gfp: str | None = None,
    policy: Policy | None = None,
    rules: KernelRules | str | None = None,
    release: str | None = None,
    node: int | None = None,
    number: int = 1,
) -> Explanation:
    """Say why a request fails, or would be served, by copies of /proc or a report in a log.

    Args:
        source: a log with a page allocation failure or an OOM report, "-" for standard input, a
            directory with copies of /proc, a snapshot, a recording or a sosreport; `/proc` for
            this machine now.
        order: asked for; None: the report's, 0 where there is none.
        gfp: flags such as "GFP_KERNEL|__GFP_NORETRY"; None: the report's, else GFP_KERNEL.
        policy: settings tried instead, in `changes`.
        rules: of the kernel; None: by its release.
        release: of the kernel, where the text does not say.
        node: whose zones are tried first; None: the first one that the request may use.
        number: which report of a log, from 1 on.

    Raises:
        RecordingError: the source cannot be used.
        UsageError: an order, flag or number that cannot be.
        PolicyError: a policy field that memory as it stands says nothing about.
    """
    state = source
    if not isinstance(state, MemoryState):
        state = open_memory_state(state, number=number)
    if release is not None:
        state = replace(state, release=release)
    request = state.request or Request(what="asked for", order=0, gfp=_MAY_SLEEP)
    if order is not None or gfp is not None:
        asked = {"what": "asked for", "comm": "", "in_interrupt": None}
        request = replace(
            request,
            order=request.order if order is None else order,
            gfp=request.gfp if gfp is None else gfp,
            **asked,  # type: ignore[arg-type]
        )
    orders = max(len(zone.buddies) for zone in state.zones)
    if not 0 <= request.order < max(orders, 1):
        raise UsageError(f"order {request.order}: this kernel has orders 0 to {orders - 1}")
    chosen, rules_note = _rules(rules, state.release)
    bits, unknown = gfp_word(request.gfp, _version(state.release))
    if policy is not None and (idle := policy.given().keys() - set(READ_FIELDS)):
        raise PolicyError(
            f"policy {', '.join(sorted(idle))}: changes nothing for memory as it stands; fields "
            f"that do: {', '.join(READ_FIELDS)}"
        )
    judge = _Judge(state, request, chosen, node)
    answer = judge.answer(request.order, bits, Policy())
    if node is None and bits & at.GFP_THISNODE and state.request is request:
        # It failed on one node, which the report does not name: the first that cannot serve it.
        for other in judge.machine.nodes[1:] if answer.serving is not None else ():
            of_node = _Judge(state, request, chosen, other)
            if (tried := of_node.answer(request.order, bits, Policy())).serving is None:
                judge, answer = of_node, tried
                judge.notes.append(
                    f"__GFP_THISNODE asks one node, which the report does not name: node {other} "
                    "is taken, the first that cannot serve it (--node)"
                )
                break
    judge.note_unseen(bits)
    changes = judge.changes(bits, answer, policy)
    notes = [*state.notes, *judge.notes]
    if unknown:
        notes.append(f"gfp flags without a known meaning are left out: {', '.join(unknown)}")
    return Explanation(
        state=state,
        request=request,
        bits=bits,
        unknown_flags=unknown,
        rules=chosen,
        rules_note=rules_note,
        answer=answer,
        changes=changes,
        unseen=tuple(judge.unseen),
        notes=tuple(notes),
    )


def _version(release: str) -> tuple[int, int] | None:
    series = KernelRules.series(release)
    return tuple(map(int, series.split("."))) if series else None  # type: ignore[return-value]


def _rules(rules: KernelRules | str | None, release: str) -> tuple[KernelRules, str]:
    """Rules as asked for or by the release; the oldest ones for kernels older than these."""
    if isinstance(rules, KernelRules):
        return rules, f"rules {rules.spelled()}"
    if rules:
        return KernelRules.named(rules), f"rules {rules}"
    try:
        return KernelRules.for_release(release)
    except PolicyError:
        oldest = preset_names()[0]
        return KernelRules.preset(oldest), f"older than every preset, rules {oldest} assumed"


class _Judge:
    """Asks the model about a state's zones."""

    def __init__(
        self, state: MemoryState, request: Request, rules: KernelRules, node: int | None
    ) -> None:
        self.state, self.request, self.rules = state, request, rules
        self.notes: list[str] = []
        self.unseen: list[str] = []
        self.has_cma = any(
            zone.free_cma or "CMA" in zone.by_type or any("C" in (t or "") for t in zone.types)
            for zone in state.zones
        )
        self._types = state.zone_types or _zone_types(state.zones, bool(state.high_pages))
        self.machine = self._machine()
        nodes = self.machine.nodes
        if node is None:
            allowed = (request.nodes or set(nodes)) & (request.cpuset_nodes or set(nodes))
            node = min(allowed & set(nodes), default=nodes[0])
            if len(nodes) > 1:
                self.notes.append(
                    f"the report does not say which node's zones come first: node {node} is "
                    "taken (--node)"
                )
        if node not in nodes:
            raise UsageError(f"node {node}: there are nodes {', '.join(map(str, nodes))}")
        self.cpu = nodes.index(node)
        self._reserves = {place: self._reserve(zone) for place, zone in enumerate(state.zones)}

    def _machine(self) -> Machine:
        """A machine of these zones, each of one pageblock: no page is placed."""
        state = self.state
        names = self._types
        orders = max(len(zone.buddies) for zone in state.zones)
        block = min(state.pageblock_order or 9, max(orders - 1, 1))
        by_place = {(zone.node, zone.name): zone for zone in state.zones}
        nodes = sorted({zone.node for zone in state.zones})
        zones, start = [], 0
        if any(zone.managed is None for zone in state.zones):
            self.notes.append("this kernel does not print managed pages: free ones stand for them")
        for node in nodes:
            for name in names:
                zone = by_place.get((node, name))
                size = 1 << block if zone else 0
                boost = (zone.boost or 0) if zone else 0
                marks = {
                    mark: max(getattr(zone, mark) - boost, 0) if zone else 0
                    for mark in ("min", "low", "high")
                }
                managed = 0
                if zone:
                    managed = max(zone.managed if zone.managed is not None else zone.free, 1)
                zones.append(
                    Zone(
                        node=node,
                        name=name,
                        start_pfn=start,
                        spanned=size,
                        present=size,
                        managed=managed,
                        boost=boost,
                        lowmem_reserve=zone.lowmem_reserve if zone else (),
                        **marks,
                    )
                )
                start += size
        types = MIGRATETYPES if self.has_cma else DEFAULT_MIGRATETYPES
        return Machine(
            zones=tuple(zones),
            nr_cpus=len(nodes),
            cpu_nodes=tuple(nodes),
            pageblock_order=block,
            max_order=max(orders - 1, 1),
            migratetypes=types,
        )

    def _reserve(self, zone: ZoneMemory) -> tuple[int, int]:
        """Pages of reserved blocks, and the free ones of them, bounded where they are not printed.

        Free pages of the orders whose letters have H are the most that can be free there.
        """
        most = sum(
            count << order
            for order, count in enumerate(zone.buddies)
            if "H" in (zone.types[order] or "")
        )
        reserved = zone.reserved_highatomic
        if reserved is None:
            if most:
                self._note(
                    "reserved_highatomic is not in the text: free pages of orders with type H "
                    "stand for it"
                )
            reserved = most
        if zone.free_cma is None and any("C" in (letters or "") for letters in zone.types):
            self._note("free_cma is not in the text: free CMA pages count as usable by anybody")
        free = zone.free_highatomic
        if free is None:
            free = min(reserved, most)
            least = sum(
                count << order
                for order, count in enumerate(zone.buddies)
                if zone.types[order] == "H"
            )
            if least < free and self.rules.watermark_subtracts_free:
                self._note(
                    f"free_highatomic is not in the text: between {least} and {free} pages in "
                    f"zone {zone.name}, {free} taken"
                )
        return reserved, free

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def answer(self, order: int, bits: int, policy: Policy) -> Answer:
        """Verdicts of all zones on an order and a gfp word."""
        state = self._filled(policy)
        machine = state.machine
        verdicts = np.zeros((len(machine.zones), verdict.VERDICT_WORDS), np.int64)
        _, later, may_compact = verdict.zone_verdicts(
            state.arrays(),
            self.cpu,
            order,
            bits >> 3 & 3 if bits >> 3 & 3 < at.PCP_TYPES else at.UNMOVABLE,
            int(highest_type_by_gfp(machine)[bits & 15]),
            bits,
            verdicts,
        )
        rows = []
        for zone in self.state.zones:
            row = verdicts[machine.zone_index(zone.node, zone.name)]
            is_allowed = self._is_allowed(zone.node, bits, later)
            rows.append(
                ZoneVerdict(
                    zone=zone,
                    place=int(row[verdict.PLACE]) if is_allowed else 0,
                    passes=bool(row[verdict.PASSES_MIN]) and is_allowed,
                    passes_low=bool(row[verdict.PASSES_LOW]) and is_allowed,
                    usable=int(row[verdict.USABLE]),
                    needed=int(row[verdict.NEEDED]),
                    reserve=int(row[verdict.RESERVE]),
                    above=int(row[verdict.ABOVE]),
                    has_block=bool(row[verdict.HAS_BUDDY]),
                    compaction={pr.SUCCESS: "not needed", pr.CONTINUE: "suitable"}.get(
                        int(row[verdict.COMPACTION]), "not suitable"
                    ),
                    index=int(row[verdict.INDEX]),
                )
            )
        rows.sort(key=lambda each: (not each.place, each.place))
        types = FALLING_BACK
        if later & at.ALLOC_HIGHATOMIC:
            types += ("HighAtomic",)
        if later & at.ALLOC_CMA:
            types += ("CMA",)
        return Answer(order=order, zones=tuple(rows), may_compact=bool(may_compact), types=types)

    def _is_allowed(self, node: int, bits: int, flags: int) -> bool:
        """False for a node that the memory policy or the cpuset forbids later attempts (S2.6)."""
        request = self.request
        if flags & at.ALLOC_NON_BLOCK and flags & at.ALLOC_MIN_RESERVE:
            return True
        if request.nodes is not None and node not in request.nodes:
            return False
        cpuset = request.cpuset_nodes if _is_in_cpuset(request, bits) else None
        return cpuset is None or node in cpuset

    def note_unseen(self, bits: int) -> None:
        """Find memory that the request may use and that the report leaves out (__show_mem())."""
        report, request = self.state.request, self.request
        if report is None:
            return
        types = self._types
        of_gfp = highest_type_by_gfp(self.machine)
        word, _ = gfp_word(report.gfp, _version(self.state.release))
        own, highest = int(of_gfp[word & 15]), int(of_gfp[bits & 15])
        above = set(types[own + 1 : highest + 1])
        if above <= _HIGH_ZONES and not self.state.high_pages:
            above = set()
        if above and not any(types.index(zone.name) > own for zone in self.state.zones):
            self.unseen += [name for name in types if name in above]
            self._note(
                f"the report has only the zones that its own request may use: to {types[own]}"
            )
        nodes = request.cpuset_nodes
        if nodes and request.nodes is None and not _is_in_cpuset(request, bits):
            seen = {zone.node for zone in self.state.zones}
            if unseen := _others(nodes, self.state.zones) - seen:
                self.unseen.append(_nodes(unseen))
                self._note(
                    "the report has only the nodes of the task's cpuset, to which requests for the "
                    "kernel's own memory (without __GFP_HARDWALL) are not bound"
                )

    def _filled(self, policy: Policy) -> State:
        """A state with the zones' counts, as they are under a policy."""
        kbytes = policy.min_free_kbytes
        for_state = policy
        if kbytes is not None:  # the model's pages have 4 KiB
            for_state = replace(policy, min_free_kbytes=kbytes * 4 // self.state.page_kb)
        assumptions = Assumptions(counters="exact")
        made = make_state(self.machine, self.rules, for_state, assumptions, log_rows=1)
        made = with_pressure(made, self.rules, for_state, assumptions)
        types = made.machine.migratetypes
        gives_back = policy.highatomic_gate_order is not None and policy.highatomic_gate_order > 0
        for place, zone in enumerate(self.state.zones):
            region = made.zone_region(made.machine.zone_index(zone.node, zone.name))
            reserved, free = self._reserves[place]
            region[at.ZONE_FREE] = zone.free
            region[at.ZONE_FREE_CMA] = zone.free_cma or 0
            region[at.ZONE_RESERVED_HIGHATOMIC] = 0 if gives_back else reserved
            region[at.ZONE_FREE_HIGHATOMIC] = 0 if gives_back else free
            lists = region[at.ZONE_LISTS :].reshape(at.ORDERS, at.MIGRATETYPES, at.LIST_WORDS)
            for order in range(len(zone.buddies)):
                for name, blocks in _listed(zone, order).items():
                    if name == "HighAtomic" and gives_back:
                        name = "Movable"
                    if name in types:
                        words = lists[order, types.index(name)]
                        words[at.HEAD] = 0
                        words[at.ENTRIES] += blocks
        return made

    def changes(self, bits: int, answer: Answer, policy: Policy | None) -> dict[str, Answer]:
        """What else the same memory would serve, if it does not serve the request."""
        tried: dict[str, Answer] = {}
        order = self.request.order
        if policy is not None:
            tried[f"--patch {policy}"] = self.answer(order, bits, policy)
        if answer.serving is not None or not answer.asked:
            return tried
        for smaller in range(order - 1, -1, -1):
            other = self.answer(smaller, bits, Policy())
            if other.serving is not None or smaller == 0:
                tried[f"order {smaller} instead"] = other
                break
        if not bits & at.GFP_DIRECT_RECLAIM:
            name = "with __GFP_DIRECT_RECLAIM, __GFP_IO and __GFP_FS (GFP_KERNEL)"
            tried[name] = self.answer(order, bits & ~at.GFP_HIGH | _KERNEL_RECLAIM, Policy())
        else:
            word, _ = gfp_word(_ATOMIC, _version(self.state.release))
            kept = bits & ~(at.GFP_DIRECT_RECLAIM | pr.GFP_IO | 0x80)
            tried["GFP_ATOMIC, which may use reserves"] = self.answer(order, kept | word, Policy())
        if any(reserved for reserved, _ in self._reserves.values()) and order > 0:
            gate = Policy(highatomic_gate_order=3)
            name = "--patch highatomic_gate_order=3, if orders up to 3 made the reserve"
            tried[name] = self.answer(order, bits, gate)
        if any(each.above <= 0 and each.has_block for each in answer.asked):
            found = self._largest_min_free(order, bits)
            if found is not None:
                kbytes, other = found
                tried[f"--patch min_free_kbytes={kbytes} or less"] = other
        return tried

    def _largest_min_free(self, order: int, bits: int) -> tuple[int, Answer] | None:
        """The largest min_free_kbytes at which this memory serves the request, None if none."""
        about = policy_settings()["min_free_kbytes"].metadata
        low, high = about["minimum"], about["maximum"]
        best: tuple[int, Answer] | None = None
        while low <= high:
            middle = (low + high) // 2
            tried = self.answer(order, bits, Policy(min_free_kbytes=middle))
            if tried.serving is not None:
                best, low = (middle, tried), middle + 1
            else:
                high = middle - 1
        return best


def _listed(zone: ZoneMemory, order: int) -> dict[str, int]:
    """Free blocks by type; where only letters say, all of them count as the first letter's."""
    if zone.by_type:
        return {name: counts[order] for name, counts in zone.by_type.items() if counts[order]}
    count = zone.buddies[order]
    if not count:
        return {}
    letters = zone.types[order]
    names = [LETTERS[letter] for letter in letters or "" if letter in LETTERS]
    if letters is None:
        names = ["Unmovable"]
    return {name: count if place == 0 else 0 for place, name in enumerate(names)}


def _is_in_cpuset(request: Request, bits: int) -> bool:
    """cpuset_node_allowed(): only requests for user memory, of a task, keep to its cpuset.

    A cpuset of version 1 that is a wall for the kernel's requests, too, is not told by a report.
    """
    return bool(bits & _HARDWALL) and not request.in_interrupt


def _others(nodes: Collection[int], zones: Sequence[ZoneMemory]) -> set[int]:
    """Nodes that there are beside these: of the zones, or of a lower number."""
    return set(range(max({zone.node for zone in zones}.union(nodes)))).difference(nodes)


def _nodes(nodes: Collection[int]) -> str:
    return f"node{_have(nodes, '', 's')} {', '.join(map(str, sorted(nodes)))}"


def _zone_types(zones: Sequence[ZoneMemory], has_high: bool) -> tuple[str, ...]:
    """The kernel's zone types: those seen, Normal, Movable, and as many as lowmem_reserve has.

    Where others are missing, they are taken from Device, DMA32, DMA and HighMem, in this order;
    HighMem is the first where there is such memory in no zone that is seen.
    """
    seen = {zone.name for zone in zones} | {"Normal", "Movable"}
    wanted = max((len(zone.lowmem_reserve) for zone in zones), default=0)
    guesses = ("Device", "DMA32", "DMA", "HighMem")
    if has_high and not seen & {"DMA32", "HighMem"} and not any(z.name == "Movable" for z in zones):
        guesses = ("HighMem", *guesses)
    for name in guesses:
        if len(seen) < wanted:
            seen.add(name)
    return tuple(name for name in ZONE_NAMES if name in seen)
