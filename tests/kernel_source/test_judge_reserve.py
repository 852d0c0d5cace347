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
    shipped_patch,
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


FREE_AREAS = """
#include <stdbool.h>
#define min(a, b) ((a) < (b) ? (a) : (b))
#define div_u64(a, b) ((a) / (b))
#define READ_ONCE(a) (a)
#define data_race(a) (a)
#define NR_PAGE_ORDERS 11
static unsigned int pageblock_order;
struct free_area { unsigned long nr_free; };
struct zone { struct free_area free_area[NR_PAGE_ORDERS];
              unsigned long nr_free_highatomic, nr_free_highatomic_blocks; };
struct contig_page_info { unsigned long free_pages, free_blocks_total, free_blocks_suitable; };
"""
SCORE_OF = """
unsigned int score(const unsigned long *free, unsigned long reserved, unsigned long in_blocks,
                   unsigned int order, unsigned int block)
{
    struct zone zone = { .nr_free_highatomic = reserved, .nr_free_highatomic_blocks = in_blocks };
    for (int each = 0; each < NR_PAGE_ORDERS; each++)
        zone.free_area[each].nr_free = free[each];
    pageblock_order = block;
    return extfrag_for_order(&zone, order);
}
"""


@pytest.fixture(params=["6.12", "7.3"])
def patched(request: pytest.FixtureRequest, kernel_source: Sources, tmp_path: Path) -> Path:
    """Files of a tree with the patch for it, which applies without fuzz."""
    root = kernel_source(request.param).root
    for name in ("include/linux/mmzone.h", "mm/page_alloc.c", "mm/vmstat.c"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, file)
    patch = shipped_patch(request.param)
    words = ["patch", "--directory", tmp_path, "--strip=1", "--fuzz=0"]
    subprocess.run(words, input=patch.encode(), check=True)
    return tmp_path


def test_the_patched_score_leaves_out_the_reserve_where_its_pieces_are_known(
    patched: Path,
) -> None:
    """Scores by hand, with three reserved blocks of order 9 and 100 reserved single pages."""
    text = (patched / "mm/vmstat.c").read_text()
    found = [
        re.search(rf"^(static|unsigned)[^;{{]*\b{name}\([^;{{]*\)\n\{{.*?^\}}", text, re.M | re.S)
        for name in ("fill_contig_page_info", "extfrag_for_order")
    ]
    source, library = patched / "score.c", patched / "score.so"
    source.write_text("\n".join([FREE_AREAS, *(each[0] for each in found if each), SCORE_OF]))
    compiler = next(each for each in COMPILERS if shutil.which(each))
    subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", library, source], check=True)
    score = ctypes.CDLL(str(library)).score

    def of(pieces: int, blocks: int, reserved: int, in_blocks: int, block_order: int = 9) -> int:
        free = (ctypes.c_ulong * 11)(pieces, *[0] * 8, blocks, 0)
        counts = (ctypes.c_ulong(reserved), ctypes.c_ulong(in_blocks))
        return score(free, *counts, 9, block_order)

    assert of(10_000, 3, 0, 0) == 86  # as without the patch: 10,000 of 11,536
    assert of(10_000, 3, 1536 + 100, 1536) == 100
    assert of(10_000, 4, 1536, 1536) == 95  # 10,000 of 10,512
    assert of(10_000, 4, 1536, 1536, block_order=10) == 83  # 10,000 of 12,048
    assert of(100, 3, 1536 + 100, 1536) == 0  # nothing but the reserve is free
    assert of(0, 0, 0, 0) == 0
    assert of(50, 3, 1536 + 100, 1536) == 0  # counts of different moments stay in range
    assert of(2_000, 0, 100, 512) == 100


def test_the_patched_free_lists_count_reserved_blocks_where_they_count_buddies(
    patched: Path,
) -> None:
    """Once where a buddy enters, twice where it moves, once where it leaves, and nowhere else."""
    text = (patched / "mm/page_alloc.c").read_text()
    callers = {
        name: len(re.findall(r"\baccount_highatomic_blocks\(", body))
        for name, body in re.findall(
            r"^static inline void (\w+)\([^;{]*\)\n\{(.*?)^\}", text, re.M | re.S
        )
        if "account_highatomic_blocks(" in body
    }
    counted = {"__add_to_free_list": 1, "move_to_free_list": 2, "__del_page_from_free_list": 1}
    assert callers == counted
    assert text.count("account_highatomic_blocks(") == 1 + sum(counted.values())
