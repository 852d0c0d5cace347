"""Remove from a recording what names a machine, its users or their programs.

What stays: events with their times, CPUs, thread ids and numbers; kernel thread names; names of
programs that a workload commonly runs. Kernel addresses become numbers that keep only their order
and which of them are equal: a lock is still recognised, and still lies in its zone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pagealloc_model.recording.trace.columns import NAMED, ThreadNames, Trace

ANONYMOUS = "anonymous"
REMOVED = (
    "host name",
    "perf command line",
    "build ids",
    "BPF programs",
    "memory maps",
    "names of other programs",
    "kernel addresses (order and equality kept)",
    "kernel command line",
    "arguments of commands",
    "unknown keys of meta.json",
)
"""What anonymising removes, for the provenance of a recording."""

ZONE_NAMES = frozenset(("DMA", "DMA32", "Normal", "HighMem", "Movable", "Device"))
"""Texts in events that stay: they say which zone an event is of, and are the same everywhere."""

KTHREADD = 2
_KEPT_NAMES = re.compile(
    r"swapper.*|kswapd.*|kcompactd.*|khugepaged|ksoftirqd.*|kworker.*|migration.*|rcu.*|irq/.*"
    r"|cpuhp.*|kthreadd|perf|perf-exec|pagealloc|make|ninja|cc1|cc1plus|gcc|g\+\+|cc|clang|as|ar|ld"
    r"|collect2|fixdep|sh|bash|dash|sleep|timeout|rm|cp|mv|ls|cat|find|xargs|tar|gzip|zstd|dd"
    r"|python[0-9.]*|stress-ng.*|fio|sysbench"
)
_KEPT_META = (
    "bundle_version",
    "uname",
    "clock",
    "command",
    "nr_cpus",
    "cpu_nodes",
    "node_distances",
    "meminfo",
    "cpuinfo_model",
    "sysctl",
    "thp",
    "perf",
    "start_ns",
    "end_ns",
    "rc",
    "profile",
    "page_owner_at_ns",
    "kpageflags_at_ns",
    "provenance",
    "package",
    "perf_version",
    "hypervisor",
    "topology",
    "config",
    "lockdown",
    "probes",
    "missing_events",
    "interval_s",
    "ended_by",
)

_TEXT_START = 0xFFFFFFFF80000000
_KERNEL_START = 0xFF00000000000000  # with five levels of page tables
_KERNEL_END = 0xFFFFFFFFFF000000
_FIRST_USER = 0x10000
_NEW_TEXT = 0xFFFFFFFF81000000
_NEW_KERNEL = 0xFFFF888000000000
_NEW_USER = 0x400000
_STEP = 16


def anonymise_trace(trace: Trace, keep_names: Collection[str]) -> Trace:
    """A Trace with other names and addresses: equal ones stay equal, addresses keep their order.

    Args:
        trace: not changed.
        keep_names: command names to keep besides the usual ones.
    """
    tables = {event: dict(table) for event, table in trace.tables.items()}
    places = []
    words, is_pointer = [trace.callchains], [np.ones(len(trace.callchains), bool)]
    for event, table in tables.items():
        declared = trace.declared_types.get(event, {})
        for name, values in table.items():
            if values.dtype == object:
                table[name] = np.array(
                    [text if text in ZONE_NAMES else "" for text in values.tolist()], object
                )
            elif values.dtype == np.uint64:
                places.append((table, name))
                words.append(values)
                is_pointer.append(np.full(len(values), "*" in declared.get(name, "")))
    callchains, *columns = _renumbered_together(words, is_pointer)
    for (table, name), column in zip(places, columns, strict=True):
        table[name] = column
    names = _renamed(trace.thread_names, keep_names)
    comms = names.last() if len(names) else _renamed_comms(trace.comms, keep_names)
    return replace(trace, tables=tables, callchains=callchains, thread_names=names, comms=comms)


def _renumbered_together(words: list[np.ndarray], is_pointer: list[np.ndarray]) -> list[np.ndarray]:
    values = np.concatenate(words)
    replaced = address_mask(values, np.concatenate(is_pointer))
    values[replaced] = renumbered(values[replaced])
    return np.split(values, np.cumsum([len(part) for part in words])[:-1])


def _renamed(names: ThreadNames, keep_names: Collection[str]) -> ThreadNames:
    """Command names replaced in the order in which they come, those of kernel threads kept."""
    kernel_threads = {0, KTHREADD, *names.tid[names.parent == KTHREADD].tolist()}
    new_names: dict[str, str] = {}
    texts = names.name.copy()
    for index in np.flatnonzero(names.parent == NAMED).tolist():
        text = texts[index]
        if int(names.tid[index]) in kernel_threads or text in keep_names or is_usual_name(text):
            continue
        texts[index] = new_names.setdefault(text, new_name(len(new_names)))
    return replace(names, name=texts)


def _renamed_comms(comms: Mapping[int, str], keep_names: Collection[str]) -> dict[int, str]:
    """The same of a source that does not say when threads were named."""
    rows = [(0, tid, NAMED, name) for tid, name in comms.items()]
    names = _renamed(ThreadNames.of(rows), keep_names).name
    return dict(zip(comms, names.tolist(), strict=True))


def anonymise_meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    """meta.json without host name, paths, command lines and keys of unknown meaning."""
    kept = {key: value for key, value in meta.items() if key in _KEPT_META}
    uname = kept.get("uname")
    if isinstance(uname, list) and len(uname) > 1:
        kept["uname"] = [uname[0], ANONYMOUS, *uname[2:]]
    command, perf = kept.get("command"), kept.get("perf")
    if isinstance(command, list):
        kept["command"] = [_without_path(str(word)) for word in command[:1]]
    if isinstance(perf, list):
        words = perf[: perf.index("--")] if "--" in perf else perf
        kept["perf"] = [_without_path(str(word)) for word in words]
    if "cmdline" in meta:
        kept["cmdline"] = None
    return kept


def _without_path(word: str) -> str:
    """An argument with its directories left out; event names, which hold a colon, stay."""
    return word.rsplit("/", 1)[-1] if "/" in word and ":" not in word else word


def is_usual_name(name: str) -> bool:
    """Whether a command's name says nothing about its user."""
    return _KEPT_NAMES.fullmatch(name) is not None


def new_name(number: int) -> str:
    """What the so many-th name becomes, counted from 0."""
    return f"t{number + 1}"


def address_mask(values: np.ndarray, is_pointer: np.ndarray) -> np.ndarray:
    """Which words are addresses: all kernel ones, and user ones where a pointer is expected.

    Small negative numbers are errors, counts, or marks between the parts of a call chain.
    """
    kernel = (values >= _KERNEL_START) & (values < _KERNEL_END)
    user = is_pointer & (values >= _FIRST_USER) & (values < _KERNEL_START)
    return kernel | user


def renumbered(values: np.ndarray) -> np.ndarray:
    """Addresses replaced by ones that keep order, equality, and user, data or text range."""
    distinct, which = np.unique(values, return_inverse=True)
    rank = np.arange(len(distinct), dtype=np.uint64) * np.uint64(_STEP)
    base = np.where(
        distinct >= _TEXT_START,
        np.uint64(_NEW_TEXT),
        np.where(distinct >= _KERNEL_START, np.uint64(_NEW_KERNEL), np.uint64(_NEW_USER)),
    )
    return (base + rank)[which]
