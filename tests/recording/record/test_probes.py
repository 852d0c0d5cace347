"""Kprobes: which are set, and the kernel's own types of their parameters."""

from __future__ import annotations

import errno
import re
import struct
from pathlib import Path

import pytest

from pagealloc_model.base.errors import UsageError
from pagealloc_model.recording.record.host import Host
from pagealloc_model.recording.record.kernel_types import KernelTypes
from pagealloc_model.recording.record.probes import (
    PROBES,
    KernelProbes,
    functions_lacking,
    leftover_probes,
)

INT, FUNCTION, PROTOTYPE, STRUCT = 1, 12, 13, 4


class Types:
    """Kernel type data, made type by type."""

    def __init__(self) -> None:
        self.texts = b"\0"
        self.types = b""
        self.count = 0

    def text(self, name: str) -> int:
        self.texts += name.encode() + b"\0"
        return len(self.texts) - len(name) - 1

    def add(self, kind: int, name: str = "", members: int = 0, other: int = 0) -> int:
        info = kind << 24 | members
        self.types += struct.pack("<III", self.text(name) if name else 0, info, other)
        self.count += 1
        return self.count

    def function(self, name: str, *parameters: str) -> None:
        number = self.add(PROTOTYPE, members=len(parameters))
        for parameter in parameters:
            self.types += struct.pack("<II", self.text(parameter), 1)
        self.add(FUNCTION, name, other=number)

    def data(self) -> bytes:
        sizes = (0, len(self.types), len(self.types), len(self.texts))
        return struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, *sizes) + self.types + self.texts


def some_types() -> Types:
    types = Types()
    types.add(INT, "int", other=4)
    types.types += bytes(4)
    types.add(STRUCT, "zone", members=2, other=16)
    types.types += bytes(24)
    types.function("drain_pages_zone", "cpu", "zone")
    types.function("other", "a")
    return types


def test_names_of_the_functions_asked_for() -> None:
    functions = KernelTypes(some_types().data()).parameters({"drain_pages_zone", "inlined"})
    assert functions == {"drain_pages_zone": ("cpu", "zone")}


def test_damaged_data_are_refused() -> None:
    whole = some_types().data()
    for data in (b"", whole[:40], b"\0\0" + whole[2:]):
        with pytest.raises(UsageError, match="type information"):
            KernelTypes(data).parameters({"drain_pages_zone"})
    types = some_types()
    types.add(30)
    with pytest.raises(UsageError, match="unknown kind 30"):
        KernelTypes(types.data())


def test_this_kernel() -> None:
    file = Path("/sys/kernel/btf/vmlinux")
    if not file.exists():
        pytest.skip("this kernel publishes no type data")
    functions = KernelTypes(file.read_bytes()).parameters({"vfs_read"})
    assert functions == {"vfs_read": ("file", "buf", "count", "pos")}


BY_EVENT = {probe.event: probe for probe in PROBES}


def journal(machine: Host) -> list[str]:
    """Lines written to the file that sets probes."""
    return (machine.sysfs / "kernel/tracing/kprobe_events").read_text().splitlines()


def describe(machine: Host, **functions: str) -> None:
    """Let the machine's kernel describe these functions."""
    types = Types()
    for name, parameters in functions.items():
        types.function(name, *parameters.split())
    file = machine.sysfs / "kernel/btf/vmlinux"
    file.parent.mkdir()
    file.write_bytes(types.data())


@pytest.mark.parametrize(
    ("parameters", "places"), [("page order zone", (2, 3)), ("page zone alloc_order", (3, 2))]
)
def test_positions_are_those_of_the_kernel(parameters: str, places: tuple[int, int]) -> None:
    order, zone = places
    assert BY_EVENT["ha_reserve"].definition(parameters.split()) == (
        f"p:pa/ha_reserve reserve_highatomic_pageblock order=$arg{order}:s32 zone=$arg{zone}:x64"
    )


def test_the_pages_of_a_bulk_allocation_are_read_where_a_return_knows_the_call(
    machine: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe(machine, __alloc_pages_bulk="gfp nid nodemask nr_pages page_list page_array")
    with KernelProbes(machine, None) as probes:
        made = {line.split()[0]: line.split(maxsplit=2)[2] for line in probes.definitions}
    assert made["p:pa/alloc_bulk"] == "gfp=$arg1:x32 wanted=$arg4:s32"
    assert made["r:pa/alloc_bulk_ret"].split()[:4] == [
        "got=$retval:s64",
        "base=@vmemmap_base:x64",
        "page0=+0($arg6):x64",
        "page1=+8($arg6):x64",
    ]
    write = KernelProbes._write

    def refusing(self: KernelProbes, line: str) -> None:
        if line.startswith("r:") and "$arg" in line:
            raise OSError(errno.EINVAL, "Invalid argument")
        write(self, line)

    monkeypatch.setattr(KernelProbes, "_write", refusing)
    with KernelProbes(machine, None) as probes:
        assert "r:pa/alloc_bulk_ret __alloc_pages_bulk got=$retval:s64" in probes.definitions


def test_a_function_that_differs_is_not_probed() -> None:
    assert BY_EVENT["pcp_bulk_alloc"].definition(None) == (
        "p:pa/pcp_bulk_alloc rmqueue_bulk "
        "zone=$arg1:x64 order=$arg2:u32 count=$arg3:u64 mt=$arg5:s32 flags=$arg6:x32"
    )
    assert BY_EVENT["ha_reserve"].definition(None) is None
    assert BY_EVENT["drain_zone"].definition(["cpu", "zone_number"]) is None
    assert BY_EVENT["drain_zone"].definition([]) is None
    assert BY_EVENT["pcp_bulk_alloc_ret"].definition([]) is None


def test_probes_are_removed_at_the_end(machine: Host) -> None:
    with KernelProbes(machine, None) as probes:
        assert "pa:pcp_bulk_free" in probes.events
        assert journal(machine) == probes.definitions
    removals = [f"-:{event.replace(':', '/')}" for event in probes.events]
    assert journal(machine)[len(probes.definitions) :] == removals


def test_other_probes_are_left_alone_and_ours_removed_after_an_error(machine: Host) -> None:
    file = machine.sysfs / "kernel/tracing/kprobe_events"
    file.write_text("p:mine/probe do_exit\n")
    with pytest.raises(ZeroDivisionError), KernelProbes(machine, None):
        raise ZeroDivisionError
    assert journal(machine)[-1].startswith("-:pa/")
    assert journal(machine)[0] == "p:mine/probe do_exit"
    assert not any("mine" in line for line in journal(machine)[1:])


def test_what_a_killed_recording_left_is_removed_first(machine: Host) -> None:
    file = machine.sysfs / "kernel/tracing/kprobe_events"
    file.write_text("p:pa/free_one free_one_page zone=$arg1:x64\n")
    assert leftover_probes(machine) == ("pa/free_one",)
    with KernelProbes(machine, None):
        assert journal(machine)[1] == "-:pa/free_one"


def test_only_functions_that_the_kernel_describes_are_probed(machine: Host) -> None:
    describe(machine, drain_pages_zone="cpu zone", free_pcppages_bulk="zone count pcp pindex")
    with KernelProbes(machine, None) as probes:
        assert set(probes.events) == {"pa:drain_zone", "pa:pcp_bulk_free"}
    assert {event for event, _ in probes.unset} == {f"pa:{event}" for event in BY_EVENT} - set(
        probes.events
    )


@pytest.mark.parametrize(
    ("function", "parameters", "definition", "filtered"),
    [
        ("set_pfnblock_flags_mask", "page flags pfn mask",
         "pfn=$arg3:x64 mt=$arg2:s32 mask=$arg4:x64", "mask & 7"),
        ("__set_pfnblock_flags_mask", "page pfn flags mask",
         "pfn=$arg2:x64 mt=$arg3:s32 mask=$arg4:x64", "mask & 7"),
        ("set_pageblock_migratetype", "page migratetype",
         "page=$arg1:x64 mt=$arg2:s32 base=@vmemmap_base:x64", None),
    ],
)  # fmt: skip
def test_block_types_are_probed_where_the_kernel_sets_them(
    machine: Host, function: str, parameters: str, definition: str, filtered: str | None
) -> None:
    describe(machine, **{function: parameters, "set_pageblock_migratetype": "page migratetype"})
    with KernelProbes(machine, None) as probes:
        assert probes.definitions == [f"p:pa/block_type {function} {definition}"]
        assert probes.filters.get("pa:block_type") == filtered


def test_functions_that_a_kernel_inlines_are_not_tried(machine: Host) -> None:
    (machine.proc / "kallsyms").write_text("ffffffff81000000 t rmqueue_bulk\n")
    with KernelProbes(machine, None) as probes:
        assert probes.events == ("pa:pcp_bulk_alloc", "pa:pcp_bulk_alloc_ret")
    assert ("pa:boost", "no function of this kernel, or inlined") in probes.unset


def test_functions_that_a_kernel_lacks_are_named_with_their_cost(machine: Host) -> None:
    assert functions_lacking(machine) == {}
    functions = {probe.function for probe in PROBES}
    absent = {"boost_watermark", "set_pageblock_migratetype", "rmqueue_bulk"}
    lines = [f"ffffffff81000000 t {function}" for function in sorted(functions - absent)]
    (machine.proc / "kallsyms").write_text("\n".join(lines) + "\n")
    assert functions_lacking(machine) == {
        "rmqueue_bulk": "transactions are inferred from runs of events",
        "boost_watermark": "watermark boosts show only in snapshots",
    }


def test_a_refused_probe_is_named_and_the_rest_is_set(
    machine: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = KernelProbes._write

    def refusing(self: KernelProbes, line: str) -> None:
        if line.startswith("r:"):
            raise OSError(errno.ENOENT, "No such file or directory")
        write(self, line)

    monkeypatch.setattr(KernelProbes, "_write", refusing)
    with KernelProbes(machine, None) as probes:
        pass
    refused = [event for event, why in probes.unset if why == "refused (No such file or directory)"]
    returns = ("pcp_bulk_alloc_ret", "alloc_bulk_ret", "ha_unreserve", "boost_ret", "kswapd_end")
    assert refused == [f"pa:{event}" for event in returns]
    assert "pa:free_one" in probes.events


def test_probes_in_use_are_another_recordings(
    machine: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = machine.sysfs / "kernel/tracing/kprobe_events"
    file.write_text("p:pa/free_one free_one_page zone=$arg1:x64\n")

    def busy(self: KernelProbes, line: str) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr(KernelProbes, "_write", busy)
    with (
        pytest.raises(UsageError, match="in use by another recording"),
        KernelProbes(machine, None),
    ):
        pass


@pytest.mark.parametrize("lockdown", [False, True])
def test_a_kernel_without_kprobes(machine: Host, lockdown: bool) -> None:
    if lockdown:
        file = machine.sysfs / "kernel/security/lockdown"
        file.write_text("none integrity [confidentiality]\n")
    else:
        (machine.sysfs / "kernel/tracing/kprobe_events").unlink()
    with KernelProbes(machine, None) as probes:
        assert probes.events == ()
        assert probes.unset == [("pa:*", "this kernel has or permits no kprobes")]
    with pytest.raises(UsageError, match="leave the option out"), KernelProbes(machine, True):
        pass


def test_the_documentation_names_the_events(checkout: Path) -> None:
    documented = (checkout / "docs/recording.md").read_text()
    assert set(BY_EVENT) <= set(re.findall(r"`pa:(\w+)`", documented))
