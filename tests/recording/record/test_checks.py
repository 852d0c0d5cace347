import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pagealloc_model.base.errors import UsageError
from pagealloc_model.recording.record.doctor import Check, recording_checks, require_recordable
from pagealloc_model.recording.record.host import Host
from pagealloc_model.recording.record.perf import explain_failure
from tests.recording.record.machines import make_machine

Setting = pytest.MonkeyPatch


def refusal(machine: Host) -> str:
    """Why a machine cannot record: one line that says what to do."""
    with pytest.raises(UsageError) as refused:
        require_recordable(machine)
    line = str(refused.value)
    assert line.startswith("cannot record: ")
    assert "\n" not in line
    assert "; " in line
    return line


def check(machine: Host, name: str) -> Check:
    return next(each for each in recording_checks(machine) if each.name == name)


def test_a_machine_that_has_everything(machine: Host, fake_perf: Setting) -> None:
    lacking = [each.name for each in recording_checks(machine) if each.cost]
    assert lacking == ["page_owner"]
    assert require_recordable(machine).version == "6.1.187"


def test_every_lack_says_what_it_costs_and_what_to_do(tmp_path: Path) -> None:
    bare = Host(proc=tmp_path, sysfs=tmp_path, boot=tmp_path, user=1000)
    for each in recording_checks(bare):
        assert bool(each.cost) == bool(each.todo), each


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("PATH", "", "perf is not installed; install it"),
        ("FAKE_PERF", "wrapper", "perf not found for kernel 6.12"),
        ("FAKE_PERF", "old", "perf 5.4.2 is too old"),
    ],
)
def test_a_perf_that_cannot_be_used(
    machine: Host, fake_perf: Setting, variable: str, value: str, said: str
) -> None:
    fake_perf.setenv(variable, value)
    assert said in refusal(machine)


def test_not_root(tmp_path: Path, fake_perf: Setting) -> None:
    machine = make_machine(tmp_path / "machine", user=1000)
    line = refusal(machine)
    assert "not root (user 1000); run: sudo" in line
    assert line.endswith("record ...")


def test_a_kernel_that_cannot_be_recorded(machine: Host, fake_perf: Setting) -> None:
    lockdown = machine.sysfs / "kernel/security/lockdown"
    lockdown.write_text("none integrity [confidentiality]\n")
    assert "lockdown is at confidentiality" in refusal(machine)
    lockdown.write_text("none [integrity] confidentiality\n")
    machine = replace(machine)  # it remembers what it read
    require_recordable(machine)
    assert "page_owner" in check(machine, "lockdown").cost
    (machine.sysfs / "kernel/tracing/available_events").write_text("sched:sched_switch\n")
    assert "no tracepoint kmem:mm_page_alloc" in refusal(machine)


def test_no_tracefs(machine: Host, fake_perf: Setting) -> None:
    shutil.rmtree(machine.sysfs / "kernel/tracing")
    assert "tracefs is not mounted; run: mount -t tracefs" in refusal(machine)


def test_tracepoints_that_are_dropped(machine: Host, fake_perf: Setting) -> None:
    file = machine.sysfs / "kernel/tracing/available_events"
    file.write_text(file.read_text().replace("cma:cma_release\n", ""))
    require_recordable(machine)
    assert check(machine, "tracepoints").cost == "not recorded: cma:cma_release"


def test_perf_event_paranoid(machine: Host, fake_perf: Setting) -> None:
    (machine.proc / "self/status").write_text("CapEff:\t0000000000000000\n")
    line = refusal(machine)
    assert "perf_event_paranoid is 2" in line
    assert "kernel.perf_event_paranoid=-1" in line
    (machine.proc / "sys/kernel/perf_event_paranoid").write_text("-1\n")
    require_recordable(machine)


def test_hidden_addresses_and_slow_clocks_are_said(machine: Host) -> None:
    (machine.proc / "sys/kernel/kptr_restrict").write_text("2\n")
    assert "decay" in check(machine, "kptr_restrict").cost
    clock = machine.sysfs / "devices/system/clocksource/clocksource0/current_clocksource"
    clock.write_text("acpi_pm\n")
    assert "slow" in check(machine, "clock").cost


def test_state_files_that_are_missing(machine: Host) -> None:
    for name in ("pagetypeinfo", "kpageflags"):
        (machine.proc / name).unlink()
        assert check(machine, name).cost


def test_recent_tracepoints_are_asked_for_apart(machine: Host, fake_perf: Setting) -> None:
    assert check(machine, "lock tracepoints").found == "all 5"
    file = machine.sysfs / "kernel/tracing/available_events"
    file.write_text(file.read_text().replace("kmem:mm_page_pcpu_refill\n", ""))
    assert check(machine, "tracepoints").cost == ""
    lacking = check(machine, "lock tracepoints")
    assert lacking.found == "4 of 5"
    assert (
        lacking.cost == "without kmem:mm_page_pcpu_refill, which objects a refill took is inferred"
    )
    require_recordable(machine)


def test_what_cannot_be_probed_is_said(machine: Host) -> None:
    assert check(machine, "kprobes").cost == ""
    names = ("free_pcppages_bulk", "balance_pgdat", "kswapd_try_to_sleep")
    text = "".join(f"ffffffff81000000 t {name}\n" for name in names)
    (machine.proc / "kallsyms").write_text(text)
    probes = check(machine, "kprobes")
    assert "boost_watermark" in probes.found and "free_pcppages_bulk" not in probes.found
    assert "watermark boosts show only in snapshots" in probes.cost
    assert "kswapd" not in probes.cost
    (machine.sysfs / "kernel/tracing/kprobe_events").unlink()
    assert "kswapd" in check(machine, "kprobes").cost


def test_probes_left_over_are_said(machine: Host) -> None:
    file = machine.sysfs / "kernel/tracing/kprobe_events"
    file.write_text("p:pa/free_one free_one_page zone=$arg1:x64\n")
    assert check(machine, "kprobes").found == "pa/free_one are set"


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("failed to write perf data, error: No space left on device", "the disk is full"),
        ("Permission error mapping pages.\nConsider increasing it", "may not be locked in memory"),
        ("failed to mmap with 12 (Cannot allocate memory)", "no memory for the ring buffers"),
        ("Too many events are opened.", "too many events"),
        (
            "Access to performance monitoring and observability operations is limited",
            "refuses perf",
        ),
        ("event syntax error: 'kmem:mm_page_alloc'", "cannot read an event"),
        (" Error: unknown option `control'", "perf lacks an option"),
        ("something else", "perf ended with code 7 saying: something else"),
        ("", "perf ended with code 7"),
    ],
)
def test_what_perf_says_is_explained_in_one_line(said: str, meant: str) -> None:
    line = explain_failure(said, 7)
    assert meant in line
    assert "; " in line
    assert "\n" not in line


def test_what_is_wrong_with_the_file_is_said_unless_perf_gave_a_reason() -> None:
    assert explain_failure("Events enabled", -2, "is odd").startswith("perf.data is odd; ")
    assert explain_failure("No space left on device", 1, "is odd").startswith("the disk is full")


def test_a_signal_that_ended_perf_is_named() -> None:
    assert "was ended by signal 9" in explain_failure("", -9)
