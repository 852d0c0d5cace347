"""Changes of pageblocks' types from the kprobe, in hand-made perf.data."""

from pathlib import Path

import pandas as pd
import pytest

from pagealloc_model.measured.measured import block_types_table
from tests import synthetic_perf_data as perf
from tests.measured.test_lock_tracepoints import DMA32, NORMAL, ZONES, Events
from tests.synthetic_perf_data import Declared, Tracepoint

TYPES = ("Unmovable", "Movable", "Reclaimable", "HighAtomic")
BASE = 0xFFD4000000000000
MT: Declared = ("s32 mt", 4, True)
WORDS: dict[str, Declared] = {
    name: (f"u64 {name}", 8, False) for name in ("pfn", "mask", "page", "base")
}


def block_types(directory: Path, fields: str, *events: dict[str, int]) -> pd.DataFrame:
    point = Tracepoint("pa:block_type", 530, (MT, *(WORDS[name] for name in fields.split())))
    recorded = Events((perf.ALLOC, point))
    for values in events:
        recorded.add(point, **values)
    return block_types_table(recorded.trace(directory), ZONES, migratetypes=TYPES)


def test_a_block_is_where_the_kernel_says(tmp_path: Path) -> None:
    """Bits of a block that are not its type's, as compaction sets them, are no change of type."""
    found = block_types(
        tmp_path,
        "pfn mask",
        {"mt": 3, "pfn": DMA32, "mask": 7},
        {"mt": 8, "pfn": DMA32, "mask": 8},
        {"mt": 9, "pfn": NORMAL, "mask": 15},
    )
    assert found.values.tolist() == [
        [1010, 0, "DMA32", 0, DMA32, "HighAtomic"],
        [1030, 0, "Normal", 0, NORMAL, "Movable"],
    ]


def test_a_page_has_a_frame_number_where_vmemmap_begins(tmp_path: Path) -> None:
    found = block_types(tmp_path, "page base", {"mt": 0, "page": BASE + 64 * NORMAL, "base": BASE})
    assert found.values.tolist() == [[1010, 0, "Normal", 0, NORMAL, "Unmovable"]]


@pytest.mark.parametrize(
    ("fields", "values"),
    [
        ("page", {"page": BASE + 64 * NORMAL}),
        ("page base", {"page": 0xFFFF888000000050, "base": 0xFFFF888000000010}),
    ],
)
def test_where_a_block_is_may_be_unknown(
    tmp_path: Path, fields: str, values: dict[str, int]
) -> None:
    """Without vmemmap's begin, and in an anonymised recording, which keeps no addresses."""
    found = block_types(tmp_path, fields, {"mt": 6, **values})
    assert found[["node", "zone", "pfn", "migratetype"]].isna().all(axis=None)
    assert found["time_ns"].tolist() == [1010]


def test_no_probe_no_changes(tmp_path: Path) -> None:
    recorded = Events((perf.ALLOC,))
    recorded.alloc(DMA32)
    found = block_types_table(recorded.trace(tmp_path), ZONES, migratetypes=TYPES)
    assert found.empty and list(found) == ["time_ns", "node", "zone", "cpu", "pfn", "migratetype"]
