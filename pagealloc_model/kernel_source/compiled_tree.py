"""A unit compiled into a shared library, and the library loaded."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
from functools import cached_property
from pathlib import Path

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.state import State
from pagealloc_model.base.errors import UsageError
from pagealloc_model.kernel_source.extraction import (
    ALLOCATION,
    JUDGED,
    LATER_NAMES,
    Configuration,
    KernelSourceError,
    Part,
    TreeIndex,
    Unit,
    extract,
)
from pagealloc_model.kernel_source.source_tree import SourceTree, not_found
from pagealloc_model.policy.policy import Policy

ERRORS_MOST = 12
NO_MEMORY = "not enough memory for the kernel's page structures"

COMPILERS = ("cc", "gcc", "clang")
OPTIONS = (
    "-std=gnu11",
    "-O2",
    "-fPIC",
    "-shared",
    "-fno-strict-aliasing",
    "-fwrapv",
    "-Werror=implicit-function-declaration",
    "-Werror=incompatible-pointer-types",
    "-Werror=int-conversion",
)


class CompiledTree:
    """A tree's units and libraries, one per configuration, in a directory that ends with it."""

    def __init__(self, tree: SourceTree, part: Part = ALLOCATION) -> None:
        self.tree = tree
        self.part = part
        self._directory = tempfile.TemporaryDirectory(prefix="pagealloc-kernel-")
        self._built: dict[Configuration, tuple[Unit, Path]] = {}
        self._copies = 0
        self._idle: dict[Configuration, list[ctypes.CDLL]] = {}
        self._lock = threading.RLock()

    @cached_property
    def _index(self) -> TreeIndex:
        return TreeIndex(self.tree, self.part)

    @property
    def missing(self) -> tuple[str, ...]:
        """Judged functions that the tree does not have under their names."""
        function = self._index.function
        return tuple(
            name
            for name in JUDGED
            if function(name) is None and function(LATER_NAMES.get(name, name)) is None
        )

    def built(self, configuration: Configuration) -> tuple[Unit, Path]:
        """The unit and the library file of a configuration; compiled on first use.

        Raises:
            KernelSourceError: functions are missing, or the unit does not compile.
            UsageError: there is no compiler.
        """
        with self._lock:  # points of a sweep share a tree
            if configuration not in self._built:
                self._built[configuration] = self._build(configuration)
            return self._built[configuration]

    def load(self, configuration: Configuration) -> ctypes.CDLL:
        """A library for one state alone: what the kernel keeps in variables is each copy's own."""
        with self._lock:
            idle = self._idle.setdefault(configuration, [])
            if idle:
                return idle.pop()
            _, path = self.built(configuration)
            self._copies += 1
            copy = path.with_name(f"{path.stem}-{self._copies}.so")
            shutil.copyfile(path, copy)
            return ctypes.CDLL(str(copy))

    def give_back(self, configuration: Configuration, library: ctypes.CDLL) -> None:
        """A library that no state uses any more."""
        with self._lock:
            self._idle[configuration].append(library)

    def _build(self, configuration: Configuration) -> tuple[Unit, Path]:
        compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
        if compiler is None:
            raise UsageError(f"no C compiler ({', '.join(COMPILERS)}) is installed; install gcc")
        unit = extract(self._index, configuration)
        name = hashlib.sha256(unit.text.encode()).hexdigest()[:16]
        path = Path(self._directory.name) / f"{name}.so"
        source = path.with_suffix(".c")
        source.write_text(unit.text)
        done = subprocess.run(
            [compiler, *OPTIONS, "-o", str(path), str(source)],
            env=os.environ | {"LC_ALL": "C"},  # which complaints are found in
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise KernelSourceError(self._complaint(unit, done.stderr))
        return unit, path

    def _complaint(self, unit: Unit, output: str) -> str:
        """A compiler's complaints as one line, each with its function in the tree."""
        errors = []
        for path, line, message in re.findall(r"^([^:\n]+):(\d+):\d+: error: (.*)$", output, re.M):
            function = unit.function_at(path, int(line))
            errors.append(f"{path}:{line}{f' in {function}()' if function else ''}: {message}")
        unique = list(dict.fromkeys(errors)) or [output.strip()[-500:]]
        more = f"; and {len(unique) - ERRORS_MOST} more" if len(unique) > ERRORS_MOST else ""
        lacking = not_found(self.tree, self.missing)
        return (
            f"{self.tree.path}: does not compile with the shim: "
            f"{f'not found: {lacking}; ' if lacking else ''}{'; '.join(unique[:ERRORS_MOST])}{more}"
        )


ZONE_NAMES = ("DMA", "DMA32", "Normal", "HighMem", "Movable", "Device")
"""Zone types as the shim numbers them."""


def configuration_for(state: State) -> Configuration:
    """The configuration of a kernel for a state's machine and policy."""
    machine, st = state.machine, state.st
    strange = set(machine.zone_types) - set(ZONE_NAMES)
    if strange:
        raise UsageError(f"the kernel shim knows no zone type {', '.join(sorted(strange))}")
    return Configuration(
        zone_types=machine.zone_types,
        pageblock_order=machine.pageblock_order,
        max_order=machine.max_order,
        thp=machine.thp,
        cma="CMA" in machine.migratetypes,
        isolation="Isolate" in machine.migratetypes,
        costly_order=int(st[at.POLICY_COSTLY_ORDER]) if st[at.POLICY_COSTLY_ORDER] != 3 else None,
        batch_scale_max=int(st[at.POLICY_PCP_BATCH_SCALE_MAX]),
        cpus=-(-machine.nr_cpus // 64) * 64,
    )


class KernelState:
    """What the compiled kernel holds; begins as a state, which it changes from then on.

    Scalars, counters and the log are written straight into that state's arrays; free lists, per-CPU
    lists, watermarks and block types live in the kernel's structures until `store`.

    Attributes:
        state: the state it began as; its `pages` are as `store` left them.
        configuration: what the kernel was compiled with.
        lines: int32, for each log row the line of mm/page_alloc.c that it comes from.
    """

    def __init__(self, tree: CompiledTree, state: State) -> None:
        """Compile what is needed and take over the state.

        Raises:
            KernelSourceError: the tree lacks functions or does not compile.
            UsageError: no compiler, or a machine that the shim has no configuration for.
        """
        self.state = state
        self.configuration = configuration_for(state)
        self.lines = np.zeros(len(state.log), np.int32)
        self._tree = tree
        self._library = tree.load(self.configuration)
        self._library.shim_broken_assertion.restype = ctypes.c_char_p
        self._library.shim_advance.restype = ctypes.c_long
        names = np.array([ZONE_NAMES.index(each) for each in state.machine.zone_types], np.int64)
        failed = self._library.shim_load(
            array_pointer(state.st),
            array_pointer(state.pages),
            array_pointer(state.blocks),
            ctypes.c_long(len(state.pages)),
            array_pointer(names),
        )
        if failed:
            raise MemoryError(NO_MEMORY)

    def advance(
        self, events: np.ndarray, places: np.ndarray, low: int, high: int, until_ns: int
    ) -> int:
        """As the model's `advance`: events[low:high], then ticks; the event to go on with."""
        return int(
            self._library.shim_advance(
                array_pointer(events),
                array_pointer(places),
                array_pointer(self.state.log),
                array_pointer(self.lines),
                ctypes.c_long(len(self.state.log)),
                ctypes.c_long(low),
                ctypes.c_long(high),
                ctypes.c_int64(until_ns),
            )
        )

    def store(self, *, pages: bool) -> State:
        """The state as it is now: counters and list lengths, and all free pages if asked for.

        Pages in use are not written: the model knows no more of them than where its objects are.
        """
        self._library.shim_store(
            array_pointer(self.state.pages) if pages else None, array_pointer(self.state.blocks)
        )
        return self.state

    def size_zones(self, policy: Policy) -> None:
        """Watermarks, reserves and limits of `state` as the tree's set-up makes them.

        Args:
            policy: `min_free_kbytes`, `watermark_scale_factor` and a `lowmem_reserve_ratio` for
                each zone type, all given, and `percpu_pagelist_high_fraction`, None for 0.
        """
        assert policy.min_free_kbytes is not None
        assert policy.watermark_scale_factor is not None
        assert policy.lowmem_reserve_ratio is not None
        ratios = np.array(policy.lowmem_reserve_ratio.split(), np.int64)
        self._library.shim_size_zones(
            ctypes.c_long(policy.min_free_kbytes),
            ctypes.c_long(policy.watermark_scale_factor),
            ctypes.c_long(policy.percpu_pagelist_high_fraction or 0),
            array_pointer(ratios),
        )

    def settle(self) -> None:
        """Counters, list lengths and block types of `state` as they are now."""
        self.store(pages=False)

    @property
    def broken_assertion(self) -> tuple[str, int] | None:
        """Condition and line of the first of the kernel's own assertions that failed."""
        line = ctypes.c_int()
        text = self._library.shim_broken_assertion(ctypes.byref(line))
        return None if text is None else (text.decode(), line.value)

    def close(self) -> None:
        """Give the kernel's memory back; nothing may be asked of it afterwards."""
        self._library.shim_unload()
        self._tree.give_back(self.configuration, self._library)


def array_pointer(array: np.ndarray) -> ctypes.c_void_p:
    """Where a contiguous array's data are."""
    assert array.flags.c_contiguous
    return ctypes.c_void_p(array.ctypes.data)


class KernelCompaction(KernelState):
    """What the compiled kernel holds of an elastic state, compaction's words among it.

    The tree is compiled as the part `COMPACTION`; LRU lists are known by membership only.
    """

    def __init__(self, tree: CompiledTree, state: State) -> None:
        super().__init__(tree, state)
        pages, folios = array_pointer(state.pages), array_pointer(state.folios)
        if self._library.shim_load_compaction(pages, folios):
            raise MemoryError(NO_MEMORY)

    def take(self, operations: np.ndarray, results: np.ndarray, low: int, high: int) -> None:
        """As the model's `take_compaction_operations`."""
        self._library.shim_compact(
            array_pointer(operations),
            array_pointer(results),
            ctypes.c_long(low),
            ctypes.c_long(high),
        )

    def store(self, *, pages: bool) -> State:
        """The state as it is now; if pages are asked for, allocated ones and folios too."""
        state = super().store(pages=pages)
        if pages:
            self._library.shim_store_compaction(
                array_pointer(state.pages), array_pointer(state.folios)
            )
        return state

    def close(self) -> None:
        """Give the kernel's memory back."""
        self._library.shim_unload_compaction()
        super().close()


class KernelReclaim(KernelState):
    """What the compiled kernel holds of an elastic state, with LRU lists and sleeping kswapds.

    The tree is compiled as the part `RECLAIM`. Each kswapd is a context of its own that runs the
    tree's `kswapd()` until it sleeps.
    """

    def __init__(self, tree: CompiledTree, state: State) -> None:
        super().__init__(tree, state)
        pages, folios = array_pointer(state.pages), array_pointer(state.folios)
        if self._library.shim_load_reclaim(pages, folios):
            raise MemoryError(NO_MEMORY)

    def take(self, operations: np.ndarray, answers: np.ndarray, low: int, high: int) -> None:
        """As the model's `take_reclaim_operations`."""
        self._library.shim_reclaim(
            array_pointer(operations),
            array_pointer(answers),
            array_pointer(self.state.log),
            array_pointer(self.lines),
            ctypes.c_long(len(self.state.log)),
            ctypes.c_long(low),
            ctypes.c_long(high),
        )

    def store(self, *, pages: bool) -> State:
        """The state as it is now; if pages are asked for, LRU lists and counters too."""
        state = super().store(pages=pages)
        if pages:
            self._library.shim_store_reclaim(array_pointer(state.pages))
        return state

    def close(self) -> None:
        """Give the kernel's memory back."""
        self._library.shim_unload_reclaim()
        super().close()
