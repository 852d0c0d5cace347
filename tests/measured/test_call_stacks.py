"""Call stacks: those of `perf script`, event by event; and holds under another policy."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from itertools import takewhile
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

import pagealloc_model as pm
from pagealloc_model.base.errors import UsageError
from pagealloc_model.cli import main
from pagealloc_model.measured.call_stacks import (
    CallStacks,
    call_stacks,
    is_of_this_boot,
    kernel_part,
    recorded_spinlocks,
)
from pagealloc_model.recording.trace import tracepoints as tp
from tests.small_recordings import shipped_recording

_EVENTS = ("mm_page_alloc", "mm_page_free", "mm_page_alloc_zone_locked", "mm_page_pcpu_drain")
_HEAD = re.compile(r"^\s*(\d+) \[(\d+)\]\s+(\d+)\.(\d{9}):\s+(kmem:\w+):")
_FRAME = re.compile(r"^\s+([0-9a-f]+) (\S+)")


class Printed(NamedTuple):
    """What `perf script` prints of one event: names of functions up to the first without one."""

    time_ns: int
    cpu: int
    names: tuple[str, ...]
    functions: int


@pytest.fixture(scope="module")
def recorded(perf_command: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A moment of this machine, with the kernel's call chains.

    Without the programs' own: of what looks there like a context that it does not know, perf prints
    nothing.
    """
    path = tmp_path_factory.mktemp("stacks") / "perf.data"
    events = [word for name in _EVENTS for word in ("-e", f"kmem:{name}")]
    how = ("-q", "-a", "-g", "--kernel-callchains", "-k", "CLOCK_MONOTONIC", "-m", "8M")
    command = [perf_command, "record", *how, *events]
    ended = subprocess.run(
        [*command, "-o", str(path), "--", "sh", "-c", "ls -R /usr/share/doc > /dev/null"],
        capture_output=True,
        check=False,
    )
    if ended.returncode or not path.exists():
        pytest.skip(f"perf cannot record here: {ended.stderr.decode()[-200:]}")
    return path


@pytest.fixture(scope="module")
def stacks(recorded: Path) -> CallStacks:
    return call_stacks(pm.open(recorded))


def scripted(path: Path) -> dict[str, list[Printed]]:
    """Return by event what `perf script` prints of them."""
    perf = shutil.which("perf")
    assert perf is not None
    fields = "tid,cpu,time,event,ip,sym"
    text = subprocess.run(
        [perf, "script", "-i", str(path), "--ns", "-F", fields, "--kallsyms", "/proc/kallsyms"],
        capture_output=True,
        text=True,
        check=True,
        errors="replace",
    ).stdout
    events: dict[str, list[Printed]] = {}
    for block in text.split("\n\n"):
        lines = block.splitlines()
        head = _HEAD.match(lines[0]) if lines else None
        if head is None:
            continue
        time_ns = int(head[3]) * 10**9 + int(head[4])
        frames = [match[2] for line in lines[1:] if (match := _FRAME.match(line))]
        names = tuple(takewhile(lambda name: name != "[unknown]", frames))
        sample = Printed(time_ns, int(head[2]), names, len(frames))
        events.setdefault(head[5], []).append(sample)
    return events


def test_stacks_are_those_of_perf_script(recorded: Path, stacks: CallStacks) -> None:
    scripts, trace = scripted(recorded), pm.open(recorded).whole_trace
    places: dict[str, set[str]] = {}
    for address, _, name, *_ in map(str.split, Path("/proc/kallsyms").read_text().splitlines()):
        places.setdefault(name, set()).add(address)
    orders = trace.order[trace.event == 0].astype(np.int64)
    by_stack = stacks.by_stack(tp.PAGE_ALLOC)
    assert by_stack["events"].sum() == len(orders)
    assert by_stack["pages"].sum() == (1 << orders).sum()
    assert by_stack["pages"].is_monotonic_decreasing
    for event in (tp.PAGE_ALLOC, tp.PAGE_FREE):
        table = stacks.tables[event]
        assert len(table) == len(scripts[event]) > 100
        ours = [
            (time_ns, cpu, stacks.stacks[stack][:0:-1])
            for time_ns, cpu, stack in table[["time_ns", "cpu", "stack"]].itertuples(index=False)
        ]
        ours.sort(key=itemgetter(0, 1))
        printed = sorted(scripts[event], key=lambda one: (one.time_ns, one.cpu))
        for (time_ns, cpu, names), sample in zip(ours, printed, strict=True):
            assert (time_ns, cpu) == (sample.time_ns, sample.cpu)
            assert len(sample.names) <= len(names) <= sample.functions
            # Of several names of one address perf may choose another.
            for name, by_perf in zip(names, sample.names, strict=False):
                assert name == by_perf or places[name] & places[by_perf]


def test_a_recording_of_this_boot_is_named_by_this_machine(
    recorded: Path, stacks: CallStacks
) -> None:
    assert stacks.named_by == "/proc/kallsyms of this boot"
    recording = pm.open(recorded)
    last = recording.whole_trace.span_ns[1]
    assert is_of_this_boot(recording, last)
    assert not is_of_this_boot(recording, last + 10**13)
    assert not is_of_this_boot(shipped_recording("kbuild"), 10**9)


def test_a_chain_ends_where_the_program_begins() -> None:
    kernel, user = (np.uint64((1 << 64) - size) for size in (128, 512))
    chain = np.array([kernel, 0xFFFFFFFF81000010, 0xFFFFFFFF81000020, user, 0x5555], np.uint64)
    assert kernel_part(chain).tolist() == [0xFFFFFFFF81000010, 0xFFFFFFFF81000020]


def some_stacks() -> CallStacks:
    table = pd.DataFrame({"time_ns": [10, 20, 30], "cpu": [0, 1, 0], "stack": [0, 1, 0]})
    return CallStacks(
        stacks=(("make", "do_fault", "alloc"), ("cc1", "exit_mmap", "free")),
        tables={tp.PAGE_ALLOC: table.assign(pages=[1, 8, 2])},
        named_by="",
    )


def test_holds_are_those_of_the_last_event_on_their_cpu() -> None:
    holds = pd.DataFrame({"time_ns": [10, 25, 40, 5], "cpu": [0, 1, 0, 0], "pages": [63, 9, 63, 4]})
    table = some_stacks().of_holds(holds)
    assert dict(zip(table["stack"], table["pages"], strict=True)) == {
        "make;do_fault;alloc": 126,
        "cc1;exit_mmap;free": 9,
        "no call chain": 4,
    }
    assert len(some_stacks().of_holds(holds, least_pages=60)) == 1


def test_without_call_chains_one_line_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="has a call chain; record"):
        call_stacks(shipped_recording("kbuild"))
    assert main(["stacks", "kbuild"]) == 2
    assert "record -g" in capsys.readouterr().err


def test_a_shipped_recording_has_call_chains_with_names() -> None:
    stacks = call_stacks(shipped_recording("build_stacks"))
    assert stacks.named_by == "the recording's kallsyms"
    assert {tp.PAGE_FREE, tp.PAGE_ALLOC} <= {*stacks.tables}
    for event in (tp.PAGE_ALLOC, tp.PAGE_FREE):
        table = stacks.by_stack(event)
        assert table["events"].sum() > 6000
        assert not table["stack"].str.contains("0x").any()
    assert any("do_anonymous_page" in stack and stack[0] == "cc1" for stack in stacks.stacks)


def test_the_command_prints_and_writes(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "stacks.json"
    assert main(["stacks", str(recorded), "--top", "3", "-o", str(file)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("asked for, as recorded: ")
    assert json.loads(file.read_text())["profiles"][0]["samples"]
    assert main(["stacks", str(recorded), "-o", "/"]) == 2
    assert "/: cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "is_hybrid", "read_from"),
    [
        ("build_stacks", True, "__pv_queued_spin_lock_slowpath"),
        ("xfree", True, "contention that shows on two CPUs"),
        ("highatomic_stock", False, "assumed"),
    ],
)
def test_the_kind_of_spinlock_is_read_where_it_can_be(
    name: str, is_hybrid: bool, read_from: str
) -> None:
    """The last one has four CPUs and no call chains."""
    found, where = recorded_spinlocks(shipped_recording(name))
    assert found == is_hybrid
    assert read_from in where
