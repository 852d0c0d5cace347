"""Orders, migratetypes and failures of allocations, against the table of `perf kmem --page stat`.

Two columns of perf's table are read as swapped. Its heads are Unmovable, Reclaimable and Movable,
and it puts under them what the kernel numbers 0, 1 and 2. But the kernel's 1 is Movable and its 2
Reclaimable: /proc/pagetypeinfo of the same machine lists its rows in the order of these numbers.
"""

from __future__ import annotations

import re
import struct
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from pagealloc_model.recording.recording import open_recording
from pagealloc_model.recording.trace.columns import Event, Trace
from pagealloc_model.recording.trace.perf_file import open_perf_file
from pagealloc_model.recording.trace.perf_samples import trailer_offsets
from tests.perf_data_writer import records_in, write_perf_data
from tests.synthetic_perf_data import record

pytestmark = pytest.mark.perf

HEADS = ("Unmovable", "Reclaimable", "Movable")
"""Of perf's first columns, as it prints them."""

_MMAP = 1
_IN_KERNEL = 1
SWAPPED = {"Reclaimable": "Movable", "Movable": "Reclaimable"}
_TOTAL = re.compile(
    r"^Total (allocation requests|free requests|allocation failures)\s*: +(\d+)", re.M
)
_ROW = re.compile(r"^ +(\d+)((?: +(?:\d+|\.)){5})$", re.M)


def kmem_stat(perf_command: str, path: Path) -> str:
    """What perf kmem prints; skips the test where this perf has no such command."""
    listed = subprocess.run([perf_command, "help"], capture_output=True, text=True, check=False)
    if not re.search(r"^ +kmem ", listed.stdout, re.M):
        pytest.skip(f"{perf_command} has no kmem command")
    command = [perf_command, "kmem", "--page", "-i", str(path), "stat"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout


def with_kernel_map(source: Path, copy: Path) -> Path:
    """A copy that says where the kernel lies: without it, perf kmem follows a null pointer."""
    file = open_perf_file(source)
    trailer = bytes(trailer_offsets(file.attrs[0].sample_type)["end"])
    place = struct.pack("<iIQQQ", -1, 0, 0xFFFFFFFF81000000, 1 << 30, 0xFFFFFFFF81000000)
    kernel = record(_MMAP, place + b"[kernel.kallsyms]_text\0\0" + trailer, misc=_IN_KERNEL)
    write_perf_data(
        copy,
        attrs=file.attrs,
        features={number: file.feature(number) or b"" for number in file.features},
        plain_records=kernel,
        records=b"".join(records_in(file)),
        compress=False,
    )
    return copy


@pytest.mark.parametrize("name", ["kbuild", "highatomic_stock"])
def test_allocations_by_order_and_migratetype(
    shipped: Callable[[str], Path], tmp_path: Path, perf_command: str, name: str
) -> None:
    recording = open_recording(shipped(name))
    trace, types = recording.whole_trace, recording.snapshots[0].pagetypeinfo
    assert types is not None
    text = kmem_stat(perf_command, with_kernel_map(recording.event_file, tmp_path / "perf.data"))
    totals = {what: int(count) for what, count in _TOTAL.findall(text)}
    failed = (trace.event == Event.ALLOC) & (trace.pfn == -1)
    assert totals["allocation requests"] == trace.count(Event.ALLOC)
    assert totals["free requests"] == trace.count(Event.FREE)
    assert totals["allocation failures"] == np.count_nonzero(failed)
    assert re.search(r"^Order +Unmovable +Reclaimable +Movable ", text, re.M)
    printed = by_order_and_name(text)
    assert printed == allocations(trace, types.migratetypes)
    assert {name for _, name in printed} >= {"Unmovable", "Movable"}


def by_order_and_name(text: str) -> dict[tuple[int, str], int]:
    """Perf's counts under the names that its columns ought to have, zeros left out."""
    counts = {}
    for order, cells in _ROW.findall(text):
        for head, cell in zip(HEADS, cells.split(), strict=False):
            if cell != ".":
                counts[int(order), SWAPPED.get(head, head)] = int(cell)
    return counts


def allocations(trace: Trace, names: Sequence[str]) -> dict[tuple[int, str], int]:
    """Successful allocations by order and by the name of the type that was asked for."""
    chosen = (trace.event == Event.ALLOC) & (trace.pfn != -1)
    pairs = np.stack([trace.order[chosen], trace.migratetype[chosen]])
    found, counts = np.unique(pairs, axis=1, return_counts=True)
    return {
        (order, names[number]): count
        for (order, number), count in zip(found.T.tolist(), counts.tolist(), strict=True)
    }
