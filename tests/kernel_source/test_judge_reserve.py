"""When an idle reserve keeps kcompactd away: the reply and the kernel say the same."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from pagealloc_model.notebooks.studies.highatomic.reserve_reply import (
    DMA32_GIB,
    HOST_GIB,
    hidden_percent,
)

from pagealloc_model.kernel_source.compiled_tree import COMPILERS
from tests.kernel_source import Sources

FUNCTIONS = (
    "fragmentation_score_zone_weighted",
    "fragmentation_score_node",
    "fragmentation_score_wmark",
    "should_proactive_compact_node",
)
BEFORE = """
#include <stdbool.h>
#define max(a, b) ((a) > (b) ? (a) : (b))
#define min(a, b) ((a) < (b) ? (a) : (b))
#define div64_ul(a, b) ((a) / (b))
#define MAX_NR_ZONES 2
#define populated_zone(zone) ((zone)->present_pages > 0)
#define kswapd_is_running(node) ((node)->kswapd)
typedef struct pglist_data pg_data_t;
struct zone { unsigned long present_pages; unsigned int score; pg_data_t *zone_pgdat; };
struct pglist_data { struct zone node_zones[2]; unsigned long node_present_pages; int kswapd; };
static unsigned int sysctl_compaction_proactiveness;
static unsigned int fragmentation_score_zone(struct zone *zone) { return zone->score; }
"""
AFTER = """
int begins(unsigned long small, unsigned int score_small, unsigned long large,
           unsigned int score_large, unsigned int proactiveness, int kswapd)
{
    pg_data_t node = { { { small, score_small, &node }, { large, score_large, &node } },
                       small + large, kswapd };
    sysctl_compaction_proactiveness = proactiveness;
    return should_proactive_compact_node(&node);
}
"""
GIB = 1 << 18
"""Pages of a GiB."""


@pytest.fixture(params=["6.12", "7.3"])
def begins(
    request: pytest.FixtureRequest, kernel_source: Sources, tmp_path: Path
) -> ctypes._CFuncPtr:
    """should_proactive_compact_node() of a tree, for a node of two zones with given scores."""
    text = (kernel_source(request.param).root / "mm/compaction.c").read_text()
    found = [
        re.search(rf"^static [^;{{]*\b{name}\([^;{{]*\)\n\{{.*?^\}}", text, re.M | re.S)
        for name in FUNCTIONS
    ]
    assert all(found)
    source, library = tmp_path / "score.c", tmp_path / "score.so"
    source.write_text("\n".join([BEFORE, *(each[0] for each in found if each), AFTER]))
    compiler = next(each for each in COMPILERS if shutil.which(each))
    subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", library, source], check=True)
    function = ctypes.CDLL(str(library)).begins
    function.argtypes = [
        ctypes.c_ulong,
        ctypes.c_uint,
        ctypes.c_ulong,
        ctypes.c_uint,
        ctypes.c_uint,
        ctypes.c_int,
    ]
    return function


@pytest.mark.parametrize("dma32_score", [None, 0, 50, 100])
def test_the_reply_s_percentages_are_the_source_s(
    begins: ctypes._CFuncPtr, dma32_score: int | None
) -> None:
    """Proactive compaction begins if and only if no more than that percentage is hidden."""
    small = 0 if dma32_score is None else DMA32_GIB * GIB
    hidden = hidden_percent(dma32_score)
    for score in range(101):
        began = begins(small, dma32_score or 0, HOST_GIB * GIB - small, score, 20, 0)
        assert began == (100 - score <= hidden), score


def test_it_never_begins_while_kswapd_runs_or_at_proactiveness_0(begins: ctypes._CFuncPtr) -> None:
    assert begins(0, 0, GIB, 100, 20, 0)
    assert not begins(0, 0, GIB, 100, 20, 1)
    assert not begins(0, 0, GIB, 100, 0, 0)
