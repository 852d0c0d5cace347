"""A kernel tree as a policy: what its allocator would do with a recorded demand."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import ir

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.hooks import ELASTIC_LOOP, KERNELS
from pagealloc_model.allocator.state import State
from pagealloc_model.allocator.watermark import AllocContext
from pagealloc_model.base import jit
from pagealloc_model.base.errors import PolicyError, UsageError
from pagealloc_model.base.jit.settings import numba
from pagealloc_model.kernel_source.compiled_tree import (
    CompiledTree,
    KernelState,
    array_pointer,
)
from pagealloc_model.kernel_source.extraction import ALLOCATION, ELASTIC, SHIM, Part
from pagealloc_model.kernel_source.source_tree import SOURCES, SourceTree, open_tree
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Policy
from pagealloc_model.predicted.carrier import Engine

DECIDED_BY_SOURCE = (
    "highatomic_gate_order",
    "highatomic_reserve_percent",
    "highatomic_from_pcp",
    "highatomic_fastpath",
    "highatomic_slowpath_only",
    "pcp_free_batched",
    "pcp_decay_batched",
    "pcp_drain_batched",
    "refill_mode_persists",
    "pageblock_ownership",
    "ownership",
)
"""Policy fields that a kernel has no setting for: its source says what happens."""

NOT_COVERED = (
    "the loop of __alloc_pages_slowpath: attempts are made in the model's order (S8), without "
    "compaction and the OOM killer; direct reclaim frees what the recording says",
    "kswapd: its runs are the recording's, or begin and end by pgdat_balanced() alone",
    "what compaction takes and captures: it is asked for as ordinary requests of its zone",
    "contention: every lock, trylocks of per-CPU lists included, is free",
    "folio batches: pages are freed one by one",
    "cpusets, dirty limits, node reclaim, unaccepted memory, guard pages, page reporting, shuffled "
    "lists, page checks, and hooks of debugging, memcg, KASAN and page_owner",
    "sizes of zones and page sets, watermarks and zonelists: they are the recording's and the "
    "policy's, not what the tree's set-up code would make of them",
)
"""What a replay through a kernel's code leaves to the shim."""

NOT_COVERED_UNDER_PRESSURE = (
    "reclaim, compaction, kswapd, kcompactd and the loop of __alloc_pages_slowpath: they are the "
    "model's (S8 to S10), under the rules of the tree's release; attempts, frees, drains, and what "
    "compaction isolates and captures are the tree's",
    *NOT_COVERED[3:],
)
"""What an elastic replay through a kernel's code leaves to the model and the shim."""


@dataclass(frozen=True)
class KernelBuild(Engine):
    """A kernel's source tree that takes a policy's place in `replay`; compiled on first use.

    Attributes:
        path: checkout, unpacked source package, or its tarball.
        policy: settings of that kernel; fields that only its source decides may not be given.
        patch: text or file of a patch to the tree, which stays as it is on disk.

    Raises:
        PolicyError: one of those fields is given.
        UsageError: there is no such tree, or the patch does not apply.
    """

    path: Path | str
    policy: Policy = field(default_factory=Policy)
    patch: Path | str | None = None

    def __post_init__(self) -> None:
        """Refuse what the tree's source decides, and places without a tree."""
        given = [each for each in DECIDED_BY_SOURCE if getattr(self.policy, each) is not None]
        if given:
            raise PolicyError(
                f"policy {given[0]}: a kernel build has no such setting; change its source instead"
            )
        open_tree(self.path, self.patch)

    @property
    def source(self) -> SourceTree:
        """The tree's files, patched."""
        return open_tree(self.path, self.patch)

    @property
    def rules(self) -> KernelRules | None:
        """Rules for what is made before the tree's code runs, such as limits of page sets.

        None for a tree that does not say its release.
        """
        release = self.source.release
        return KernelRules.for_release(release)[0] if release else None

    def under(self, policy: Policy) -> KernelBuild:
        """The same tree with settings changed."""
        return replace(self, policy=self.policy.changed_by(policy))

    @property
    def name(self) -> str:
        """Release, place and a digest of the sources, as results name it."""
        source = self.source
        patched = f" with {source.patch.name}" if source.patch else ""
        return f"{source.release or 'kernel'} at {source.path}{patched} ({_source_digest(source)})"

    @property
    def fingerprint(self) -> str:
        """Digest of what decides a replay through the tree, for caches of results.

        Of the tree's files that are read (any change in them counts, comments too), its release,
        the shim and the settings given; wherever the tree lies. It says nothing of the model around
        it.
        """
        source = self.source
        digest = hashlib.sha256()
        settings = sorted(self.policy.given().items())
        digest.update(f"{_source_digest(source)} {source.release} {settings}".encode())
        for each in sorted(SHIM.iterdir()):
            digest.update(each.read_bytes())
        return digest.hexdigest()[:16]

    def not_covered(self, *, elastic: bool) -> tuple[str, ...]:
        """What a replay through the tree's code leaves to the model and the shim.

        Args:
            elastic: reclaim and compaction are the model's, not the recording's.
        """
        return NOT_COVERED_UNDER_PRESSURE if elastic else NOT_COVERED

    def carrier(self, state: State, leads: np.ndarray | None = None) -> KernelState:
        """The tree's code, about to carry on a state; libraries of an unchanged tree serve again.

        Args:
            state: changed from now on.
            leads: of an elastic replay, under the model's reclaim: int32 by object, the failure it
                came in place of.

        Raises:
            KernelSourceError: the tree lacks functions or does not compile.
            UsageError: no compiler, or numba is switched off.
        """
        source = self.source
        tree = _compiled(source, _source_digest(source), ALLOCATION if leads is None else ELASTIC)
        return KernelState(tree, state) if leads is None else PressedKernelState(tree, state, leads)


def _source_digest(source: SourceTree) -> str:
    digest = hashlib.sha256()
    for path in SOURCES:
        digest.update((source.read(path) or "").encode())
    return digest.hexdigest()[:12]


@lru_cache(maxsize=16)
def _compiled(source: SourceTree, digest: str, part: Part) -> CompiledTree:
    return CompiledTree(source, part)


FAST_FLAGS, SLOW_FLAGS, PAGE, FREE, ISOLATE, MARK_MOVABLE, DRAIN, DRAIN_ALL = range(8)
UNRESERVE, TICK, GROW, SET_HIGH, LIST_HEAD, LIST_TAIL, MOVE_HEAD, MOVE_TAIL = range(8, 16)
"""Numbers of ELASTIC's questions."""


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
    numbers = [numba.types.int64] * 6

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        word = ir.IntType(64)
        anything = ir.IntType(8).as_pointer()
        places = [
            builder.bitcast(
                numba.np.arrayobj.make_array(kind)(context, builder, value).data, anything
            )
            for kind, value in zip(signature.args[1:5], values[1:5], strict=True)
        ]
        kind = ir.FunctionType(word, [anything] * 4 + [word] * 6)
        function = builder.inttoptr(values[0], kind.as_pointer())
        return builder.call(function, [*places, *values[5:]])

    return numba.types.int64(numba.types.int64, *arrays, *numbers), generate


def ask(m: at.Arrays, what: int, a: int, b: int, c: int, d: int, e: int) -> int:
    """Ask the kernel's code; returns its answer."""
    address = m.st[m.st.shape[0] - 1]
    return call_shim(address, m.pages, m.blocks, m.st, m.log, what, a, b, c, d, e)


_REPLACED = {
    "watermark": ("fast_path_flags", "gfp_to_alloc_flags"),
    "buddy": ("grow_zone",),
    "pcp": ("set_pcp_high", "refresh_cpu_vm_stats", "drain_pages_zone", "drain_all_pages"),
    "highatomic": ("unreserve_highatomic_pageblock",),
    "page_free": ("__free_frozen_pages",),
    "compaction_scan": (
        *("move_freelist_head", "move_freelist_tail", "candidate_block"),
        *("__isolate_free_page", "search_list"),
    ),
    "compaction": ("migrate_folio_move",),
    "page_alloc": ("get_page_from_freelist", "walk_zones"),
}
"""Functions that ask the kernel's code, by module; each before those that import from it."""


def _asking(module: Any) -> dict[str, Callable[..., Any]]:
    """What takes the place of one module's functions."""
    asked, own = jit.inner(ask), vars(module)
    fast, slow = own.get("fast_path_flags"), own.get("gfp_to_alloc_flags")
    blocks, buddies = own.get("candidate_block"), own.get("search_list")
    hold, move = own.get("hold"), own.get("migrate_folio_move")

    def fast_path_flags(m: at.Arrays, ac: AllocContext) -> int:
        flags = fast(m, ac)
        asked(m, FAST_FLAGS, ac.order, ac.migratetype, ac.highest_type, ac.bits, 0)
        return flags

    def gfp_to_alloc_flags(m: at.Arrays, ac: AllocContext, flags: int) -> int:
        asked(m, SLOW_FLAGS, ac.order, ac.migratetype, ac.highest_type, ac.bits, 0)
        return slow(m, ac, flags)

    def grow_zone(m: at.Arrays, zone: int, pfn: int, order: int) -> None:
        asked(m, GROW, zone, pfn, order, 0, 0)

    def set_pcp_high(m: at.Arrays, zone: int, cpu: int, wanted: int) -> None:
        asked(m, SET_HIGH, zone, cpu, wanted, 0, 0)

    def refresh_cpu_vm_stats(m: at.Arrays, cpu: int) -> None:
        asked(m, TICK, cpu, 0, 0, 0, 0)

    def drain_pages_zone(m: at.Arrays, zone: int, cpu: int) -> None:
        asked(m, DRAIN, zone, cpu, 0, 0, 0)

    def drain_all_pages(m: at.Arrays) -> None:
        asked(m, DRAIN_ALL, 0, 0, 0, 0, 0)

    def unreserve_highatomic_pageblock(m: at.Arrays, ac: AllocContext, force: bool) -> bool:
        return asked(m, UNRESERVE, ac.migratetype, ac.highest_type, ac.bits, int(force), 0) != 0

    def __free_frozen_pages(m: at.Arrays, cpu: int, pfn: int, order: int, in_batch: bool) -> None:
        m.pages[pfn]["where"] = at.NOWHERE
        asked(m, FREE, pfn, order, 0, 0, 0)

    def get_page_from_freelist(m: at.Arrays, ac: AllocContext, flags: int) -> int:
        return asked(m, PAGE, ac.order, ac.migratetype, ac.highest_type, ac.bits, flags)

    def walk_zones(m: at.Arrays, ac: AllocContext, position: int, flags: int) -> int:
        return asked(m, PAGE, ac.order, ac.migratetype, ac.highest_type, ac.bits, flags)

    def move_freelist_head(m: at.Arrays, lst: int, pfn: int) -> None:
        asked(m, MOVE_HEAD, lst, pfn, 0, 0, 0)

    def move_freelist_tail(m: at.Arrays, lst: int, pfn: int) -> None:
        asked(m, MOVE_TAIL, lst, pfn, 0, 0, 0)

    def candidate_block(
        m: at.Arrays, lst: int, high: int, scanned: int, limit: int
    ) -> tuple[int, int]:
        asked(m, LIST_HEAD, lst, limit - scanned + 1, 0, 0, 0)
        return blocks(m, lst, high, scanned, limit)

    def __isolate_free_page(m: at.Arrays, run: int, pfn: int) -> bool:
        order = int(m.pages[pfn]["order"])
        if asked(m, ISOLATE, pfn, order, 0, 0, 0) == 0:
            return False
        hold(m, run, pfn, order)
        return True

    def search_list(
        m: at.Arrays, zone: int, lst: int, low: int, least: int, limit: int, highest: int
    ) -> tuple[int, int, int, int, int, int]:
        asked(m, LIST_TAIL, lst, limit, 0, 0, 0)
        return buddies(m, zone, lst, low, least, limit, highest)

    def migrate_folio_move(m: at.Arrays, source: int, target: int) -> None:
        move(m, source, target)
        if int(m.pages[target]["tag"]) == 1:
            asked(m, MARK_MOVABLE, target, int(m.pages[target]["order"]), 0, 0, 0)

    functions = locals()
    return {name: functions[name] for name in _REPLACED[module.__name__.rpartition(".")[2]]}


@lru_cache(maxsize=1)
def advance_asking() -> Callable[..., int]:
    """The elastic event loop that asks a kernel's code; takes what `advance_elastic` takes.

    The last of the state's words must be the address of a loaded library's `shim_ask`.
    """
    replacements = [(module, _asking) for module in _REPLACED]
    return jit.kernels_with(KERNELS, replacements, ELASTIC_LOOP, "asked-kernel")


class PressedKernelState(KernelState):
    """What the compiled kernel holds, beside what the model's reclaim and compaction hold.

    `state.pages` says of every page whether it is free, of which order, or in use, and links the
    pages in use; links of free pages, and pages of per-CPU lists, are the kernel's alone until
    `close`.
    """

    def __init__(self, tree: CompiledTree, state: State, leads: np.ndarray) -> None:
        """Compile what is needed and take over the state.

        Args:
            tree: the kernel's.
            state: an elastic replay's; changed from now on.
            leads: int32 by object: the failure it came in place of.

        Raises:
            KernelSourceError: the tree lacks functions or does not compile.
            UsageError: no compiler, a machine that the shim has no configuration for, or numba
                switched off.
        """
        if numba.config.DISABLE_JIT:
            raise UsageError("an elastic replay by a kernel build needs numba's compiler")
        super().__init__(tree, replace(state, st=np.append(state.st, 0)))
        self._leads = leads
        state = self.state
        state.pages["where"][state.pages["where"] == at.ON_PCP] = at.NOWHERE
        state.st[-1] = ctypes.cast(self._library.shim_ask, ctypes.c_void_p).value
        self._library.shim_share(
            array_pointer(state.pages),
            array_pointer(state.log),
            array_pointer(self.lines),
            ctypes.c_long(len(state.log)),
        )

    def advance(
        self, events: np.ndarray, places: np.ndarray, low: int, high: int, until_ns: int
    ) -> int:
        """As `events.advance_elastic`, with the kernel's allocator."""
        arrays = self.state.arrays(places)
        return int(advance_asking()(arrays, events, self._leads, low, high, until_ns))

    def whole(self) -> State:
        """A copy of the state as it is: pages in use as the model has them, others the kernel's."""
        free = np.zeros_like(self.state.pages)
        self._library.shim_store(array_pointer(free), array_pointer(self.state.blocks))
        state = self.state.copy()
        is_in_use = np.isin(state.pages["where"], (at.ALLOCATED, pr.HELD))
        state.pages[~is_in_use] = free[~is_in_use]
        return state

    def close(self) -> None:
        """Write all pages into the state and give the kernel's memory back."""
        self.state.pages[:] = self.whole().pages
        super().close()
