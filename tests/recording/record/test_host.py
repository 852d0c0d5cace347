"""The machine that is recorded, in directories that stand for /proc and /sys."""

from __future__ import annotations

import gzip
from dataclasses import replace

import pytest

from pagealloc_model.recording.record.host import (
    CAP_PERFMON,
    CAP_SYS_ADMIN,
    CAP_SYS_NICE,
    Host,
    machine_meta,
)


def test_what_the_machine_says_of_itself(machine: Host) -> None:
    assert machine.tracefs == machine.sysfs / "kernel/tracing"
    assert (machine.cpus, machine.available_memory, machine.lockdown) == (3, 4_096_000_000, "none")
    (machine.sysfs / "kernel/security/lockdown").write_text("none [integrity] confidentiality\n")
    assert replace(machine).lockdown == "integrity"


def test_tracefs_may_be_mounted_below_debugfs(machine: Host) -> None:
    (machine.debugfs / "tracing/events").mkdir(parents=True)
    (machine.sysfs / "kernel/tracing").rename(machine.sysfs / "kernel/elsewhere")
    assert machine.tracefs == machine.debugfs / "tracing"


@pytest.mark.parametrize(
    ("held", "numbers", "expected"),
    [
        (1 << CAP_PERFMON, (CAP_SYS_ADMIN, CAP_PERFMON), True),
        (1 << CAP_SYS_NICE, (CAP_SYS_ADMIN, CAP_PERFMON), False),
        (0, (CAP_SYS_NICE,), False),
    ],
)
def test_one_of_some_capabilities_is_enough(
    machine: Host, held: int, numbers: tuple[int, ...], expected: bool
) -> None:
    """Root without them in its effective set has none."""
    (machine.proc / "self/status").write_text(f"Name:\tx\nCapEff:\t{held:016x}\n")
    assert machine.has_capability(*numbers) is expected


@pytest.mark.parametrize("user", [0, 1000])
def test_where_capabilities_cannot_be_read_root_has_them(machine: Host, user: int) -> None:
    (machine.proc / "self/status").unlink()
    assert replace(machine, user=user).has_capability(CAP_SYS_ADMIN) is (user == 0)


def test_a_setting_is_a_number_or_nothing(machine: Host) -> None:
    (machine.proc / "sys/vm/lowmem_reserve_ratio").write_text("256\t256\t32\n")
    names = ("vm/min_free_kbytes", "vm/lowmem_reserve_ratio", "vm/no_such")
    assert [machine.setting(name) for name in names] == [67584, None, None]


def test_nodes_are_in_the_order_of_their_numbers(machine: Host) -> None:
    """Node 10 after node 2; CPUs 2 and 3 are offline and put on the first node."""
    meta = machine_meta(machine)
    assert meta["cpu_nodes"] == [0, 2, 0, 0, 0]
    assert meta["node_distances"] == [[10, 21], [21, 10], [31, 10]]
    assert [*meta["topology"]["cpus"]] == ["0", "1", "4"]


def test_sysctls_that_act_when_read_are_not_read(machine: Host) -> None:
    """A sysctl that this kernel lacks is named; one that it has beyond the known ones is kept."""
    (machine.proc / "sys/vm/another").write_text("1\n")
    sysctl = machine_meta(machine)["sysctl"]
    assert "stat_refresh" not in sysctl and sysctl["another"] == "1"
    assert sysctl["min_free_kbytes"] == "67584" and sysctl["defrag_mode"] is None


def test_the_configuration_is_kept_where_it_bears_on_the_allocator(machine: Host) -> None:
    kept = {"CONFIG_NUMA": "y", "CONFIG_PCP_BATCH_SCALE_MAX": "5"}
    assert machine_meta(machine)["config"] == kept
    whole = gzip.decompress((machine.proc / "config.gz").read_bytes())
    (machine.proc / "config.gz").unlink()
    assert machine_meta(machine)["config"] is None
    machine.boot.mkdir()
    (machine.boot / "config-6.11").write_bytes(b"CONFIG_NUMA=n\n")
    (machine.boot / f"config-{machine.release}").write_bytes(whole)
    assert machine_meta(machine)["config"] == kept
