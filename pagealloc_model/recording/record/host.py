"""The machine that is recorded."""

from __future__ import annotations

import contextlib
import gzip
import os
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pagealloc_model.base.version import __version__

CAP_SYS_ADMIN = 21
CAP_SYS_NICE = 23
CAP_PERFMON = 38


@dataclass(frozen=True, kw_only=True)
class Host:
    """The machine to record: its mounts, effective user and kernel, as `uname -r` prints it.

    Tests point it at directories of their own.
    """

    proc: Path = Path("/proc")
    sysfs: Path = Path("/sys")
    boot: Path = Path("/boot")
    user: int = field(default_factory=os.geteuid)
    release: str = field(default_factory=lambda: os.uname().release)

    @cached_property
    def tracefs(self) -> Path | None:
        """The mounted tracefs, None if there is none or it may not be entered."""
        for place in (self.sysfs / "kernel/tracing", self.sysfs / "kernel/debug/tracing"):
            if os.path.isdir(place / "events"):
                return place
        return None

    @property
    def debugfs(self) -> Path:
        """Where debugfs is mounted, if it is."""
        return self.sysfs / "kernel/debug"

    @cached_property
    def lockdown(self) -> str:
        """The lockdown level in force: "none", "integrity" or "confidentiality"."""
        text = read_or_none(self.sysfs / "kernel/security/lockdown") or ""
        chosen = [word.strip("[]") for word in text.split() if word.startswith("[")]
        return chosen[0] if chosen else "none"

    @cached_property
    def cpus(self) -> int:
        """Online CPUs."""
        return len(_listed(self.sysfs / "devices/system/cpu/online")) or os.cpu_count() or 1

    @cached_property
    def available_memory(self) -> int:
        """Bytes of MemAvailable, 0 if unknown."""
        for line in (read_or_none(self.proc / "meminfo") or "").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
        return 0

    def has_capability(self, *numbers: int) -> bool:
        """True where this process holds one of some capabilities."""
        for line in (read_or_none(self.proc / "self/status") or "").splitlines():
            if line.startswith("CapEff:"):
                held = int(line.split()[1], 16)
                return any(held >> number & 1 for number in numbers)
        return self.user == 0

    def setting(self, name: str) -> int | None:
        """A number below /proc/sys, None if absent or unreadable."""
        text = read_or_none(self.proc / "sys" / name)
        try:
            return int(text) if text is not None else None
        except ValueError:
            return None


def read_or_none(path: Path) -> str | None:
    """A file's text, None where it is absent or may not be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _stripped(path: Path) -> str | None:
    text = read_or_none(path)
    return None if text is None else text.strip()


def _listed(file: Path) -> list[int]:
    """CPU numbers of a list such as "0-3,8", as sysfs prints it."""
    numbers: list[int] = []
    for part in (_stripped(file) or "").split(","):
        first, _, last = part.partition("-")
        if first.isdecimal():
            numbers += range(int(first), int(last or first) + 1)
    return numbers


_KNOWN_SYSCTLS = (
    *("defrag_mode", "highatomic_gate_order", "pcp_free_batched", "min_free_kbytes"),
    *("watermark_scale_factor", "watermark_boost_factor", "percpu_pagelist_high_fraction"),
    *("compaction_proactiveness", "extfrag_threshold", "lowmem_reserve_ratio", "stat_interval"),
    "zone_reclaim_mode",
)
_NOT_SETTINGS = ("stat_refresh", "compact_memory", "drop_caches")
"""Files among the sysctls whose access does something."""

KEPT_CONFIG = re.compile(
    r"CONFIG_(ARCH_FORCE_MAX_ORDER|CMA.*|COMPACT.*|CONTIG_ALLOC|DEBUG_PAGEALLOC.*|DEBUG_VM"
    r"|DEFERRED_STRUCT_PAGE_INIT|HIGHMEM|HUGETLB_PAGE.*|HZ|INIT_ON_.*|KASAN|KPROBE.*|LOCKDEP"
    r"|LOCK_STAT|LRU_GEN.*|MEMCG|MEMORY_HOTPLUG|MEMORY_ISOLATION|NR_CPUS|NUMA|NUMA_BALANCING"
    r"|PAGE_BLOCK.*|PAGE_EXTENSION|PAGE_OWNER|PAGE_POISONING|PAGE_REPORTING|PAGE_SIZE_.*"
    r"|PAGE_TABLE_CHECK|PARAVIRT_SPINLOCKS|PCP_BATCH_SCALE_MAX|PREEMPT.*|QUEUED_SPINLOCKS"
    r"|SHUFFLE_PAGE_ALLOCATOR|SMP|SPARSEMEM.*|TRANSPARENT_HUGEPAGE.*|ZONE_.*)"
)
"""Options of the kernel's configuration that bear on the allocator."""


def machine_meta(host: Host) -> dict[str, Any]:
    """Facts of the machine, whatever is recorded; what cannot be read is null."""
    cpuinfo: dict[str, str] = {}
    for line in (read_or_none(host.proc / "cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        cpuinfo.setdefault(key.strip(), value.strip())
    sysfs = host.sysfs / "devices/system"
    nodes = sorted(
        (int(node.name.removeprefix("node")), node) for node in sysfs.glob("node/node[0-9]*")
    )
    node_of = {cpu: number for number, node in nodes for cpu in _listed(node / "cpulist")}
    cpus, online = sysfs / "cpu", _listed(sysfs / "cpu/online")
    distances = [(_stripped(node / "distance") or "").split() for _, node in nodes]
    # Every vm sysctl as text, and null for those that matter and this kernel lacks.
    sysctl: dict[str, str | None] = dict.fromkeys(_KNOWN_SYSCTLS)
    with contextlib.suppress(OSError):
        for file in sorted((host.proc / "sys/vm").iterdir()):
            text = None
            if file.is_file() and file.name not in _NOT_SETTINGS:
                text = _stripped(file)
            if text is not None:
                sysctl[file.name] = text
    # THP settings as raw text, by path below transparent_hugepage.
    directory = host.sysfs / "kernel/mm/transparent_hugepage"
    thp = {name: _stripped(directory / name) for name in ("enabled", "defrag")}
    for file in sorted(directory.glob("*")) + sorted(directory.glob("*/*")):
        name = str(file.relative_to(directory))
        if (file.is_file() and not name.startswith("hugepages-")) or name.endswith("/enabled"):
            thp[name] = _stripped(file)
    cache_files = ("level", "type", "size", "shared_cpu_list")
    return {
        "bundle_version": 1,
        "package": f"pagealloc_model {__version__}",
        "uname": list(os.uname()),
        "clock": "CLOCK_MONOTONIC",
        "nr_cpus": host.cpus,
        "cmdline": _stripped(host.proc / "cmdline"),
        "meminfo": read_or_none(host.proc / "meminfo"),
        "cpuinfo_model": cpuinfo.get("model name"),
        "hypervisor": "hypervisor" in cpuinfo["flags"].split() if "flags" in cpuinfo else None,
        "sysctl": sysctl,
        "thp": thp,
        # From 0 to the last online; one that is offline is put on the first node.
        "cpu_nodes": [
            node_of.get(cpu, nodes[0][0]) for cpu in range(max(online, default=-1) + 1) if nodes
        ],
        "node_distances": [[int(word) for word in row] for row in distances],
        "topology": {
            "online": _stripped(cpus / "online"),
            "possible": _stripped(cpus / "possible"),
            "cpus": {
                str(number): {
                    "package": _stripped(cpus / f"cpu{number}/topology/physical_package_id"),
                    "core": _stripped(cpus / f"cpu{number}/topology/core_id"),
                    "caches": [
                        [_stripped(cache / name) for name in cache_files]
                        for cache in sorted(cpus.glob(f"cpu{number}/cache/index*"))
                    ],
                }
                for number in online
            },
        },
        "config": _configuration(host),
        "lockdown": host.lockdown,
    }


def _configuration(host: Host) -> dict[str, str] | None:
    """Options of the kernel's configuration that bear on the allocator; None if unreadable."""
    text: str | None
    try:
        text = gzip.decompress((host.proc / "config.gz").read_bytes()).decode("utf-8", "replace")
    except (OSError, EOFError):
        text = read_or_none(host.boot / f"config-{host.release}")
    if text is None:
        return None
    pairs = (line.partition("=") for line in text.splitlines() if line.startswith("CONFIG_"))
    return {name: value for name, _, value in pairs if KEPT_CONFIG.fullmatch(name)}
