"""Checks of what this machine can record, and what each lack costs."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pagealloc_model.base.errors import UsageError
from pagealloc_model.recording.record import perf, probes
from pagealloc_model.recording.record.children import clean_environment
from pagealloc_model.recording.record.host import CAP_PERFMON, CAP_SYS_ADMIN, Host, read_or_none
from pagealloc_model.recording.record.perf_python import load_perf_module, module_words
from pagealloc_model.recording.trace import tracepoints as tp

_FAST_CLOCKS = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "xen", "arch_sys_counter")
_STATE_FILES = (
    (
        "pagetypeinfo",
        "free lists by migratetype and pageblock types cannot be compared",
        "boot a kernel with CONFIG_PROC_FS and CONFIG_COMPACTION or its like",
    ),
    (
        "pressure/memory",
        "predicted memory pressure has nothing beside it but the stalls' own events",
        "boot a kernel with CONFIG_PSI, and with psi=1",
    ),
    (
        "kpageflags",
        "a replay starts from a random placement",
        "boot a kernel with CONFIG_PROC_PAGE_MONITOR",
    ),
    (
        "kcore",
        "the machine's own state is not read, so places of pages on lists are drawn at random",
        "boot a kernel with CONFIG_PROC_KCORE and CONFIG_DEBUG_INFO_BTF, without lockdown",
    ),
    (
        "page_owner",
        "ages of the pages allocated at the start are unknown",
        "boot with page_owner=on and mount debugfs, if ages are worth the slowdown",
    ),
)
_BROWSERS = (
    *("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"),
    *("chrome", "microsoft-edge"),
)
_GIB = 1 << 30
_TRIAL_TIMEOUT_S = 60


@dataclass(frozen=True)
class Check:
    """One thing looked at, and what was found.

    `cost` is what that makes impossible or worse, "" if nothing; `blocks`: nothing can be recorded.
    """

    name: str
    found: str
    cost: str = ""
    todo: str = ""
    blocks: bool = False


def _check(name: str, state: str, lack: tuple[str, str] | None = None) -> Check:
    """A check with what a lack costs and what to do about it, None if there is none."""
    return Check(name, state, *(lack or ()))


def _blocked(name: str, state: str, todo: str) -> Check:
    return Check(name, state, "nothing can be recorded", todo, blocks=True)


def require_recordable(host: Host) -> perf.PerfTool:
    """The perf to record with; a UsageError if something is in the way."""
    for check in recording_checks(host):
        if check.blocks:
            raise UsageError(f"cannot record: {check.found}; {check.todo}")
    return perf.find_perf()


def recording_checks(host: Host) -> Iterator[Check]:
    """Everything a recording depends on, the most basic first."""
    try:
        tool = perf.find_perf()
    except UsageError as error:
        state, _, todo = str(error).partition("; ")
        yield _blocked("perf", state, todo)
    else:
        larger = ("recordings are about ten times larger", "install a perf built with zstd")
        state = f"{tool.path}, version {tool.version}" + ", without zstd" * (not tool.compresses)
        yield _check("perf", state, None if tool.compresses else larger)
    if host.user == 0:
        yield _check("root", "yes")
    else:
        command = shutil.which(sys.argv[0]) or sys.argv[0]
        by_module = command.endswith(".py")
        program = f"{sys.executable} -m pagealloc_model.cli" if by_module else shlex.quote(command)
        yield _blocked("root", f"not root (user {host.user})", f"run: sudo {program} record ...")
    if host.lockdown == "confidentiality":
        yield _blocked(
            "lockdown",
            "kernel lockdown is at confidentiality, so perf cannot save the events' formats",
            "boot with lockdown=integrity or without lockdown",
        )
    else:
        lack = ("page_owner cannot be read", "boot without lockdown if it is needed")
        yield _check("lockdown", host.lockdown, lack if host.lockdown == "integrity" else None)
    yield from _tracepoints(host)
    level = host.setting("kernel/perf_event_paranoid")
    state = f"perf_event_paranoid is {'unknown' if level is None else level}"
    if host.has_capability(CAP_PERFMON, CAP_SYS_ADMIN):
        yield _check("permission", f"{state}, which this user may pass over")
    elif level == -1:
        yield _check("permission", state)
    else:
        yield _blocked(
            "permission",
            f"{state} and this process lacks CAP_PERFMON",
            "run as root outside a container, or: sysctl kernel.perf_event_paranoid=-1",
        )
    level = host.setting("kernel/kptr_restrict")
    hidden = (
        "ticks of the per-CPU lists' decay are not recorded",
        "while recording: sysctl kernel.kptr_restrict=1",
    )
    state = "unknown" if level is None else str(level)
    yield _check("kptr_restrict", state, hidden if (level or 0) >= 2 else None)
    file = host.sysfs / "devices/system/clocksource/clocksource0/current_clocksource"
    source = (read_or_none(file) or "unknown").strip()
    slow = (
        "reading the time is slow, so recording slows the allocator more than usual",
        f"boot with a faster clocksource, such as {_FAST_CLOCKS[0]}",
    )
    is_fast = source in (*_FAST_CLOCKS, "unknown")
    yield _check("clock", f"CLOCK_MONOTONIC from {source}", None if is_fast else slow)
    yield _probes(host)
    for name, cost, todo in _STATE_FILES:
        is_owner = name == "page_owner"
        readable = os.access((host.debugfs if is_owner else host.proc) / name, os.R_OK)
        if readable and not (is_owner and host.lockdown != "none"):
            yield _check(name, "readable")
        else:
            yield _check(name, "not readable", (cost, "see root" if host.user else todo))


def _tracepoints(host: Host) -> Iterator[Check]:
    if host.tracefs is None:
        state, todo = "tracefs cannot be read without root", "see root"
        if host.user == 0:
            state = "tracefs is not mounted"
            todo = f"run: mount -t tracefs tracefs {host.sysfs / 'kernel/tracing'}"
        yield _blocked("tracefs", state, todo)
        return
    yield _check("tracefs", str(host.tracefs))
    available = perf.available_events(host.tracefs)
    usual = [name for name in tp.USUAL if name not in tp.RECENT]
    lacking = [name for name in usual if name not in available]
    essential = [name for name in tp.ESSENTIAL if name not in available]
    if essential:
        yield _blocked(
            "tracepoints",
            f"this kernel has no tracepoint {essential[0]}",
            "boot a kernel with CONFIG_TRACEPOINTS and CONFIG_ENABLE_DEFAULT_TRACERS or FTRACE",
        )
    elif lacking:
        cost = f"not recorded: {', '.join(lacking)}"
        todo = "nothing, unless a study needs them: other kernels have them"
        state = f"{len(usual) - len(lacking)} of {len(usual)}"
        yield _check("tracepoints", state, (cost, todo))
    else:
        yield _check("tracepoints", f"all {len(usual)}")
    costs = [f"without {name}, {cost}" for name, cost in tp.RECENT.items() if name not in available]
    count = len(tp.RECENT)
    state = f"{count - len(costs)} of {count}" if costs else f"all {count}"
    lack = ("; ".join(costs), "nothing: most kernels lack them") if costs else None
    yield _check("lock tracepoints", state, lack)


def _probes(host: Host) -> Check:
    left = probes.leftover_probes(host)
    if left:
        cost = "a recording is running, or one was killed and left them"
        todo = "the next recording removes what is left over"
        return _check("kprobes", f"{', '.join(left)} are set", (cost, todo))
    if probes.probe_file(host) is None:
        cost = "; ".join(dict.fromkeys(probe.lack for probe in probes.PROBES))
        if host.user:
            return _check("kprobes", "no kprobes without root", (cost, "see root"))
        todo = "boot a kernel with CONFIG_KPROBE_EVENTS"
        return _check("kprobes", "none in this kernel", (cost, todo))
    lacking = probes.functions_lacking(host)
    if not lacking:
        return _check("kprobes", "permitted")
    cost = "; ".join(dict.fromkeys(lacking.values()))
    todo = "nothing: the compiler inlined them, or the kernel has others"
    return _check("kprobes", f"permitted; no functions here: {', '.join(lacking)}", (cost, todo))


def examine(host: Host, directory: Path) -> list[Check]:
    """All checks for recording into a directory, with a short trial where nothing is in its way."""
    checks = list(recording_checks(host))
    if not any(check.blocks for check in checks):
        checks.append(_trial(host))
    # What matters to working with recordings rather than to making them.
    browsers = (os.environ.get("BROWSER_PATH") or "", *_BROWSERS)
    browser = next((path for name in browsers if name and (path := shutil.which(name))), "")
    without = (
        "figures are exported as HTML only, and browser tests are skipped",
        "install chromium, or set BROWSER_PATH",
    )
    state = browser or "no Chromium or Chrome"
    checks.append(_check("browser", state, None if browser else without))
    try:
        checks.append(_check("perf module", module_words(load_perf_module())))
    except UsageError as error:
        state, _, todo = str(error).partition("; ")
        cost = "events cannot be read live from Python; recordings do not need it"
        checks.append(_check("perf module", state, (cost, todo)))
    checks.append(_check("CPUs", str(host.cpus)))
    memory, disk = host.available_memory, shutil.disk_usage(directory).free
    little = ("long recordings do not fit", "cut them with pagealloc trim")
    state = f"{memory / _GIB:.1f} GiB free"
    checks.append(_check("memory", state, little if memory < 2 * _GIB else None))
    little = ("a busy machine writes tens of megabytes a second", "record to another disk with -o")
    state = f"{disk / _GIB:.1f} GiB free"
    checks.append(_check("disk", state, little if disk < _GIB else None))
    return checks


def require_trial(host: Host, buffer_bytes: int) -> None:
    """Refuse a machine that cannot be recorded with such buffers; a short trial tells."""
    require_recordable(host)
    check = _trial(host, buffer_bytes)
    if check.blocks:
        raise UsageError(f"cannot record: {check.found}; {check.todo}")


def _trial(host: Host, buffer_bytes: int = 1 << 20) -> Check:
    """Record two events for an instant: only perf itself knows whether it may."""
    with tempfile.TemporaryDirectory() as place:
        output = Path(place) / "perf.data"
        arguments = perf.record_arguments(perf.find_perf(), buffer_bytes)
        try:
            with output.open("wb") as written:
                tried = subprocess.run(
                    [*arguments, *perf.event_arguments(tp.ESSENTIAL, host), "--", "true"],
                    env=clean_environment(),
                    stdout=written,
                    stderr=subprocess.PIPE,
                    text=True,
                    errors="replace",
                    check=False,
                    timeout=_TRIAL_TIMEOUT_S,
                )
        except subprocess.TimeoutExpired:
            state = f"perf record took over {_TRIAL_TIMEOUT_S} s"
            return _blocked("recording", state, "try the same perf record by hand")
        why = perf.why_unusable(output)
    if tried.returncode or why:
        state, _, todo = perf.explain_failure(tried.stderr, tried.returncode, why).rpartition("; ")
        return _blocked("recording", state, todo)
    return _check("recording", "a trial recording works")
