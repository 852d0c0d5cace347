"""What this machine can record, and what each lack costs."""

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
from pagealloc_model.recording.record.host import CAP_PERFMON, CAP_SYS_ADMIN, Host, read_or_none
from pagealloc_model.recording.record.perf import (
    ESSENTIAL_EVENTS,
    RECENT_EVENTS,
    PerfTool,
    available_events,
    event_arguments,
    explain_failure,
    find_perf,
    record_arguments,
    usual_events,
    why_unusable,
)
from pagealloc_model.recording.record.perf_python import perf_python_state
from pagealloc_model.recording.record.probes import (
    PROBES,
    functions_lacking,
    leftover_probes,
    probe_file,
)

_FAST_CLOCKS = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "xen", "arch_sys_counter")


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing looked at.

    Attributes:
        name: what.
        found: what was found, in a few words.
        cost: what that makes impossible or worse; "" if nothing.
        todo: what to do about it.
        blocks: whether nothing can be recorded because of it.
    """

    name: str
    found: str
    cost: str = ""
    todo: str = ""
    blocks: bool = False


def _blocked(name: str, found: str, todo: str) -> Check:
    return Check(name=name, found=found, cost="nothing can be recorded", todo=todo, blocks=True)


def require_recordable(host: Host) -> PerfTool:
    """The perf to record with."""
    for check in recording_checks(host):
        if check.blocks:
            raise UsageError(f"cannot record: {check.found}; {check.todo}")
    return find_perf()


def recording_checks(host: Host) -> Iterator[Check]:
    """Everything a recording depends on, the most basic first."""
    yield _perf()
    yield _root(host)
    yield _lockdown(host)
    yield from _tracepoints(host)
    yield _paranoid(host)
    yield _addresses(host)
    yield _clock(host)
    yield _probes(host)
    yield from _state_files(host)


def _perf() -> Check:
    try:
        tool = find_perf()
    except UsageError as error:
        found, _, todo = str(error).partition("; ")
        return _blocked("perf", found, todo)
    if tool.compresses:
        return Check(name="perf", found=f"{tool.path}, version {tool.version}")
    return Check(
        name="perf",
        found=f"{tool.path}, version {tool.version}, without zstd",
        cost="recordings are about ten times larger",
        todo="install a perf built with zstd",
    )


def _root(host: Host) -> Check:
    if host.user == 0:
        return Check(name="root", found="yes")
    command = shutil.which(sys.argv[0]) or sys.argv[0]
    if command.endswith(".py"):
        command = f"{sys.executable} -m pagealloc_model.cli"
    else:
        command = shlex.quote(command)
    return _blocked("root", f"not root (user {host.user})", f"run: sudo {command} record ...")


def _lockdown(host: Host) -> Check:
    level = host.lockdown
    if level == "confidentiality":
        return _blocked(
            "lockdown",
            "kernel lockdown is at confidentiality, so perf cannot save the events' formats",
            "boot with lockdown=integrity or without lockdown",
        )
    if level == "integrity":
        return Check(
            name="lockdown",
            found="integrity",
            cost="page_owner cannot be read",
            todo="boot without lockdown if it is needed",
        )
    return Check(name="lockdown", found=level)


def _tracepoints(host: Host) -> Iterator[Check]:
    if host.tracefs is None:
        if host.user != 0:
            yield _blocked("tracefs", "tracefs cannot be read without root", "see root")
            return
        yield _blocked(
            "tracefs",
            "tracefs is not mounted",
            f"run: mount -t tracefs tracefs {host.sysfs / 'kernel/tracing'}",
        )
        return
    yield Check(name="tracefs", found=str(host.tracefs))
    available = available_events(host.tracefs)
    usual = [name for name in usual_events() if name not in RECENT_EVENTS]
    lacking = [name for name in usual if name not in available]
    essential = [name for name in ESSENTIAL_EVENTS if name not in available]
    if essential:
        yield _blocked(
            "tracepoints",
            f"this kernel has no tracepoint {essential[0]}",
            "boot a kernel with CONFIG_TRACEPOINTS and CONFIG_ENABLE_DEFAULT_TRACERS or FTRACE",
        )
    elif lacking:
        yield Check(
            name="tracepoints",
            found=f"{len(usual) - len(lacking)} of {len(usual)}",
            cost=f"not recorded: {', '.join(lacking)}",
            todo="nothing, unless a study needs them; kernels differ",
        )
    else:
        yield Check(name="tracepoints", found=f"all {len(usual)}")
    yield _recent_tracepoints(available)


def _recent_tracepoints(available: frozenset[str]) -> Check:
    lacking = {name: cost for name, cost in RECENT_EVENTS.items() if name not in available}
    if not lacking:
        return Check(name="lock tracepoints", found=f"all {len(RECENT_EVENTS)}")
    return Check(
        name="lock tracepoints",
        found=f"{len(RECENT_EVENTS) - len(lacking)} of {len(RECENT_EVENTS)}",
        cost="; ".join(f"without {name}, {cost}" for name, cost in lacking.items()),
        todo="nothing: most kernels lack them",
    )


def _paranoid(host: Host) -> Check:
    level = host.setting("kernel/perf_event_paranoid")
    found = f"perf_event_paranoid is {'unknown' if level is None else level}"
    if host.has_capability(CAP_PERFMON, CAP_SYS_ADMIN):
        return Check(name="permission", found=f"{found}, which this user may pass over")
    if level == -1:
        return Check(name="permission", found=found)
    return _blocked(
        "permission",
        f"{found} and this process lacks CAP_PERFMON",
        "run as root outside a container, or: sysctl kernel.perf_event_paranoid=-1",
    )


def _addresses(host: Host) -> Check:
    level = host.setting("kernel/kptr_restrict")
    if level is not None and level >= 2:
        return Check(
            name="kptr_restrict",
            found=str(level),
            cost="ticks of the per-CPU lists' decay are not recorded",
            todo="while recording: sysctl kernel.kptr_restrict=1",
        )
    return Check(name="kptr_restrict", found="unknown" if level is None else str(level))


def _clock(host: Host) -> Check:
    file = host.sysfs / "devices/system/clocksource/clocksource0/current_clocksource"
    source = (read_or_none(file) or "unknown").strip()
    if source in (*_FAST_CLOCKS, "unknown"):
        return Check(name="clock", found=f"CLOCK_MONOTONIC from {source}")
    return Check(
        name="clock",
        found=f"CLOCK_MONOTONIC from {source}",
        cost="reading the time is slow, so recording slows the allocator more than usual",
        todo=f"boot with a faster clocksource, such as {_FAST_CLOCKS[0]}",
    )


def _probes(host: Host) -> Check:
    left = leftover_probes(host)
    if left:
        return Check(
            name="kprobes",
            found=f"{', '.join(left)} are set",
            cost="a recording is running, or one was killed and left them",
            todo="the next recording removes what is left over",
        )
    if probe_file(host) is not None:
        lacking = functions_lacking(host)
        found = f"permitted; no functions here: {', '.join(lacking)}" if lacking else "permitted"
        return Check(
            name="kprobes",
            found=found,
            cost="; ".join(dict.fromkeys(lacking.values())),
            todo="nothing: the compiler inlined them, or the kernel has others" if lacking else "",
        )
    return Check(
        name="kprobes",
        found="no kprobes without root" if host.user else "none in this kernel",
        cost="; ".join(dict.fromkeys(probe.lack for probe in PROBES)),
        todo="see root" if host.user else "boot a kernel with CONFIG_KPROBE_EVENTS",
    )


_STATE_FILES = (
    (
        "pagetypeinfo",
        "free lists by migratetype and pageblock types cannot be compared",
        "boot a kernel with CONFIG_PROC_FS and CONFIG_COMPACTION or its like",
    ),
    (
        "kpageflags",
        "a replay starts from a random placement",
        "boot a kernel with CONFIG_PROC_PAGE_MONITOR",
    ),
    (
        "page_owner",
        "ages of the pages allocated at the start are unknown",
        "boot with page_owner=on and mount debugfs, if ages are worth the slowdown",
    ),
)


def _state_files(host: Host) -> Iterator[Check]:
    for name, cost, todo in _STATE_FILES:
        is_owner = name == "page_owner"
        readable = os.access((host.debugfs if is_owner else host.proc) / name, os.R_OK)
        if readable and not (is_owner and host.lockdown != "none"):
            yield Check(name=name, found="readable")
        else:
            todo = "see root" if host.user else todo
            yield Check(name=name, found="not readable", cost=cost, todo=todo)


_BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "microsoft-edge",
)
_GIB = 1 << 30
_LITTLE_MEMORY = 2 * _GIB
_LITTLE_DISK = 1 * _GIB
_TRIAL_BUFFER = 1 << 20
_TRIAL_TIMEOUT_S = 60


def examine(host: Host, directory: Path) -> list[Check]:
    """All checks, with a short trial recording where nothing stands in its way.

    Args:
        host: the machine.
        directory: where recordings would go.
    """
    checks = list(recording_checks(host))
    if not any(check.blocks for check in checks):
        checks.append(_trial(host))
    return [*checks, *_other_checks(host, directory)]


def require_trial(host: Host, buffer_bytes: int) -> None:
    """Refuse a machine that cannot be recorded; a short trial recording tells.

    Args:
        host: the machine.
        buffer_bytes: ring buffer of each CPU.

    Raises:
        UsageError: it cannot; the text says why and what to do.
    """
    require_recordable(host)
    check = _trial(host, buffer_bytes)
    if check.blocks:
        raise UsageError(f"cannot record: {check.found}; {check.todo}")


def _trial(host: Host, buffer_bytes: int = _TRIAL_BUFFER) -> Check:
    """Record two events for an instant: only perf itself knows whether it may."""
    with tempfile.TemporaryDirectory() as place:
        output = Path(place) / "perf.data"
        arguments = record_arguments(
            find_perf(),
            output=str(output),
            events=event_arguments(ESSENTIAL_EVENTS, host),
            buffer_bytes=buffer_bytes,
        )
        try:
            tried = subprocess.run(
                [*arguments, "--", "true"],
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=_TRIAL_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            found = f"perf record took over {_TRIAL_TIMEOUT_S} s"
            return _impossible(found, "try the same perf record by hand")
        why = why_unusable(output)
    if tried.returncode or why:
        found, _, todo = explain_failure(tried.stderr, tried.returncode, why).rpartition("; ")
        return _impossible(found, todo)
    return Check(name="recording", found="a trial recording works")


def _impossible(found: str, todo: str) -> Check:
    cost = "nothing can be recorded"
    return Check(name="recording", found=found, cost=cost, todo=todo, blocks=True)


def _other_checks(host: Host, directory: Path) -> Iterator[Check]:
    """What matters to working with recordings rather than to making them."""
    yield _browser()
    yield _perf_module()
    yield Check(name="CPUs", found=str(host.cpus))
    yield _room(
        "memory",
        host.available_memory,
        _LITTLE_MEMORY,
        "long recordings do not fit",
        "cut them with pagealloc trim",
    )
    yield _room(
        "disk",
        shutil.disk_usage(directory).free,
        _LITTLE_DISK,
        "a busy machine writes tens of megabytes a second",
        "record to another disk with -o",
    )


def _browser() -> Check:
    named = os.environ.get("BROWSER_PATH")
    for name in (*([named] if named else []), *_BROWSERS):
        path = shutil.which(name)
        if path:
            return Check(name="browser", found=path)
    return Check(
        name="browser",
        found="no Chromium or Chrome",
        cost="figures are exported as HTML only, and browser tests are skipped",
        todo="install chromium, or set BROWSER_PATH",
    )


def _perf_module() -> Check:
    state = perf_python_state()
    if not state.lacking:
        return Check(name="perf module", found=state.line)
    found, _, todo = state.lacking.partition("; ")
    return Check(
        name="perf module",
        found=found,
        cost="events cannot be read live from Python; recordings do not need it",
        todo=todo,
    )


def _room(name: str, free: int, little: int, cost: str, todo: str) -> Check:
    found = f"{free / _GIB:.1f} GiB free"
    if free >= little:
        return Check(name=name, found=found)
    return Check(name=name, found=found, cost=cost, todo=todo)
