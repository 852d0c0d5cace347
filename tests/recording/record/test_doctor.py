"""A machine: what is known about it, and whether it can be recorded."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pagealloc_model.base.errors import UsageError
from pagealloc_model.cli import main
from pagealloc_model.recording.record.doctor import (
    Check,
    examine,
    recording_checks,
    require_recordable,
)
from pagealloc_model.recording.record.host import Host, machine_meta
from pagealloc_model.recording.record.perf import explain_failure

Setting = pytest.MonkeyPatch
TRACING = "sys/kernel/tracing"
LOCKDOWN = "sys/kernel/security/lockdown"


def refusal(machine: Host) -> str:
    """Why a machine cannot record: one line that says what to do."""
    with pytest.raises(UsageError) as refused:
        require_recordable(machine)
    line = str(refused.value)
    assert line.startswith("cannot record: ") and "; " in line and "\n" not in line
    return line


def check(machine: Host, name: str) -> Check:
    return next(check for check in recording_checks(machine) if check.name == name)


def examined(machine: Host) -> dict[str, Check]:
    return {check.name: check for check in examine(machine, machine.proc)}


def changed(machine: Host, file: str, old: str, new: str) -> Host:
    """The machine with another text in one of its files; a machine remembers what it read."""
    path = machine.proc.parent / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return replace(machine)


def test_a_machine_that_has_everything(machine: Host, fake_perf: Setting) -> None:
    assert [check.name for check in recording_checks(machine) if check.cost] == ["page_owner"]
    assert require_recordable(machine).version == "6.1.187"
    checks = examined(machine)
    assert not any(check.blocks for check in checks.values())
    assert checks["recording"].found == "a trial recording works"
    assert {"browser", "perf module", "CPUs", "memory", "disk"} <= set(checks)


def test_every_lack_says_what_it_costs_and_what_to_do(tmp_path: Path, monkeypatch: Setting) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("BROWSER_PATH", raising=False)
    checks = examined(Host(proc=tmp_path, sysfs=tmp_path, boot=tmp_path, user=1000))
    assert "recording" not in checks
    assert all(checks[name].cost for name in ("perf", "browser", "memory"))
    for check in checks.values():
        assert bool(check.cost) == bool(check.todo), check


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("PATH", "", "perf is not installed; install it"),
        ("PAGEALLOC_FAKE_PERF", "wrapper", "perf not found for kernel 6.12"),
        ("PAGEALLOC_FAKE_PERF", "old", "perf 5.4.2 is too old"),
    ],
)
def test_a_perf_that_cannot_be_used(
    machine: Host, fake_perf: Setting, variable: str, value: str, said: str
) -> None:
    fake_perf.setenv(variable, value)
    assert said in refusal(machine)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda host: replace(host, user=1000), "not root (user 1000); run: sudo"),
        (lambda host: changed(host, LOCKDOWN, "[none] integrity conf", "none [conf"),
         "lockdown is at confidentiality"),
        (lambda host: changed(host, f"{TRACING}/available_events", "kmem:mm_page_alloc\n", ""),
         "no tracepoint kmem:mm_page_alloc"),
        (lambda host: shutil.rmtree(host.sysfs / "kernel/tracing") or host,
         "tracefs is not mounted; run: mount -t tracefs"),
        (lambda host: changed(host, "proc/self/status", "000001ffffffffff", "0"),
         "perf_event_paranoid is 2 and this process lacks CAP_PERFMON; run as root outside"),
    ],
)  # fmt: skip
def test_a_machine_that_cannot_be_recorded(
    machine: Host, fake_perf: Setting, change: Callable[[Host], Host], said: str
) -> None:
    assert said in refusal(change(machine))


@pytest.mark.parametrize(
    ("file", "old", "new", "name", "cost"),
    [
        (LOCKDOWN, "[none] i", "none [i", "lockdown", "page_owner"),
        (f"{TRACING}/available_events", "cma:cma_release\n", "", "tracepoints",
         "not recorded: cma:cma_release"),
        (f"{TRACING}/available_events", "kmem:mm_page_pcpu_refill\n", "", "lock tracepoints",
         "without kmem:mm_page_pcpu_refill, which objects a refill took is inferred"),
        ("proc/sys/kernel/kptr_restrict", "0", "2", "kptr_restrict", "decay"),
        ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc", "acpi_pm",
         "clock", "slow"),
        (f"{TRACING}/kprobe_events", "", "p:pa/free_one free_one_page\n", "kprobes", "left them"),
    ],
)  # fmt: skip
def test_what_makes_a_recording_worse_is_said(
    machine: Host, fake_perf: Setting, file: str, old: str, new: str, name: str, cost: str
) -> None:
    machine = changed(machine, file, old, new)
    lacking = {check.name for check in recording_checks(machine) if check.cost}
    assert lacking == {"page_owner", name}
    assert cost in check(machine, name).cost
    require_recordable(machine)


def test_state_files_that_are_missing(machine: Host) -> None:
    for name in ("pagetypeinfo", "kpageflags", "kcore"):
        (machine.proc / name).unlink()
        assert check(machine, name).cost


def test_what_cannot_be_probed_is_said(machine: Host) -> None:
    names = ("free_pcppages_bulk", "balance_pgdat", "kswapd_try_to_sleep")
    text = "".join(f"ffffffff81000000 t {name}\n" for name in names)
    (machine.proc / "kallsyms").write_text(text)
    probes = check(machine, "kprobes")
    assert "boost_watermark" in probes.found and "free_pcppages_bulk" not in probes.found
    assert "watermark boosts show only in snapshots" in probes.cost
    assert "kswapd" not in probes.cost
    (machine.sysfs / "kernel/tracing/kprobe_events").unlink()
    assert "kswapd" in check(machine, "kprobes").cost


@pytest.mark.parametrize(
    ("how", "said"), [("refuse Permission denied", "the kernel refuses perf"), ("no file", "")]
)
def test_only_a_trial_shows_what_perf_may(
    machine: Host, fake_perf: Setting, how: str, said: str
) -> None:
    fake_perf.setenv("PAGEALLOC_FAKE_PERF", how)
    trial = examined(machine)["recording"]
    assert trial.blocks and said in trial.found and trial.todo


@pytest.mark.parametrize("blocked", [True, False])
def test_the_exit_code_says_whether_recording_is_possible(
    blocked: bool,
    machine: Host,
    fake_perf: Setting,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: Setting,
) -> None:
    monkeypatch.setattr("pagealloc_model.recording.record.host.Host", lambda: machine)
    if blocked:
        fake_perf.setenv("PAGEALLOC_FAKE_PERF", "old")
    assert main(["doctor"]) == int(blocked)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"Recording is {'not ' * blocked}possible here. ")
    assert any(line.startswith("NO  perf" if blocked else "ok  perf") for line in lines)
    assert main(["doctor", "--json"]) == int(blocked)
    described = json.loads(capsys.readouterr().out)
    assert described["recording_possible"] is not blocked
    assert {"name", "found", "cost", "todo", "blocks"} == set(described["checks"][0])


@pytest.mark.parametrize(
    ("said", "code", "seen", "meant"),
    [
        ("failed to write perf data, error: No space left on device", 7, "", "the disk is full"),
        ("Permission error mapping pages.\nConsider", 7, "", "may not be locked in memory"),
        ("failed to mmap with 12 (Cannot allocate memory)", 7, "", "no memory for the ring"),
        ("Too many events are opened.", 7, "", "too many events"),
        ("Access to performance monitoring and observability", 7, "", "refuses perf"),
        ("event syntax error: 'kmem:mm_page_alloc'", 7, "", "cannot read an event"),
        (" Error: unknown option `control'", 7, "", "perf lacks an option"),
        ("something else", 7, "", "perf ended with code 7 saying: something else"),
        ("", 7, "", "perf ended with code 7"),
        ("", -9, "", "was ended by signal 9"),
        ("Events enabled", -2, "is odd", "perf.data is odd; "),
        ("No space left on device", 1, "is odd", "the disk is full"),
    ],
)
def test_what_perf_says_is_explained_in_one_line(
    said: str, code: int, seen: str, meant: str
) -> None:
    line = explain_failure(said, code, seen)
    assert meant in line and "; " in line and "\n" not in line


def test_what_the_machine_is(machine: Host) -> None:
    meta = machine_meta(machine)
    assert meta["uname"] == list(os.uname())
    assert meta["nr_cpus"] == 3
    assert meta["cpuinfo_model"] == "A Processor"
    assert meta["hypervisor"] is True
    assert meta["cmdline"] == "root=/dev/secret quiet"
    assert meta["config"] == {"CONFIG_NUMA": "y", "CONFIG_PCP_BATCH_SCALE_MAX": "5"}
    assert meta["thp"]["enabled"] == "always [madvise] never"
    assert meta["thp"]["hugepages-64kB/enabled"] == "[never]"
    assert meta["cpu_nodes"] == [0, 2, 0, 0, 0]
    assert meta["node_distances"] == [[10, 21], [21, 10], [31, 10]]
    assert list(meta["topology"]["cpus"]) == ["0", "1", "4"]
    assert "MemTotal" in meta["meminfo"]
    assert meta["sysctl"]["min_free_kbytes"] == "67584"
    assert meta["sysctl"]["defrag_mode"] is None
    assert "stat_refresh" not in meta["sysctl"]  # reading it does something


def test_the_configuration_may_lie_in_boot(machine: Host) -> None:
    (machine.proc / "config.gz").unlink()
    assert machine_meta(machine)["config"] is None
    machine.boot.mkdir()
    (machine.boot / "config-6.12").write_text("CONFIG_HZ=250\n")
    assert machine_meta(machine)["config"] == {"CONFIG_HZ": "250"}


def test_a_machine_that_says_nothing_is_still_described(tmp_path: Path) -> None:
    meta = machine_meta(Host(proc=tmp_path, sysfs=tmp_path, boot=tmp_path))
    assert meta["config"] is None
    json.dumps(meta)
