"""Remove from a recording what names a machine, its users or their programs.

What stays: events with their times, CPUs, thread ids and numbers; kernel thread names; names of
programs that a workload commonly runs. Kernel addresses become numbers that keep only their order
and which of them are equal: a lock is still recognised, and still lies in its zone.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pagealloc_model.recording.trace.formats import Field, TracingData, write_tracing_data
from pagealloc_model.recording.trace.perf_data import (
    COMM,
    FORK,
    SAMPLE,
    RecordTable,
    text_feature,
    text_list_feature,
)
from pagealloc_model.recording.trace.perf_file import Feature, PerfFile, SampleType
from pagealloc_model.recording.trace.perf_samples import Column, part_offsets

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
_KEPT_FEATURES = (
    Feature.OSRELEASE,
    Feature.VERSION,
    Feature.ARCH,
    Feature.NRCPUS,
    Feature.CPUDESC,
    Feature.CPUID,
    Feature.TOTAL_MEM,
    Feature.EVENT_DESC,
    Feature.CPU_TOPOLOGY,
    Feature.NUMA_TOPOLOGY,
    Feature.SAMPLE_TIME,
    Feature.CLOCKID,
    Feature.CLOCK_DATA,
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


def anonymise_records(table: RecordTable, file: PerfFile, keep_names: Collection[str]) -> None:
    """Overwrite names and addresses in a table of records that owns its data.

    Args:
        table: records without memory maps; changed in place, sizes kept.
        file: the file they come from.
        keep_names: command names to keep besides the usual ones.

    Raises:
        ValueError: a sample is shorter than its layout says.
    """
    words = np.lib.stride_tricks.as_strided(
        table.data[:8].view("<i8"), shape=(len(table.data) - 8,), strides=(1,)
    )
    samples = _Samples(table, file, words)
    addresses = list(samples.addresses())
    places = np.concatenate([place for place, _ in addresses] or [np.zeros(0, np.int64)])
    is_pointer = np.concatenate([pointer for _, pointer in addresses] or [np.zeros(0, bool)])
    values = words[places].view(np.uint64)
    replaced = address_mask(values, is_pointer)
    words[places[replaced]] = renumbered(values[replaced]).view(np.int64)
    samples.clear_instruction_pointers()
    samples.clear_strings()
    _rename_commands(table, keep_names)


def anonymise_features(file: PerfFile) -> dict[int, bytes]:
    """Header features without those that name the machine or its programs."""
    features = {int(number): file.feature(number) for number in _KEPT_FEATURES}
    kept = {number: data for number, data in features.items() if data is not None}
    kept[Feature.HOSTNAME] = text_feature(ANONYMOUS)
    kept[Feature.CMDLINE] = text_list_feature(["perf", "record"])
    kept[Feature.TRACING_DATA] = write_tracing_data(_without_printk(file.tracing))
    return kept


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


def _without_printk(tracing: TracingData) -> TracingData:
    return replace(tracing, printk_formats=b"")


class _Samples:
    """Finds the places in samples that may name something, attribute by attribute."""

    def __init__(self, table: RecordTable, file: PerfFile, words: np.ndarray) -> None:
        self._table = table
        self._attrs = file.attrs
        self._words = words
        self._of_attr = {
            attr: np.flatnonzero((table.type == SAMPLE) & (table.attr == attr))
            for attr in np.unique(table.attr[table.type == SAMPLE]).tolist()
        }

    def addresses(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Places of words that may be addresses, and whether each surely is one."""
        for attr, chosen in self._of_attr.items():
            raw, chain, chain_length = self._parts(attr, chosen)
            if len(chain):
                within = np.arange(int(chain_length.sum()), dtype=np.int64)
                within -= np.repeat(np.cumsum(chain_length) - chain_length, chain_length)
                places = np.repeat(chain, chain_length) + 8 * within
                yield places, np.ones(len(places), bool)
            for field in self._fields(attr):
                if field.is_integer and field.size == 8 and not field.signed:
                    yield raw + field.offset, np.full(len(raw), "*" in field.type)

    def clear_instruction_pointers(self) -> None:
        """Set the instruction pointer of every sample to 0."""
        for attr, chosen in self._of_attr.items():
            offset = part_offsets(self._attrs[attr].sample_type).get("ip")
            if offset is not None:
                self._words[self._table.position[chosen] + offset] = 0

    def clear_strings(self) -> None:
        """Empty text fields but for zones' names, in place or elsewhere in the record."""
        for attr, chosen in self._of_attr.items():
            texts = [field for field in self._fields(attr) if field.is_string]
            raws = self._parts(attr, chosen)[0] if texts else ()
            for raw, index in zip(raws, chosen, strict=False):
                end = int(self._table.position[index] + self._table.size[index])
                for field in texts:
                    start, size = int(raw) + field.offset, field.size
                    if field.is_dynamic:
                        place = int(self._words[start])
                        relative = field.end if field.type.startswith("__rel_loc") else 0
                        start = int(raw) + (place & 0xFFFF) + relative
                        size = place >> 16 & 0xFFFF
                    text = self._table.data[start : min(start + size, end)]
                    name = text.tobytes().split(b"\0", 1)[0]
                    kept = len(name) if name.decode("ascii", "replace") in ZONE_NAMES else 0
                    text[kept:] = 0

    def _fields(self, attr: int) -> tuple[Field, ...]:
        tracepoint = self._table.layouts.formats[attr]
        if tracepoint is None or not self._attrs[attr].sample_type & SampleType.RAW:
            return ()
        return tracepoint.own_fields

    def _parts(self, attr: int, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Start of the raw data, start of the call chain and its length, for each sample."""
        layout = self._table.layouts.table[attr]
        end = self._table.position[chosen] + self._table.size[chosen]
        part = self._table.position[chosen] + layout[Column.VARIABLE]
        part = part + layout[Column.READ_FIXED]
        if layout[Column.READ_ENTRY]:
            counters = self._words[_inside(part - layout[Column.READ_FIXED], end)]
            part = part + _small(counters) * layout[Column.READ_ENTRY]
        chain, length = np.zeros(0, np.int64), np.zeros(0, np.int64)
        if layout[Column.CALLCHAIN]:
            length = _small(self._words[_inside(part, end)])
            chain = part + 8
            part = chain + 8 * length
        raw = part + 4 * layout[Column.RAW]
        _inside(raw + layout[Column.RAW_SIZE] - 8, end)
        return raw, chain, length


def _inside(places: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The places, once it is sure that a word there lies inside its record.

    Raises:
        ValueError: it does not.
    """
    if np.any(places + 8 > end):
        raise ValueError("a sample is shorter than its sample_type says")
    return places


def _small(counts: np.ndarray) -> np.ndarray:
    if np.any((counts < 0) | (counts > 0xFFFF)):
        raise ValueError("a sample holds an impossible count")
    return counts


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


def _rename_commands(table: RecordTable, keep_names: Collection[str]) -> None:
    """Overwrite command names that are not to be kept; equal names stay equal."""
    kernel_threads = _kernel_threads(table)
    new_names: dict[bytes, bytes] = {}
    for index in np.flatnonzero(table.type == COMM):
        record = table.record(index)
        (tid,) = struct.unpack_from("<I", record, 12)
        old = record[16:].split(b"\0", 1)[0]
        text = old.decode("utf-8", "replace")
        if tid in kernel_threads or text in keep_names or is_usual_name(text):
            continue
        new = new_names.setdefault(old, new_name(len(new_names)).encode())
        # The name is padded to a multiple of 8 with at least one zero byte.
        room = len(old) // 8 * 8 + 8
        start = int(table.position[index]) + 16
        field = np.frombuffer(new.ljust(room, b"\0"), np.uint8)
        table.data[start : start + room] = field


def _kernel_threads(table: RecordTable) -> set[int]:
    threads = {0, KTHREADD}
    for index in np.flatnonzero(table.type == FORK):
        _, parent, tid = struct.unpack_from("<III", table.record(index), 8)
        if parent == KTHREADD:
            threads.add(tid)
    return threads
