"""Make a recording fit for strangers: what is on these lists is kept, all else is left out.

What stays: events of the memory management with their times, CPUs, thread ids and numbers; names
of kernel threads and of programs that a workload commonly runs; counters and settings of the
kernel under its own names. Kernel addresses become numbers that keep only their order and which of
them are equal: a lock is still recognised, and still lies in its zone.
"""

from __future__ import annotations

import gzip
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pagealloc_model.base.files import text_of
from pagealloc_model.recording.lock_profile import CLOCK_EVENT, HOLDS, LETS_GO, LOCK, UNLOCK
from pagealloc_model.recording.proc.counts import READ_TIMES_FILE, KernelSymbols, format_read_times
from pagealloc_model.recording.record.host import KEPT_CONFIG
from pagealloc_model.recording.record.probes import GROUP, PROBES
from pagealloc_model.recording.snapshot import FOLIO_STATS_FILE, KNOWN_FILES, Snapshot
from pagealloc_model.recording.trace import tracepoints as tp
from pagealloc_model.recording.trace.columns import EVENT_NAMES, NAMED, ThreadNames, Trace
from pagealloc_model.recording.trace.formats import stable_gfp_bits
from pagealloc_model.recording.trace.perf_arguments import SCOPES
from pagealloc_model.recording.trace.side_tables import CHAIN_COLUMNS, FIELD_SUFFIX, KEY_COLUMNS

ANONYMOUS = "anonymous"
REMOVED = (
    "host name",
    "perf command line",
    "build ids",
    "BPF programs",
    "memory maps",
    "stacks and registers of programs",
    "names of other programs",
    "kernel addresses (order and equality kept)",
    "kernel command line",
    "arguments of commands",
    "names of directories and files",
)
"""Parts that anonymising always removes, for the provenance of a recording."""

ZONE_NAMES = frozenset(("DMA", "DMA32", "Normal", "HighMem", "Movable", "Device"))
"""Texts in events that stay: they say which zone an event is of, and are the same everywhere."""
_PROBED = (f"{GROUP}:{probe.event}" for probe in PROBES)
KEPT_EVENTS = frozenset((*EVENT_NAMES, *tp.USUAL, tp.SCHED_SWITCH, *_PROBED))
"""Events of which all fields in `_KEPT_FIELDS` stay."""
_KEPT_FIELDS = frozenset(
    (
        *KEY_COLUMNS,
        *CHAIN_COLUMNS,
        *(field for probe in PROBES for field, _, _ in probe.arguments),
        *("__probe_ip", "__probe_func", "__probe_ret_ip"),
        *re.findall(
            r"\w+",
            """alloc_flags alloc_migratetype alloc_order align asked available base caller cc_idx
        change_ownership classzone_idx compact_result considered count cpu defer_shift done
        end_pfn errorno failed fallback_migratetype fallback_order file fin_pfn flags free_pfn
        function gfp_flags gfp_mask highest highest_zoneidx idx is_shmem isolated
        large_folio_split lock lock_addr lowmem_reserve ltype mask max_retries memcg_id
        migrate_pfn migratetype min_wmark mm mode mt name next_pid nid no_progress_loops node
        node_id none_or_zero nr_activate nr_activate0 nr_activate1 nr_congested nr_dirty
        nr_failed nr_immediate nr_migrated nr_pages nr_reclaimed nr_ref_keep nr_scanned
        nr_succeeded nr_taken nr_unmap_fail nr_writeback order order_failed page percpu_refill
        pfn present prev_pid prev_state prio priority reached reason reclaim_flags reclaimable
        referenced release_pfn request result ret retries start_pfn status succeeded swap sync
        taken thp_failed thp_split thp_succeeded totalreserve_pages unmapped upper_name wakeup
        watermark_high watermark_low watermark_min watermark_promo wmark_check work writable zid
        zone zone_end zone_idx zone_name zone_start""",
        ),
    )
)
_CLOCKS = ("monotonic", "perf", "monotonic_raw", "boottime", "realtime", "tai", "global", "local")
_KEPT_NAMES = re.compile(
    r"swapper(/\d+)?|kswapd\d+|kcompactd\d+|khugepaged|ksoftirqd/\d+|oom_reaper|ksmd|writeback"
    r"|rcu_(bh|sched|preempt|(par_)?gp|exp_par_gp_|exp_gp_kthr|tasks_(kthre|rude_|trace))"
    r"|rcuo[a-z]/\d+|rcuc/\d+|migration/\d+|cpuhp/\d+|kthreadd|kauditd|kdevtmpfs|khungtaskd|watchdogd|perf|perf-exec"
    r"|pagealloc|make|ninja|cc1|cc1plus|gcc|g\+\+|cc|clang|as|ar|ld|collect2|fixdep|sh|bash|dash"
    r"|sleep|timeout|rm|cp|mv|ls|cat|find|xargs|tar|gzip|zstd|dd|python[0-9.]*"
    r"|stress-ng(-(vm|fork|malloc|mmap|hdd|cpu|iomix|bigheap|pagemove))?|fio|sysbench"
)
_KEPT_BEGINNINGS = re.compile(r"kworker/(R|u?\d+:\d+H?)(?![^-])|jbd2/")
"""Of kernel threads whose names go on with a work queue's or a device's, which is left out."""

_MARKERS = tuple(2**64 - number for number in (32, 128, 512, 2048, 2176, 2560))
"""PERF_CONTEXT_*, between the parts of a call chain (include/uapi/linux/perf_event.h)."""
_TEXT_START = 0xFFFFFFFF80000000
_KERNEL_START = 0xFF00000000000000  # with five levels of page tables
_KERNEL_END = 0xFFFFFFFFFF000000
_FIRST_USER = 0x10000
_NEW_TEXT = 0xFFFFFFFF81000000
_NEW_KERNEL = 0xFFFF888000000000
_NEW_USER = 0x400000
_STEP = 16


LeftOut = defaultdict[str, dict[str, None]]
"""Names of what anonymising left out beside `REMOVED`, by what they are names of.

Names stay with the user, numbers go along."""


def anonymise_trace(trace: Trace, keep_names: Collection[str], left_out: LeftOut) -> Trace:
    """A Trace with other names and addresses: equal ones stay equal, addresses keep their order.

    `keep_names` are command names to keep besides the usual ones; `left_out` takes the events and
    fields that do not stay.
    """
    tables: dict[str, dict[str, np.ndarray]] = {}
    places = []
    words = [trace.callchains]
    replaced = [~np.isin(trace.callchains, np.array(_MARKERS, np.uint64))]
    for event, table in trace.tables.items():
        if event not in KEPT_EVENTS:
            left_out["other events"][event] = None
            continue
        tables[event] = {}
        declared = trace.declared_types.get(event, {})
        for name, values in table.items():
            if name.removesuffix(FIELD_SUFFIX) not in _KEPT_FIELDS:
                left_out["other fields of events"][f"{event}/{name}"] = None
                continue
            tables[event][name] = values
            if values.dtype == object:
                texts = [text if text in ZONE_NAMES else "" for text in values.tolist()]
                tables[event][name] = np.array(texts, object)
            elif values.dtype == np.uint64:
                # All addresses of the kernel, and those of programs where a pointer is expected;
                # small negative numbers are errors or counts.
                from_kernel = (values >= _KERNEL_START) & (values < _KERNEL_END)
                from_user = (values >= _FIRST_USER) & (values < _KERNEL_START)
                places.append((event, name))
                words.append(values)
                replaced.append(from_kernel | from_user & ("*" in declared.get(name, "")))
    together, chosen = np.concatenate(words), np.concatenate(replaced)
    together[chosen] = _renumbered(together[chosen])
    callchains, *columns = np.split(together, np.cumsum([len(part) for part in words])[:-1])
    for (event, name), column in zip(places, columns, strict=True):
        tables[event][name] = column
    names = _renamed(trace.thread_names, keep_names)
    comms = names.last()
    if not len(names):  # the source does not say when threads were named
        rows = [(0, tid, NAMED, name) for tid, name in trace.comms.items()]
        new_names = _renamed(ThreadNames.of(rows), keep_names).name
        comms = dict(zip(trace.comms, new_names.tolist(), strict=True))
    known_bits = {*stable_gfp_bits(None), *stable_gfp_bits((6, 1))}
    if trace.notes:
        left_out["notes of the reader"]["notes"] = None
    return replace(
        trace,
        tables=tables,
        callchains=callchains,
        thread_names=names,
        comms=comms,
        gfp_bits={
            name: bits
            for name, bits in trace.gfp_bits.items()
            if name in known_bits or re.fullmatch(r"_*GFP_[A-Z]+(_[A-Z]+){0,3}", name)
        },
        declared_types={
            event: {
                name: kind if kind in _TYPES else "void *" if "*" in kind else ""
                for name, kind in types.items()
                if name in tables[event]
            }
            for event, types in trace.declared_types.items()
            if event in tables
        },
        release=_from_start(_UNAME[2], trace.release),
        clock=trace.clock if trace.clock in _CLOCKS else "",
        scope=trace.scope if trace.scope in SCOPES else "",
        notes=(),
        sampled={name: value for name, value in trace.sampled.items() if name in KEPT_EVENTS},
    )


_TYPES = frozenset(
    f"{sign}{kind}"
    for sign in ("", "unsigned ")
    for kind in ("int", "long", "short", "char", "long long")
) | {"bool", "gfp_t", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "size_t", "pid_t"}


def _renamed(names: ThreadNames, keep_names: Collection[str]) -> ThreadNames:
    """Command names replaced in the order in which they come, but for those on the lists.

    That kthreadd is a thread's parent tells nothing: so it is of programs that the kernel starts.
    """
    new_names: dict[str, str] = {}
    texts = names.name.copy()
    for index in np.argsort(names.time_ns, kind="stable").tolist():
        text = texts[index]
        if names.parent[index] != NAMED or text in keep_names or _KEPT_NAMES.fullmatch(text):
            continue
        if beginning := _KEPT_BEGINNINGS.match(text):
            texts[index] = beginning[0]
        else:
            texts[index] = new_names.setdefault(text, f"t{len(new_names) + 1}")
    return replace(names, name=texts)


def _renumbered(values: np.ndarray) -> np.ndarray:
    """Addresses replaced by ones that keep order, equality, and user, data or text range."""
    distinct, which = np.unique(values, return_inverse=True)
    rank = np.arange(len(distinct), dtype=np.uint64) * np.uint64(_STEP)
    base = np.where(
        distinct >= _TEXT_START,
        np.uint64(_NEW_TEXT),
        np.where(distinct >= _KERNEL_START, np.uint64(_NEW_KERNEL), np.uint64(_NEW_USER)),
    )
    return (base + rank)[which]


def functions_of_chains(
    chains: np.ndarray, new_chains: np.ndarray, symbols: KernelSymbols
) -> bytes:
    """Content of a kallsyms file that names the functions of renumbered call chains, no others."""
    addresses, places = np.unique(chains, return_index=True)
    is_text = (addresses >= _TEXT_START) & (addresses < _KERNEL_END)
    lines = [
        f"{new:x} t {symbols.name_at(address)}\n"
        for address, new in zip(
            addresses[is_text].tolist(), new_chains[places[is_text]].tolist(), strict=True
        )
    ]
    return gzip.compress("".join(lines).encode(), compresslevel=9, mtime=0)


_COUNTERS = frozenset(
    re.findall(
        r"\w+",
        """
    allocstall allocstall_device allocstall_dma allocstall_dma32 allocstall_high
    allocstall_movable allocstall_normal balloon_deflate balloon_inflate balloon_migrate
    cma_alloc_fail cma_alloc_success compact_daemon_free_scanned compact_daemon_migrate_scanned
    compact_daemon_wake compact_fail compact_free_scanned compact_isolated
    compact_migrate_scanned compact_stall compact_success cow_ksm direct_map_level2_collapses
    direct_map_level2_splits direct_map_level3_collapses direct_map_level3_splits drop_pagecache
    drop_slab htlb_buddy_alloc_fail htlb_buddy_alloc_success ksm_swpin_copy kstack_16k kstack_1k
    kstack_2k kstack_32k kstack_4k kstack_64k kstack_8k kstack_rest
    kswapd_high_wmark_hit_quickly kswapd_inodesteal kswapd_low_wmark_hit_quickly nr_active_anon
    nr_active_file nr_anon_pages nr_anon_transparent_hugepages nr_balloon_pages nr_bounce
    nr_dirtied nr_dirty nr_dirty_background_threshold nr_dirty_threshold nr_file_hugepages
    nr_file_pages nr_file_pmdmapped nr_foll_pin_acquired nr_foll_pin_released nr_free_cma
    nr_free_pages nr_free_pages_blocks nr_gpu_active nr_gpu_reclaim nr_hugetlb nr_inactive_anon
    nr_inactive_file nr_iommu_pages nr_isolated_anon nr_isolated_file nr_kernel_file_pages
    nr_kernel_misc_reclaimable nr_kernel_stack nr_mapped nr_memmap_boot_pages nr_memmap_pages
    nr_mlock nr_page_table_pages nr_sec_page_table_pages nr_shadow_call_stack nr_shmem
    nr_shmem_hugepages nr_shmem_pmdmapped nr_slab_reclaimable nr_slab_unreclaimable
    nr_swapcached nr_throttled_written nr_tlb_local_flush_all nr_tlb_local_flush_one
    nr_tlb_remote_flush nr_tlb_remote_flush_received nr_unaccepted nr_unevictable nr_unstable
    nr_vmalloc nr_vmscan_immediate_reclaim nr_vmscan_write nr_writeback nr_writeback_temp
    nr_written nr_zone_active_anon nr_zone_active_file nr_zone_inactive_anon
    nr_zone_inactive_file nr_zone_unevictable nr_zone_write_pending nr_zspages nrswpin nrswpout
    numa_foreign numa_hint_faults numa_hint_faults_local numa_hit numa_huge_pte_updates
    numa_interleave numa_local numa_miss numa_other numa_pages_migrated numa_pte_updates
    oom_kill pageoutrun pgactivate pgalloc pgalloc_device pgalloc_dma pgalloc_dma32 pgalloc_high
    pgalloc_movable pgalloc_normal pgdeactivate pgdemote_direct pgdemote_khugepaged
    pgdemote_kswapd pgdemote_proactive pgfault pgfree pginodesteal pglazyfree pglazyfreed
    pgmajfault pgmigrate_fail pgmigrate_success pgpgin pgpgout pgpromote_candidate
    pgpromote_candidate_nrl pgpromote_success pgrefill pgreuse pgrotate_anon pgrotate_file
    pgrotated pgscan_anon pgscan_direct pgscan_direct_throttle pgscan_file pgscan_khugepaged
    pgscan_kswapd pgscan_proactive pgskip pgskip_device pgskip_dma pgskip_dma32 pgskip_high
    pgskip_movable pgskip_normal pgsteal_anon pgsteal_direct pgsteal_file pgsteal_khugepaged
    pgsteal_kswapd pgsteal_proactive pswpin pswpout slabs_scanned swap_ra swap_ra_hit swpin_zero
    swpout_zero thp_collapse_alloc thp_collapse_alloc_failed thp_deferred_split_page
    thp_fault_alloc thp_fault_fallback thp_fault_fallback_charge thp_file_alloc
    thp_file_fallback thp_file_fallback_charge thp_file_mapped thp_migration_fail
    thp_migration_split thp_migration_success thp_scan_exceed_none_pte thp_scan_exceed_share_pte
    thp_scan_exceed_swap_pte thp_split_page thp_split_page_failed thp_split_pmd thp_split_pud
    thp_swpout thp_swpout_fallback thp_underused_split_page thp_zero_page_alloc
    thp_zero_page_alloc_failed unevictable_pgs_cleared unevictable_pgs_culled
    unevictable_pgs_mlocked unevictable_pgs_munlocked unevictable_pgs_rescued
    unevictable_pgs_scanned unevictable_pgs_stranded vma_lock_abort vma_lock_miss vma_lock_retry
    vma_lock_success workingset_activate_anon workingset_activate_file workingset_nodereclaim
    workingset_nodes workingset_refault_anon workingset_refault_file workingset_restore_anon
    workingset_restore_file zone_reclaim_failed zone_reclaim_success zswpin zswpout zswpwb""",
    )
)
"""Lines of /proc/vmstat (mm/vmstat.c, 6.1 to 7.3); zoneinfo has some of them for each zone."""
_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
    DMA DMA32 Normal HighMem Movable Device Unmovable Reclaimable HighAtomic CMA Isolate Free Node
    Number Page Pages of at batch block blocks boost cma count cpu free high high_max high_min low
    managed migrate min node node_unreclaimable all_unreclaimable order pages pagesets per present
    promo protection spanned start_pfn stats threshold type vm zone is_empty pcp scanned
    reserved_highatomic free_highatomic some full avg10 avg60 avg300 total""",
    )
)
_SEPARATORS = re.compile(r"[\s:,()>.=-]*")
_WORD_OR_NUMBER = re.compile(r"\w+")
_CPU_OR_NUMBER = re.compile(r"(?:cpu)?\d{0,13}")
"""A number of more digits than any counter reaches may be an address."""


def _is_kernel_line(line: str) -> bool:
    """A line of zoneinfo, buddyinfo, pagetypeinfo, vmstat, stat or pressure/memory, and no more."""
    begin = 0
    for word in _WORD_OR_NUMBER.finditer(line):
        known = word[0] in _WORDS or word[0] in _COUNTERS or _CPU_OR_NUMBER.fullmatch(word[0])
        if not known or not _SEPARATORS.fullmatch(line, begin, word.start()):
            return False
        begin = word.end()
    return _SEPARATORS.fullmatch(line, begin) is not None


_FOLIO_LINE = re.compile(
    r"hugepages-\d{1,9}kB/(anon|nr|shmem|split)(_(anon|fault|alloc|fallback|charge|failed))*"
    r" \d{1,13}"
)
_MEMINFO_LINE = re.compile(
    r"(?:Mem|Swap|Active|Inactive|Commit|Vmalloc|HugePages_|Huge|Direct|Anon|File|Shmem|K|S|Cma|Z"
    r"|Zswap|Zswapped|Buffers|Cached|Dirty|Writeback|Mapped|Mlocked|Unevictable|Slab|PageTables"
    r"|Percpu|Hardware|Balloon|Unaccepted|NFS_|Bounce|SecPageTables|Committed)"
    r"(?:Total|Free|Available|Cached|\(anon\)|\(file\)|ed|Limit|_AS|Used|Chunk|Rsvd|Surp|pagesize"
    r"|tlb|Map4k|Map2M|Map1G|Map4M|Pages|HugePages|PmdMapped|Reclaimable|Stack|Unreclaim|Corrupted"
    r"|Unstable|Tmp|pped)?:\s+\d{1,14}(?: kB)?"
)
_VM_SYSCTLS = frozenset(
    re.findall(
        r"[\w-]+",
        """admin_reserve_kbytes block_dump compact_unevictable_allowed compaction_proactiveness
    defrag_mode dirty_background_bytes dirty_background_ratio dirty_bytes dirty_expire_centisecs
    dirty_ratio dirty_writeback_centisecs dirtytime_expire_seconds enable_soft_offline
    extfrag_threshold highatomic_gate_order hugetlb_optimize_vmemmap hugetlb_shm_group laptop_mode
    legacy_va_layout lowmem_reserve_ratio max_map_count memfd_noexec memory_failure_early_kill
    memory_failure_recovery min_free_kbytes min_slab_ratio min_unmapped_ratio mmap_min_addr
    mmap_rnd_bits mmap_rnd_compat_bits movable_gigantic_pages nr_hugepages nr_hugepages_mempolicy
    nr_overcommit_hugepages numa_stat numa_zonelist_order oom_dump_tasks oom_kill_allocating_task
    overcommit_kbytes overcommit_memory overcommit_ratio page-cluster page_lock_unfairness
    panic_on_oom pcp_free_batched percpu_pagelist_high_fraction stat_interval swappiness
    unprivileged_userfaultfd user_reserve_kbytes vfs_cache_pressure vfs_cache_pressure_denom
    watermark_boost_factor watermark_scale_factor zone_reclaim_mode""",
    )
)
PAGE_FLAGS = np.uint64((1 << 28) - 1)
"""The kernel's own bits of /proc/kpageflags (include/uapi/linux/kernel-page-flags.h)."""


def anonymise_snapshot(snapshot: Snapshot, destination: Path, left_out: LeftOut) -> None:
    """Write a snapshot's state files into a new directory, of each the lines a kernel prints."""
    destination.mkdir(parents=True)
    for name in snapshot.names():
        if name == READ_TIMES_FILE:
            read_ns = snapshot.read_ns or {}
            times = {file: span for file, span in read_ns.items() if file in KNOWN_FILES}
            (destination / name).write_text(format_read_times(times), encoding="ascii")
        elif name in KNOWN_FILES:
            text = snapshot.text(name)
            lines = text.splitlines() if text is not None else []
            is_known = _FOLIO_LINE.fullmatch if name == FOLIO_STATS_FILE else _is_kernel_line
            known = [line for line in lines if is_known(line)]
            if len(known) < max(len(lines), text is None):
                left_out["state files with lines that no kernel prints"][name] = None
            (destination / name).write_text(
                "".join(f"{line}\n" for line in known), encoding="ascii"
            )
        else:
            left_out["other files of snapshots"][name] = None


def anonymise_profile(path: Path) -> str:
    """A profile's text with the functions that say something of zone->lock, and dashes."""
    known = {*HOLDS, *LETS_GO, UNLOCK}
    chains: Counter[str] = Counter()
    for line in text_of(path, "utf-8", todo="record the profile again").splitlines():
        chain, _, count = line.rpartition(" ")
        if not re.fullmatch(r"[0-9]{1,15}", count):
            continue
        functions = [
            name if name in known else next((lock for lock in LOCK if name.startswith(lock)), "-")
            for name in (function.partition(".")[0] for function in chain.split(";"))
        ]
        chains[";".join(functions)] += int(count)
    return "".join(f"{chain} {count}\n" for chain, count in sorted(chains.items()))


def anonymise_meta(meta: Mapping[str, Any], left_out: LeftOut) -> dict[str, Any]:
    """meta.json's keys and values that say nothing of who recorded what."""
    harmless = {}
    for key, value in meta.items():
        clean = _META.get(key)
        if clean is not None:
            harmless[key] = clean(value)
        elif key != "cmdline":
            left_out["other keys of meta.json"][key] = None
    if "cmdline" in meta:
        harmless["cmdline"] = None
    return harmless


def _from_start(pattern: str, text: object) -> str:
    """The part of a text that the pattern matches, "" for none."""
    match = re.match(pattern, text) if isinstance(text, str) else None
    return match[0] if match else ""


def _texts(pattern: str, keys: str = "(?!)") -> Callable[[Any], Any]:
    """Numbers stay; of texts what the pattern matches from their beginning, of keys whole ones."""

    def clean(value: Any) -> Any:
        if isinstance(value, bool | int | float) or value is None:
            return value
        if isinstance(value, str):
            return _from_start(pattern, value)
        if isinstance(value, list):
            return [clean(element) for element in value]
        return {key: clean(v) for key, v in value.items() if re.fullmatch(keys, key)}

    return clean


def _any_of(names: Collection[str]) -> str:
    return "|".join(map(re.escape, sorted(names)))


_number = _texts("(?!)")


_UNAME = (
    r"Linux",
    r"(?!)",
    r"\d+\.\d+(\.\d+)?(-rc\d+)?",
    r"#\d+( SMP)?( PREEMPT\w{0,8})?",
    r"(x86_64|aarch64|i686|ppc64le|s390x|riscv64)$",
)


def _uname(value: Any) -> Any:
    if not isinstance(value, list):
        return None
    words = [*map(str, value), *[""] * len(_UNAME)]
    harmless = [_from_start(pattern, word) for pattern, word in zip(_UNAME, words, strict=False)]
    harmless[1] = ANONYMOUS
    return harmless[: max(len(value), 3)]


def _command(value: Any) -> Any:
    words = [str(word).rsplit("/", 1)[-1] for word in value[:1]] if isinstance(value, list) else []
    return [word if _KEPT_NAMES.fullmatch(word) else ANONYMOUS for word in words] or None


_PERF_WORD = re.compile(
    rf"perf|record|-[aqkmcFrzegoDN]|--[a-z-]{{1,20}}|-z=\d+|-[1-9]|\d+[kKMGB]?|CLOCK_[A-Z_]+|fp|lbr"
    rf"|fd:\d+,\d+|dwarf|perf\.data|({_any_of(KEPT_EVENTS)})(/call-graph=fp(,max-stack=\d+)?/)?"
)
_TASKS_OR_CPUS = re.compile(
    r"(-p|--pid|-t|--tid|-u|--uid|-G|--cgroup|-C|--cpu|--all-cpus)(?![a-z-])"
)


_LONG_OPTIONS = ("--control", "--call-graph", "--timestamp", "--no-buildid", "--no-bpf-event")


def _perf(value: Any) -> Any:
    words = [str(word) for word in value] if isinstance(value, list) else []
    cleaned = []
    for word in words[: words.index("--")] if "--" in words else words:
        last = word.rsplit("/", 1)[-1] if "/" in word and ":" not in word else word
        long_option = last.startswith("--") and last not in _LONG_OPTIONS
        if (chosen := _TASKS_OR_CPUS.match(word)) is not None:
            cleaned.append(chosen[0])
        else:
            known = _PERF_WORD.fullmatch(last) and not long_option
            cleaned.append(last if known else ANONYMOUS)
    return cleaned


def _lines(value: Any) -> Any:
    lines = value.splitlines() if isinstance(value, str) else []
    return "".join(f"{line}\n" for line in lines if _MEMINFO_LINE.fullmatch(line)) or None


def _sysctls(value: Any) -> Any:
    settings = value if isinstance(value, dict) else {}
    return {
        name: value
        if value is None or type(value) is int
        else _from_start(r"-?\d+(\s+-?\d+)*", value) or None
        for name, value in settings.items()
        if name in _VM_SYSCTLS
    }


def _profile(value: Any) -> Any:
    profile = dict(value or {})
    by_clock = str(profile.get("event", "")).startswith(CLOCK_EVENT)
    numbers = ("sample_ns", "seconds", "repeats_command")
    cleaned = {name: _number(number) for name, number in profile.items() if name in numbers}
    return cleaned | {"event": CLOCK_EVENT if by_clock else "cycles"}


_THP_VALUES = (
    r"(\s*(\[?(always|madvise|never|defer\+madvise|defer|within_size|advise|deny|force|inherit"
    r"|auto)\]?|\d+)(?!\w))+"
)
_META: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("bundle_version", "nr_cpus", "cpu_nodes", "node_distances", "rc"), _number),
    **dict.fromkeys(("start_ns", "end_ns", "interval_s", "hypervisor", "kswapd_slept"), _number),
    **dict.fromkeys(("kpageflags_at_ns", "kpageflags_without", "page_owner_at_ns"), _number),
    "uname": _uname,
    "clock": _texts(r"CLOCK_(MONOTONIC_RAW|MONOTONIC|REALTIME|BOOTTIME|TAI)$"),
    "command": _command,
    "perf": _perf,
    "meminfo": _lines,
    "cpuinfo_model": _texts(r"(Intel|AMD|QEMU|ARM|IBM|Apple|Ampere)\b"),
    "sysctl": _sysctls,
    "thp": _texts(
        _THP_VALUES,
        r"enabled|defrag|shmem_enabled|use_zero_page|hpage_pmd_size|split_underused_thp"
        r"|khugepaged/(defrag|full_scans|pages_collapsed|pages_to_scan|\w+_sleep_millisecs"
        r"|max_ptes_\w{4,6})|hugepages-\d+kB/(shmem_)?enabled",
    ),
    "profile": _profile,
    "provenance": _texts(
        r"[0-9a-f]{64}$|(pagealloc_model|mapp) [\d.]+$",
        "source_sha256|window_ns|window_starts_at_recording_start|window_reaches_recording_end"
        "|page_allocator_events|made_by|anonymised|earlier",
    ),
    "package": _texts(r"pagealloc_model [\d.]+"),
    "perf_version": _texts(r"(perf version )?\d+(\.\d+)*"),
    "topology": _texts(
        r"\d+K|[\d,-]+|(Data|Instruction|Unified)$", r"online|possible|cpus|\d+|package|core|caches"
    ),
    "config": _texts(r"[ymn]$|\d+$", KEPT_CONFIG.pattern),
    "lockdown": _texts(r"(\s*\[?(none|integrity|confidentiality)\]?(?!\w))+"),
    "probes": _texts(rf"[pr]\d*:{GROUP}/({_any_of({probe.event for probe in PROBES})}) "),
    "missing_events": _texts(rf"({_any_of(KEPT_EVENTS)})$"),
    "ended_by": _texts(r"(command|perf|seconds|time|disk|SIG(INT|TERM|HUP|QUIT))$"),
}
