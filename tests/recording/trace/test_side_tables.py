"""Tables of events beside the main ones: fields of every kind, names of commands."""

from __future__ import annotations

import struct
from pathlib import Path

from pagealloc_model.recording.trace.perf_data import read_perf_data
from tests import synthetic_perf_data as perf
from tests.synthetic_perf_data import ALLOC, Tracepoint


def test_fields_of_every_kind_in_tables(tmp_path: Path) -> None:
    odd = Tracepoint(
        "pa:odd",
        700,
        (
            ("u32 cpu", 4, False),
            ("s16 small", 2, True),
            ("u8 byte", 1, False),
            ("char name[16]", 16, False),
            ("__data_loc char[] path", 4, False),
            ("unsigned long args[2]", 16, False),
        ),
    )
    attrs = [perf.attr_of(ALLOC, [1]), perf.attr_of(odd, [2])]
    raw = odd.raw(cpu=3, small=-2, byte=255, name=b"sh\0x", args=b"")
    places = odd.offsets
    raw = bytearray(raw + b"/tmp/x\0\0")
    struct.pack_into("<HH", raw, places["path"][0], len(raw) - 8, 7)
    records = [perf.sample(attrs[1], bytes(raw), number=2, time=1, cpu=6)]
    table = read_perf_data(perf.write(tmp_path / "p", attrs, records, [ALLOC, odd])).tables[
        "pa:odd"
    ]
    values = {name: column.tolist() for name, column in table.items()}
    assert values == {
        "time_ns": [1],
        "cpu": [6],
        "pid": [77],
        "row": [0],
        "cpu_field": [3],
        "small": [-2],
        "byte": [255],
        "name": ["sh"],
        "path": ["/tmp/x"],
    }


def test_command_names_in_time_order(tmp_path: Path) -> None:
    attr = perf.attr_of(ALLOC, [1])
    records = [
        perf.comm_record(attr, 10, "make", time=0),
        perf.comm_record(attr, 11, "cc1", time=30, number=1),
        perf.fork_record(attr, 10, 11, time=20),
        perf.fork_record(attr, 10, 12, time=25),
        perf.fork_record(attr, 99, 13, time=25),
    ]
    comms = read_perf_data(perf.write(tmp_path / "p", [attr], records)).comms
    assert comms == {0: "swapper", 10: "make", 11: "cc1", 12: "make"}
