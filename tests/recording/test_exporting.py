"""Events for other tools: read again they are the same, and DuckDB and Polars open them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import pagealloc_model as pm
from pagealloc_model.base.errors import UsageError
from pagealloc_model.cli import main
from pagealloc_model.recording.exporting import export_recording
from pagealloc_model.recording.recording import Recording
from pagealloc_model.recording.trace.columns import COLUMN_TYPES, Event
from pagealloc_model.recording.trace.formats import gfp_names
from tests.event_text import gfp_from_names
from tests.small_recordings import shipped_recording

SAMPLES = Path(__file__).parent / "trace/samples"


@pytest.fixture
def lossy() -> Recording:
    return pm.open(SAMPLES / "lossy.dat")


@pytest.fixture
def parquet(lossy: Recording, tmp_path: Path) -> Path:
    return export_recording(lossy, tmp_path / "events", "parquet").path


def test_parquet_holds_every_column(lossy: Recording, parquet: Path) -> None:
    table, trace = pq.read_table(parquet / "events.parquet"), lossy.trace
    for name, dtype in COLUMN_TYPES.items():
        if name != "event":
            values = table[name].to_numpy()
            assert values.dtype == dtype
            np.testing.assert_array_equal(values, getattr(trace, name))
    kinds = Counter(table["event"].to_pylist())
    assert kinds["kmem:mm_page_alloc"] == trace.count(Event.ALLOC)
    threads = zip(table["pid"].to_pylist(), table["comm"].to_pylist(), strict=True)
    assert all(comm == trace.comms.get(pid, "") for pid, comm in threads)
    losses = pq.read_table(parquet / "losses.parquet")
    assert sum(losses["count"].to_pylist()) == trace.losses.total
    for event, columns in trace.tables.items():
        values = pq.read_table(parquet / f"{event.replace(':', '.')}.parquet")
        assert values.column_names == list(columns)
        assert len(values) == len(columns["time_ns"])


@pytest.mark.filterwarnings("ignore:.*depend on the kernel")
@pytest.mark.parametrize("name", ["small", "overwritten", "lossy"])
def test_text_read_again_is_the_same(name: str, tmp_path: Path) -> None:
    trace = pm.open(SAMPLES / f"{name}.dat").trace
    result = export_recording(pm.open(SAMPLES / f"{name}.dat"), tmp_path / "events.txt", "text")
    again = pm.open(result.path).trace
    for column in set(COLUMN_TYPES) - {"gfp", "in_interrupt"}:
        np.testing.assert_array_equal(getattr(again, column), getattr(trace, column), column)
    np.testing.assert_array_equal(again.gfp, trace.gfp & 0xFFFFFF)
    assert again.losses.total == trace.losses.total
    assert (again.release, again.nr_cpus) == (trace.release, trace.nr_cpus)
    assert {event: len(table["row"]) for event, table in again.tables.items()} == {
        event: len(table["row"]) for event, table in trace.tables.items()
    }


@pytest.mark.filterwarnings("ignore:.*depend on the kernel")
def test_text_of_fallbacks_and_locks_read_again(tmp_path: Path) -> None:
    trace = shipped_recording("highatomic_gate3").trace
    export_recording(shipped_recording("highatomic_gate3"), tmp_path / "events.txt", "text")
    again = pm.open(tmp_path / "events.txt").trace
    for event, column in (
        ("kmem:mm_page_alloc_extfrag", "fallback_order"),
        ("kmem:mm_page_alloc_extfrag", "row"),
        ("lock:contention_begin", "lock_addr"),
        ("lock:contention_begin", "flags"),
    ):
        if event in trace.tables:
            np.testing.assert_array_equal(again.tables[event][column], trace.tables[event][column])
    np.testing.assert_array_equal(again.pfn, trace.pfn)


def test_gfp_words_are_named_as_the_kernel_does(lossy: Recording) -> None:
    bits = lossy.trace.gfp_bits
    for word in (0, 0xCC0, 0x20, 0xCC0 | 1 << 31, *np.unique(lossy.trace.gfp).tolist()):
        assert gfp_from_names(gfp_names(word, bits), bits) == word
    assert gfp_names(0xCC0, bits) == "GFP_KERNEL"


def test_duckdb_and_polars_open_it(lossy: Recording, parquet: Path) -> None:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed (extra: test)")
    polars = pytest.importorskip("polars", reason="polars is not installed (extra: test)")
    trace, events = lossy.trace, parquet / "events.parquet"
    taken = trace.event == Event.ALLOC
    rows = duckdb.sql(
        f"SELECT comm, count(*) AS pages FROM '{events}' "
        "WHERE event = 'kmem:mm_page_alloc' AND pfn >= 0 GROUP BY comm ORDER BY pages DESC"
    ).fetchall()
    threads = trace.pid[taken & (trace.pfn >= 0)].tolist()
    assert dict(rows) == Counter(trace.comms.get(pid, "") for pid in threads)
    is_allocation = polars.col("event").cast(polars.String) == "kmem:mm_page_alloc"
    table = polars.scan_parquet(events).filter(is_allocation).group_by("order").len().collect()
    assert dict(table.iter_rows()) == Counter(trace.order[taken].tolist())


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sample, target = str(SAMPLES / "small.dat"), str(tmp_path / "made")
    assert main(["export", sample, "--to", "parquet", "-o", target]) == 0
    assert "events 239" in capsys.readouterr().out
    assert main(["export", sample, "--to", "parquet", "-o", target]) == 2
    assert main(["export", sample, "--to", "text", "-o", target]) == 2
    assert "exists" in capsys.readouterr().err
    with pytest.raises(UsageError, match="parquet and text are"):
        export_recording(pm.open(sample), tmp_path / "other", "csv")
