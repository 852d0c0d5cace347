"""The columnar form: the same Trace, read when needed; what cannot be used is refused."""

from __future__ import annotations

import json
import mmap
import os
import pickle
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pytest

from pagealloc_model.base import arrays
from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.version import __version__
from pagealloc_model.recording.trace import store as store_module
from pagealloc_model.recording.trace.columns import COLUMN_TYPES, NAMED, Losses, ThreadNames, Trace
from pagealloc_model.recording.trace.perf_data import read_perf_data
from pagealloc_model.recording.trace.store import (
    HEADER_KEY,
    STORE_VERSION,
    StoreSource,
    read_store,
    store_source,
    write_store,
)
from tests.same_trace import differing_fields
from tests.small_recordings import shipped_recording

SHIPPED = ("kbuild", "xfree", "highatomic_stock", "highatomic_gate3")
SOURCE = StoreSource(file="perf.data", size=12, sha256="ab" * 32)


def rich_trace(rows: int = 10) -> Trace:
    """A trace with something in every field."""
    main = {name: np.arange(rows).astype(dtype) % 2 for name, dtype in COLUMN_TYPES.items()}
    main["time_ns"] = np.arange(rows) * 7
    table = {
        "time_ns": np.array([3, 9]),
        "cpu": np.array([0, 1], np.int16),
        "pid": np.array([5, 6], np.int32),
        "row": np.minimum([1, 2], rows),
        "callchain_start": np.array([0, 2]),
        "callchain_len": np.array([2, 1]),
        "address": np.array([2**64 - 1, 1], np.uint64),
        "comm": np.array(["make", "g++ é"], object),
    }
    return Trace(
        **main,
        comms={0: "swapper", 7: "sh"},
        thread_names=ThreadNames.of([(0, 7, NAMED, "sh"), (4, 8, 7, "")]),
        gfp_bits={"__GFP_HIGH": 0x20},
        gfp_from_format=True,
        tables={"lock:contention_begin": table, "a:b": {**table, "time_ns": table["time_ns"] + 1}},
        declared_types={"lock:contention_begin": {"address": "void *"}},
        callchains=np.array([1, 2, 2**64 - 1], np.uint64),
        losses=Losses(
            cpu=np.array([1, -1], np.int16),
            start_ns=np.array([1, 2]),
            end_ns=np.array([3, 63]),
            count=np.array([4, 5]),
            at_end=1,
        ),
        release="6.18.0",
        nr_cpus=4,
        clock="monotonic",
        notes=("something is odd",),
        scope="some CPUs",
        sampled={"kmem:mm_page_free": 7},
    )


def test_the_rich_trace_has_something_in_every_field() -> None:
    empty = Trace(**{name: np.zeros(0, dtype) for name, dtype in COLUMN_TYPES.items()})
    assert set(differing_fields(rich_trace(), empty)) == {
        field.name for field in fields(Trace) if field.name not in ("source", "frames")
    }


def written(path: Path, trace: Trace, **options: bool) -> Path:
    write_store(trace, path, source=SOURCE, **options)
    return path


@pytest.mark.parametrize("compress", [True, False])
@pytest.mark.parametrize("rows", [0, 1, 10])
def test_every_field_comes_back(
    tmp_path: Path, compress: bool, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_PIECE", 3)
    trace = rich_trace(rows)
    read = read_store(written(tmp_path / "s", trace, compress=compress))
    assert (len(read), read.span_ns) == (rows, trace.span_ns)
    assert differing_fields(read, trace) == []
    assert read.source == str(tmp_path / "s")
    table = read.tables["lock:contention_begin"]
    assert not any(
        column.flags.writeable for column in (read.pfn, read.callchains, *table.values())
    )


@pytest.mark.parametrize("compress", [True, False])
def test_a_store_older_than_a_column_leaves_it_open(
    tmp_path: Path, compress: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = {name: kind for name, kind in COLUMN_TYPES.items() if name != "in_interrupt"}
    with monkeypatch.context() as writing:
        writing.setattr(store_module, "COLUMN_TYPES", older)
        written(tmp_path / "s", rich_trace(), compress=compress)
    read = read_store(tmp_path / "s")
    assert differing_fields(read, rich_trace()) == ["in_interrupt"]
    assert (read.in_interrupt.tolist(), read.in_interrupt.dtype) == ([-1] * 10, np.int8)
    assert not read.in_interrupt.flags.writeable


def test_columns_of_a_long_recording_are_unpacked_to_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_PIECE", 3)
    monkeypatch.setattr(arrays, "ROWS_IN_MEMORY", 0)
    monkeypatch.setattr(arrays, "_SMALL_BYTES", 1)
    trace = rich_trace(10)
    read = read_store(written(tmp_path / "s", trace, compress=True))
    assert differing_fields(read, trace) == []
    assert lies_in_a_file(read.pfn)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_recordings_come_back(tmp_path: Path, name: str) -> None:
    """From columns, packed or not, and from the event file read with its arrays on disk."""
    recording = shipped_recording(name)
    trace = recording.trace
    for compress in (True, False):
        read = read_store(written(tmp_path / "s", trace, compress=compress))
        assert differing_fields(read, trace) == []
    read = read_perf_data(recording.event_file, tmp_path)
    assert lies_in_a_file(read.time_ns) == (len(read) > 1 << 17)
    assert differing_fields(read, recording.whole_trace) == []


def lies_in_a_file(column: np.ndarray) -> bool:
    base = column.base
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, mmap.mmap)


def test_columns_are_read_when_they_are_needed(tmp_path: Path) -> None:
    read = read_store(written(tmp_path / "s", rich_trace()))
    assert not vars(read).keys() & COLUMN_TYPES.keys()
    assert len(read) == 10
    assert read.count(0) == 5
    assert vars(read).keys() & COLUMN_TYPES.keys() == {"event"}
    assert read.event is read.event
    with pytest.raises(AttributeError, match="has no pnf"):
        read.pnf  # noqa: B018


def test_an_uncompressed_column_lies_in_the_file(tmp_path: Path) -> None:
    """A value changed in the file is seen in the column: nothing was copied."""
    path = written(tmp_path / "s", rich_trace(), compress=False)
    time_ns = read_store(path).time_ns
    offset = path.read_bytes().index(time_ns.tobytes())
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(np.int64(5).tobytes())
    assert time_ns[0] == 5


def test_a_trace_can_be_changed_and_sent_to_another_process(tmp_path: Path) -> None:
    read = read_store(written(tmp_path / "s", rich_trace()))
    assert differing_fields(replace(read, nr_cpus=9), read) == ["nr_cpus"]
    again = pickle.loads(pickle.dumps(read_store(tmp_path / "s")))
    assert differing_fields(again, read) == []


def test_the_header_says_what_it_was_made_from(tmp_path: Path) -> None:
    path = written(tmp_path / "s", rich_trace())
    assert store_source(path) == SOURCE
    header = json.loads(pa.ipc.open_file(str(path)).schema.metadata[HEADER_KEY])
    assert (header["version"], header["package"]) == (STORE_VERSION, __version__)
    assert header["written_at"].endswith("+00:00")
    write_store(rich_trace(), path, source=None)
    assert store_source(path) is None


def rewritten(
    path: Path,
    header: Callable[[dict], object] = lambda header: None,
    columns: Callable[[dict[str, pa.Array]], object] = lambda columns: None,
) -> Path:
    """The store again with its header or columns changed in place."""
    file = pa.ipc.open_file(str(path))
    batch = file.get_batch(0)
    words = json.loads(file.schema.metadata[HEADER_KEY])
    arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
    header(words)
    columns(arrays)
    schema = pa.schema(
        [pa.field(name, array.type) for name, array in arrays.items()],
        metadata={HEADER_KEY: json.dumps(words).encode()},
    )
    other = path.with_suffix(".changed")
    with pa.OSFile(str(other), "wb") as out, pa.ipc.new_file(out, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(list(arrays.values()), schema=schema))
    return other


def refusal(path: Path, column: str = "") -> str:
    """The error of opening a store, or of using a column."""
    with pytest.raises(RecordingError) as refused:
        trace = read_store(path)
        assert column
        if "/" in column:
            _, event, name = column.split("/")
            trace.tables[event][name]
        getattr(trace, column)
    line = str(refused.value)
    assert line.startswith(f"{path}: ")
    assert line.endswith("; make it again with pagealloc import")
    assert "\n" not in line
    return line


def one_list(values: np.ndarray) -> pa.Array:
    return pa.LargeListArray.from_arrays(pa.array([0, len(values)], pa.int64()), pa.array(values))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return written(tmp_path / "events.arrow", rich_trace())


def test_a_cut_file(store: Path) -> None:
    content = store.read_bytes()
    for size in (6, 100, len(content) // 2, len(content) - 1):
        store.write_bytes(content[:size])
        assert "is cut short" in refusal(store)


def test_a_file_cut_after_it_was_opened_ends_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store.arrow"
    write_store(rich_trace(100_000), path, source=None, compress=False)
    trace = read_store(path)
    os.truncate(path, 4096)
    with pytest.raises(RecordingError, match="cut short since it was opened"):
        trace.pfn.sum()


def test_an_order_whose_pages_no_sum_can_hold(tmp_path: Path) -> None:
    path = tmp_path / "store.arrow"
    trace = rich_trace()
    for order, is_known in ((18, True), (31, False), (63, False)):
        path.unlink(missing_ok=True)
        write_store(replace(trace, order=np.full(len(trace), order)), path, source=None)
        if is_known:
            assert read_store(path).order.max() == order
        else:
            with pytest.raises(RecordingError, match="column order holds values"):
                read_store(path).order.max()


def test_an_arrow_file_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "table.arrow"
    table = pa.table({"a": [1, 2]})
    with pa.ipc.new_file(str(path), table.schema) as out:
        out.write_table(table)
    assert "is an Arrow file, but no recording" in refusal(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": STORE_VERSION + 1}, f"of layout {STORE_VERSION + 1}, not {STORE_VERSION}"),
        ({"version": None}, "names no version"),
        ({"source": {"file": 1}}, "header is damaged"),
        ({"lengths": {"time_ns": 10, "pfn": 9}}, "column pfn has 9 rows, time_ns has 10"),
        ({"lengths": {}}, "names other columns"),
        ({"trace": {}}, "lacks a part"),
        ({"more": 1}, "header is damaged"),
    ],
    ids=str,
)
def test_a_header_that_cannot_be_used(store: Path, change: dict, words: str) -> None:
    assert words in refusal(rewritten(store, header=lambda header: header.update(change)))


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        ("pfn", None, "column pfn is no list"),
        ("pfn", np.arange(9), "column pfn has 9 rows, not 10"),
        ("pfn", np.arange(11), "column pfn has more than its 10 rows"),
        ("pfn", np.arange(10, dtype=np.int32), "is of type int32, not int64"),
        ("pfn", np.arange(-9, 1), "holds values that no recording has"),
        ("event", np.full(10, 6, np.uint8), "holds values that no recording has"),
        ("order", np.full(10, 64, np.int8), "holds values that no recording has"),
        ("time_ns", np.arange(10)[::-1], "is not in time order"),
        ("time_ns", np.arange(10) + (1 << 62), "holds values that no recording has"),
        ("callchains", np.arange(3), "is of type int64, not uint64"),
        ("tables/a:b/row", np.array([1, 11]), "holds values that no recording has"),
        ("tables/a:b/callchain_start", np.array([1, -1]), "holds values that no recording has"),
        ("tables/a:b/callchain_len", np.array([0, 2]), "holds values that no recording has"),
        ("tables/a:b/callchain_len", np.array([3, 1]), "holds values that no recording has"),
        ("tables/a:b/pid", np.arange(2), "is of type int64, not int32"),
        ("tables/a:b/time_ns", np.array([4, 3]), "is not in time order"),
    ],
    ids=str,
)
def test_a_column_that_cannot_be_used(
    store: Path, column: str, values: np.ndarray | None, words: str
) -> None:
    array = pa.array([3]) if values is None else one_list(values)
    changed = rewritten(store, columns=lambda columns: columns.update({column: array}))
    assert words in refusal(changed, column)


KEYS_OF_THE_TRACE = {
    "gfp_bits": (-1, {"__GFP_IO": "x"}),
    "release": (3,),
    "nr_cpus": (10**300, -1, True),
    "notes": ([1, None], 1e300),
    "sampled": (3, {"a": None}),
    "declared_types": ({"a": 3},),
}


@pytest.mark.parametrize(
    ("part", "change"),
    [
        *(("trace", {k: v}) for k, values in KEYS_OF_THE_TRACE.items() for v in values),
        *(("", {"losses_at_end": value}) for value in (None, 1e300, [])),
        ("", {"source": {"file": 3, "size": "x", "sha256": []}}),
        ("lengths", dict.fromkeys(COLUMN_TYPES, -1)),
        ("lengths", dict.fromkeys(COLUMN_TYPES, 1e300)),
    ],
    ids=str,
)
def test_a_value_of_another_kind_in_the_header(store: Path, part: str, change: dict) -> None:
    def header(words: dict) -> None:
        (words[part] if part else words).update(change)

    assert "holds a value of another kind" in refusal(rewritten(store, header=header))


def test_more_rows_than_a_file_has_room_for(store: Path) -> None:
    """Said by the header, or packed: 512 MiB of zeros in a file of some kilobytes."""
    many = dict.fromkeys(COLUMN_TYPES, 1 << 62)
    changed = rewritten(store, header=lambda header: header["lengths"].update(many))
    assert "more rows than a file of its size" in refusal(changed)
    file = pa.ipc.open_file(str(store))
    zeros = one_list(np.zeros(1 << 26, np.int64))
    columns = [
        zeros if name == "pfn" else column
        for name, column in zip(file.schema.names, file.get_batch(0).columns, strict=True)
    ]
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(str(changed), file.schema, options=options) as out:
        out.write_batch(pa.RecordBatch.from_arrays(columns, schema=file.schema))
    assert changed.stat().st_size < 1 << 17
    assert "it unpacks to 5368" in refusal(changed)


@pytest.mark.parametrize("name", ["time_ns", "pfn", "losses/cpu", "comms/tid", "tables/a:b/row"])
def test_a_column_that_is_not_there(store: Path, name: str) -> None:
    changed = rewritten(
        store,
        header=lambda header: header["lengths"].pop(name),
        columns=lambda columns: columns.pop(name),
    )
    assert f"it has no column {name}" in refusal(changed)


def test_a_nested_header(store: Path) -> None:
    table = pa.ipc.open_file(str(store)).read_all()
    nested = {HEADER_KEY: b'{"version":1,"a":' + b"[" * 100_000}
    with pa.ipc.new_file(str(store), table.schema.with_metadata(nested)) as out:
        out.write_table(table.replace_schema_metadata(nested))
    assert "its header is damaged" in refusal(store)


def test_a_damaged_piece(store: Path) -> None:
    """Bytes overwritten in a compressed column are found when it is unpacked."""
    write_store(shipped_recording("xfree").trace, store, source=None)
    content = bytearray(store.read_bytes())
    content[1 << 16 : 1 << 17] = b"\xff" * (1 << 16)
    store.write_bytes(content)
    line = refusal(store, "time_ns")
    assert "column time_ns is damaged" in line
