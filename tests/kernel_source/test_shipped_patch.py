"""The patch that is sent: it applies, and its score and its count are right."""

from __future__ import annotations

import ctypes
import os
import random
import re
import shutil
import subprocess
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pagealloc_model.notebooks.studies.highatomic.reserve_reply import shipped_patch

from pagealloc_model.allocator import layout as at
from pagealloc_model.kernel_source.compiled_tree import COMPILERS, CompiledTree, KernelState
from pagealloc_model.kernel_source.extraction import ALLOCATION
from pagealloc_model.kernel_source.random_operations import random_beginning, random_operations
from pagealloc_model.kernel_source.source_tree import open_tree
from pagealloc_model.policy.kernel_rules import KernelRules
from tests.kernel_source import Sources

SERIES = ["6.12", "7.3"]

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


@pytest.fixture(params=SERIES)
def patched(request: pytest.FixtureRequest, kernel_source: Sources, tmp_path: Path) -> Path:
    """Files of a tree with the patch for it; lines around its hunks are as it says."""
    root = kernel_source(request.param).root
    for name in ("include/linux/mmzone.h", "mm/page_alloc.c", "mm/vmstat.c"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, file)
    subprocess.run(
        ["git", "apply"],
        cwd=tmp_path,
        env=os.environ | {"GIT_CEILING_DIRECTORIES": str(tmp_path.parent)},
        input=shipped_patch(request.param).encode(),
        check=True,
    )
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


COUNTING = replace(
    ALLOCATION,
    behind_functions=(
        *ALLOCATION.behind_functions,
        str(Path(__file__).with_name("highatomic_blocks.c")),
    ),
)
MACHINES, OPERATIONS = 140, 2_000


class CountingKernel(KernelState):
    """The kernel of a patched tree, asked for what it counts."""

    def pages_counted(self, operations: np.ndarray, places: np.ndarray) -> list[int]:
        """Pages counted after each operation; ends with -1 where a walk finds others."""
        self._library.begin_counts()
        self._library.counted_pages.restype = ctypes.c_long
        found: list[int] = []
        for number in range(len(operations)):
            self.state.st[at.LOG_ROWS] = 0
            assert self.advance(operations, places, number, number + 1, -1) == number + 1
            found.append(int(self._library.counted_pages()))
            if found[-1] < 0:
                break
        return found


def pages_counted(tree: CompiledTree, series: str) -> np.ndarray:
    """Pages counted after each operation on random machines, one after the other, up to a -1."""
    found: list[int] = []
    for seed in range(MACHINES):
        rng = random.Random(seed)
        beginning = random_beginning(rng, KernelRules.named(series))
        operations = random_operations(rng, beginning, OPERATIONS)
        with closing(CountingKernel(tree, beginning.state())) as kernel:
            found += kernel.pages_counted(operations, beginning.starting_places(OPERATIONS))
            assert kernel.broken_assertion is None
        if found[-1] < 0:
            break
    return np.array(found)


def without_hunk(patch: str, of: str) -> str:
    """A patch without the hunk whose first line has a text."""
    hunks = re.split(r"^(?=@@ |diff )", patch, flags=re.MULTILINE)
    kept = [each for each in hunks if of not in each.partition("\n")[0]]
    assert len(kept) == len(hunks) - 1
    return "".join(kept)


@pytest.mark.parametrize("series", SERIES)
def test_the_count_is_that_of_a_walk_after_each_operation(
    kernel_source: Sources, series: str
) -> None:
    tree = CompiledTree(open_tree(kernel_source(series).root, shipped_patch(series)), COUNTING)
    counted = pages_counted(tree, series)
    assert len(counted) == MACHINES * OPERATIONS
    assert counted[-1] >= 0
    changes = np.diff(counted.reshape(MACHINES, OPERATIONS))
    assert min((changes > 0).sum(), (changes < 0).sum()) > 20


@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize(
    "hunk", [" __add_to_free_", " move_to_free_list", " __del_page_from_free_"]
)
def test_a_count_that_one_function_leaves_out_is_found(
    kernel_source: Sources, series: str, hunk: str
) -> None:
    patch = without_hunk(shipped_patch(series), hunk)
    tree = CompiledTree(open_tree(kernel_source(series).root, patch), COUNTING)
    assert pages_counted(tree, series)[-1] == -1


@pytest.fixture(scope="module")
def checkpatch(kernel_source: Sources, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script of a source package, with the lists that it reads."""
    source = kernel_source("6.12").path
    if source.is_dir():
        return source / "scripts/checkpatch.pl"
    folder = tmp_path_factory.mktemp("scripts")
    names = [f"*/scripts/{each}" for each in ("checkpatch.pl", "*.checkpatch", "spelling.txt")]
    words = ["tar", "-I", "xz -dT0", "-xf", source, "-C", folder, "--strip-components=1"]
    subprocess.run([*words, "--wildcards", *names], check=True)
    return folder / "scripts/checkpatch.pl"


@pytest.mark.skipif(not shutil.which("perl"), reason="checkpatch is written in Perl")
@pytest.mark.parametrize("series", SERIES)
def test_checkpatch_has_one_complaint(checkpatch: Path, series: str) -> None:
    """The Signed-off-by is the sender's to add."""
    words = ["perl", checkpatch, "--no-tree", "--strict", "--terse", "-"]
    patch = shipped_patch(series)
    done = subprocess.run(words, input=patch, capture_output=True, text=True, check=False)
    *complaints, total = done.stdout.splitlines()
    assert [each.partition(": ")[2] for each in complaints] == [
        "ERROR: Missing Signed-off-by: line(s)"
    ]
    assert total.startswith("total: 1 errors, 0 warnings, 0 checks")
