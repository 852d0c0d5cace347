import json
import os
from pathlib import Path

from pagealloc_model.recording.record.host import Host, machine_meta


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
