"""Kprobes on functions that have no tracepoint."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pagealloc_model.base.errors import UsageError
from pagealloc_model.recording.record.host import Host, read_or_none
from pagealloc_model.recording.record.kernel_types import KernelTypes

GROUP = "pa"


@dataclass(frozen=True)
class Probe:
    """A kprobe, on a function's entry or, if what it returns is recorded, on its return.

    Attributes:
        event: its name; where several probes share it, the first that can be set is.
        function: the kernel function.
        arguments: what it records: field of the event, place as in `_TABLE`, and kprobe type.
        lack: what a recording cannot show without it.
        filter: perf records only what passes, "" for all.
    """

    event: str
    function: str
    arguments: tuple[tuple[str, str, str], ...]
    lack: str
    filter: str = ""

    def definition(self, parameters: Sequence[str] | None) -> str | None:
        """The line that sets it, None if this kernel's function is another one.

        Its parameter names are () if this kernel does not describe it, None if it describes none.
        """
        if parameters is not None and not parameters:
            return None
        words = []
        kind = "r" if any(place == "$retval" for _, place, _ in self.arguments) else "p"
        for field, place, type_ in self.arguments:
            names, named, position = place.partition("@")
            position, _, offset = position.partition("+")
            if named:
                number = int(position)
                if parameters is not None:
                    known = (name for name in names.split("|") if name in parameters)
                    number = next((parameters.index(name) + 1 for name in known), 0)
                if not number:
                    return None
                place = f"+{offset}($arg{number})" if offset else f"$arg{number}"
            words.append(f"{field}={place.replace('&', '@')}:{type_}")
        return f"{kind}:{GROUP}/{self.event} {self.function} {' '.join(words)}"


_LACKS = {
    "pcp_bulk": "transactions are inferred from runs of events",
    "alloc_bulk": "when alloc_pages_bulk took pages is guessed from their frees",
    "free_one": "frees of small orders past the per-CPU lists are unseen",
    "ha_": "reservations of highatomic blocks show only in snapshots",
    "drain_zone": "drains of whole lists are told from overflows by whose pages they free",
    "block_type": "changes of a pageblock's type show only in snapshots, claims also in fallbacks",
    "boost": "watermark boosts show only in snapshots",
    "kswapd_rest": "why kswapd went on or slept is unseen",
    "kswapd": "before 7.2, how long kswapd worked and for which order is unseen",
}
"""Things that a recording cannot show without a probe, by how the event's name begins."""

_FILTERS = {"set_pfnblock_flags_mask": "mask & 7", "__set_pfnblock_flags_mask": "mask & 7"}
"""Of a pageblock's bits those of its type; compaction sets others far more often."""

_TABLE = """
pcp_bulk_free free_pcppages_bulk zone=zone@1:x64 count=count@2:s32 pindex=pindex@4:s32
pcp_bulk_alloc rmqueue_bulk zone=zone@1:x64 order=order@2:u32 count=count@3:u64 \
    mt=migratetype@5:s32 flags=alloc_flags@6:x32
pcp_bulk_alloc_ret rmqueue_bulk got=$retval:s32
alloc_bulk alloc_pages_bulk_noprof gfp=gfp@1:x32 wanted=nr_pages@4:s32
alloc_bulk __alloc_pages_bulk gfp=gfp@1:x32 wanted=nr_pages@4:s32
alloc_bulk_ret alloc_pages_bulk_noprof got=$retval:s64 base=&vmemmap_base:x64 PAGES
alloc_bulk_ret alloc_pages_bulk_noprof got=$retval:s64
alloc_bulk_ret __alloc_pages_bulk got=$retval:s64 base=&vmemmap_base:x64 PAGES
alloc_bulk_ret __alloc_pages_bulk got=$retval:s64
free_one free_one_page zone=zone@1:x64 pfn=pfn@3:x64 order=order@4:u32
ha_reserve reserve_highatomic_pageblock order=order|alloc_order@0:s32 zone=zone@0:x64
ha_unreserve unreserve_highatomic_pageblock done=$retval:u8
drain_zone drain_pages_zone cpu=cpu@1:u32 zone=zone@2:x64
block_type set_pfnblock_flags_mask pfn=pfn@3:x64 mt=flags@2:s32 mask=mask@4:x64
block_type __set_pfnblock_flags_mask pfn=pfn@2:x64 mt=flags@3:s32 mask=mask@4:x64
block_type set_pageblock_migratetype page=page@1:x64 mt=migratetype@2:s32 base=&vmemmap_base:x64
block_type set_pageblock_migratetype page=page@1:x64 mt=migratetype@2:s32
boost boost_watermark zone=zone@1:x64
boost_ret boost_watermark done=$retval:u8
kswapd_begin balance_pgdat order=order@2:s32 highest=highest_zoneidx@3:s32
kswapd_end balance_pgdat order=$retval:s32
kswapd_rest kswapd_try_to_sleep asked=alloc_order@2:s32 reached=reclaim_order@3:s32 \
    highest=highest_zoneidx@4:s32
"""
"""An event, its function, and what it records, as FIELD=PLACE:TYPE. A place is $retval, the value
of a kernel variable, or a parameter: names that kernels give it, and its position in 6.1, 6.12 and
7.2, 0 where that differs; behind it +BYTES, if what it points to is wanted. A return can tell
parameters of the call from 6.9 on."""
_BULK_PAGES = 8
"""Pages of a call of alloc_pages_bulk() that are recorded; a kernel stack has four."""
_TABLE = _TABLE.replace("\\\n", " ").replace(
    "PAGES", " ".join(f"page{n}=page_array@0+{8 * n}:x64" for n in range(_BULK_PAGES))
)


PROBES = tuple(
    Probe(
        event,
        function,
        tuple(re.findall(r"(\w+)=(\S+):(\w+)", arguments)),
        next(what for begin, what in _LACKS.items() if event.startswith(begin)),
        _FILTERS.get(function, ""),
    )
    for event, function, arguments in (
        line.split(maxsplit=2) for line in _TABLE.strip().splitlines()
    )
)


def functions_lacking(host: Host) -> dict[str, str]:
    """Functions to probe that this kernel has not as functions of their own, with what that costs.

    Of several that do for one event, one is enough. {} where the kernel names no functions.
    """
    known = _known_functions(host)
    if not known:
        return {}
    served = {probe.event for probe in PROBES if probe.function in known}
    return {probe.function: probe.lack for probe in PROBES if probe.event not in served}


def _known_functions(host: Host) -> frozenset[str]:
    """Those to probe that the kernel names; none where it names no functions at all."""
    lines = (read_or_none(host.proc / "kallsyms") or "").splitlines()
    wanted = {probe.function for probe in PROBES}
    named = (words[2] for line in lines if len(words := line.split()) > 2)
    return frozenset(name for name in named if name in wanted)


def probe_file(host: Host) -> Path | None:
    """The tracefs file that sets kprobes, None if this kernel has or permits none."""
    if host.tracefs is None or host.lockdown == "confidentiality":
        return None
    file = host.tracefs / "kprobe_events"
    return file if os.access(file, os.W_OK) else None


def leftover_probes(host: Host) -> tuple[str, ...]:
    """Events of our group that are set right now."""
    file = probe_file(host)
    lines = (read_or_none(file) or "").splitlines() if file else []
    events = [line.split()[0].partition(":")[2] for line in lines if line.strip()]
    return tuple(event for event in events if event.startswith(f"{GROUP}/"))


class KernelProbes:
    """Sets the probes for as long as it is entered, and takes them away again.

    `wanted` is True if they must be set, None: as far as possible, False: none. `definitions` are
    the lines that set them, `filters` what perf is to record of an event, by its name as perf takes
    it, and `unset` (event, why) of each probe that could not be set.
    """

    def __init__(self, host: Host, wanted: bool | None) -> None:
        self._host = host
        self._wanted = wanted
        self._file = probe_file(host)
        self.definitions: list[str] = []
        self.filters: dict[str, str] = {}
        self.unset: list[tuple[str, str]] = []

    @property
    def events(self) -> tuple[str, ...]:
        """Names of the events, as perf takes them."""
        names = (definition.split()[0].partition(":")[2] for definition in self.definitions)
        return tuple(name.replace("/", ":") for name in names)

    def __enter__(self) -> KernelProbes:
        if self._wanted is False:
            return self
        if self._file is None:
            if self._wanted:
                raise UsageError(
                    "--probes: this kernel has or permits no kprobes; leave the option out "
                    "(transactions are then inferred from the events)"
                )
            self.unset = [(f"{GROUP}:*", "this kernel has or permits no kprobes")]
            return self
        try:
            self._remove(leftover_probes(self._host))
            self._set_all()
        except BaseException:
            self._remove(self.events)
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._remove(self.events)

    def _set_all(self) -> None:
        wanted = {probe.function for probe in PROBES}
        parameters = None
        with contextlib.suppress(OSError, UsageError):  # a kernel without type information
            btf = (self._host.sysfs / "kernel/btf/vmlinux").read_bytes()
            parameters = KernelTypes(btf).parameters(wanted)
        functions = _known_functions(self._host)
        whys: dict[str, str] = {}
        done: set[str] = set()
        for probe in PROBES:
            if probe.event in done:
                continue
            known = None if parameters is None else parameters.get(probe.function, ())
            definition = probe.definition(known)
            why = ""
            if functions and probe.function not in functions:
                why = "no function of this kernel, or inlined"
            elif definition is None:
                why = "the function's parameters are others here, or it is inlined"
            else:
                try:
                    self._write(definition)
                except OSError as error:
                    why = f"refused ({error.strerror})"
            if why:
                whys[probe.event] = why
                continue
            self.definitions.append(definition)
            done.add(probe.event)
            if probe.filter:
                self.filters[f"{GROUP}:{probe.event}"] = probe.filter
        self.unset = [(f"{GROUP}:{event}", why) for event, why in whys.items() if event not in done]
        if self._wanted and not self.definitions:
            raise UsageError(
                f"--probes: none could be set ({self.unset[0][1]}); leave the option out"
            )

    def _remove(self, events: Sequence[str]) -> None:
        for event in events:
            try:
                self._write(f"-:{event.replace(':', '/')}")
            except OSError as error:
                if error.errno == errno.EBUSY:
                    raise UsageError(
                        f"kprobe {event} is in use by another recording; wait until that ends, "
                        "or use --no-probes"
                    ) from None
                if error.errno != errno.ENOENT:
                    raise

    def _write(self, line: str) -> None:
        """Append, since opening the file to truncate would remove everybody's probes."""
        assert self._file is not None
        handle = os.open(self._file, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(handle, f"{line}\n".encode())
        finally:
            os.close(handle)
