"""Faults put into the kernels one at a time: the comparison with the oracle must find each."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

EXAMPLES = 100
"""Scenarios to find a fault in."""

TIMEOUT_S = 1200
"""A fault that makes a kernel run forever is found too."""

COMPARE = """
import sys
from tests.allocator.agreement import assert_agreement
from tests.oracle.random_scenarios import random_scenario

for number in range(int(sys.argv[1])):
    assert_agreement(random_scenario(number, steps=200, replayed=True))
"""


@dataclass(frozen=True)
class Fault:
    """One wrong line.

    Attributes:
        name: what is wrong.
        module: kernel source.
        right: text as it is, once in the file.
        wrong: text put in its place.
    """

    name: str
    module: str
    right: str
    wrong: str


FAULTS = (
    Fault(
        "smallest fit takes the tail",
        "buddy",
        "pfn = st[free_list_at(zone, current, migratetype) + at.HEAD]",
        "pfn = st[free_list_at(zone, current, migratetype) + at.TAIL]",
    ),
    Fault("merging stops early", "buddy", "while order < largest:", "while order < largest - 1:"),
    Fault("no tail placement", "buddy", "if order < largest - 1:", "if order < 0:"),
    Fault(
        "merged block keeps its type",
        "buddy",
        "set_block_types(blocks, st, buddy, order, migratetype)",
        "set_block_types(blocks, st, buddy, order, other)",
    ),
    Fault(
        "highatomic merges with others",
        "buddy",
        "if other >= at.PCP_TYPES or migratetype >= at.PCP_TYPES:",
        "if other > at.PCP_TYPES or migratetype > at.PCP_TYPES:",
    ),
    Fault(
        "moved pages to the head",
        "buddy",
        "add_buddy(pages, st, zone, pfn, order, migratetype, True)",
        "add_buddy(pages, st, zone, pfn, order, migratetype, False)",
    ),
    Fault("refill one too many", "pcp", "while got < wanted:", "while got <= wanted:"),
    Fault(
        "refill to the head",
        "pcp",
        "push_tail(pages, st, lst, pfn)",
        "push_head(pages, st, lst, pfn)",
    ),
    Fault(
        "no halving of free_count",
        "pcp",
        "st[pcp + at.PCP_FREE_COUNT] >>= 1",
        "st[pcp + at.PCP_FREE_COUNT] >>= 0",
    ),
    Fault(
        "no halving of alloc_factor",
        "pcp",
        "st[pcp + at.PCP_ALLOC_FACTOR] >>= 1",
        "st[pcp + at.PCP_ALLOC_FACTOR] >>= 0",
    ),
    Fault(
        "the low bound wins",
        "arithmetic",
        "    if value >= high:\n        return high\n    return max(value, low)",
        "    return max(low, min(value, high))",
    ),
    Fault(
        "clamped high forgotten",
        "pcp",
        "    st[pcp + at.PCP_HIGH] = high\n    return high",
        "    return high",
    ),
    Fault("drain from the head", "pcp", "pfn = st[lst + at.TAIL]", "pfn = st[lst + at.HEAD]"),
    Fault("drain starts at list 0", "pcp", "index = first_list", "index = 0"),
    Fault(
        "high grows below the high watermark",
        "pcp",
        "if high_min != high_max and not st[zone_at(zone) + at.ZONE_BELOW_HIGH]:",
        "if high_min != high_max:",
    ),
    Fault(
        "the raised high applies at once",
        "pcp",
        "clamp(needed, high_min, high_max)\n    return high",
        "clamp(needed, high_min, high_max)\n    return st[pcp + at.PCP_HIGH]",
    ),
    Fault(
        "flush threshold without high_min",
        "pcp",
        "threshold += st[pcp + at.PCP_HIGH_MIN] // 2",
        "threshold += 0",
    ),
    Fault(
        "huge pages of all types on one list",
        "pcp",
        "(1 if migratetype == at.MOVABLE else 0)",
        "0",
    ),
    Fault("decay by a quarter", "pcp", "high - (high >> 3)", "high - (high >> 2)"),
    Fault(
        "free_count beyond its cap",
        "pcp",
        "if st[pcp + at.PCP_FREE_COUNT] < base << st[at.BATCH_SCALE_MAX]:",
        "if st[pcp + at.PCP_FREE_COUNT] <= base << st[at.BATCH_SCALE_MAX]:",
    ),
    Fault(
        "a free may drain up to the limit",
        "pcp",
        "clamp(st[pcp + at.PCP_FREE_COUNT], base, limit - base)",
        "clamp(st[pcp + at.PCP_FREE_COUNT], base, limit)",
    ),
    Fault(
        "no shorter lists while reclaim runs",
        "pcp",
        "if st[region + at.ZONE_RECLAIM_ACTIVE]:",
        "if st[region + at.ZONE_RECLAIM_ACTIVE] > 1:",
    ),
    Fault(
        "unmovable falls back to movable first",
        "fallback_search",
        "    if migratetype == at.UNMOVABLE:\n"
        "        return at.RECLAIMABLE if choice == 0 else at.MOVABLE",
        "    if migratetype == at.UNMOVABLE:\n"
        "        return at.RECLAIMABLE if choice == 1 else at.MOVABLE",
    ),
    Fault(
        "no boost",
        "fallback",
        "if boost_watermark(st, zone) and flags & at.ALLOC_KSWAPD:",
        "if flags < 0:",
    ),
    Fault(
        "half a block is not enough",
        "fallback_search",
        "return free + alike >= block_pages // 2",
        "return free + alike > block_pages // 2",
    ),
    Fault(
        "movable requests claim from order 5 up",
        "fallback",
        "if current < block_order // 2 and",
        "if current < block_order // 2 + 1 and",
    ),
    Fault(
        "movable requests claim from order 3 up",
        "fallback",
        "if current < block_order // 2 and",
        "if current < block_order // 3 and",
    ),
    Fault(
        "NOFRAGMENT claims parts of blocks",
        "fallback",
        "if flags & at.ALLOC_NOFRAGMENT and order < block_order:",
        "if flags & at.ALLOC_NOFRAGMENT and order > block_order:",
    ),
    Fault(
        "every steal looks at the other steps again",
        "fallback",
        "st[at.FALLBACK_MODE] = MODE_STEAL",
        "st[at.FALLBACK_MODE] = MODE_NORMAL",
    ),
    Fault(
        "stolen remainder changes its type",
        "fallback",
        "split(pages, st, zone, pfn, order, found_order, other)",
        "split(pages, st, zone, pfn, order, found_order, migratetype)",
    ),
    Fault(
        "blocks at the zone's edge are claimed",
        "fallback_search",
        "if first < st[region + at.ZONE_START] or end > st[region + at.ZONE_END]:",
        "if first < st[region + at.ZONE_START] and end > st[region + at.ZONE_END]:",
    ),
    Fault(
        "movable pages count for no one",
        "fallback_search",
        "movable += size",
        "movable += 0",
    ),
    Fault(
        "gate one order too low",
        "highatomic",
        "if order <= st[at.GATE_ORDER]:",
        "if order < st[at.GATE_ORDER]:",
    ),
    Fault(
        "cap one block too high",
        "highatomic",
        "if st[region + at.ZONE_RESERVED_HIGHATOMIC] >= cap:",
        "if st[region + at.ZONE_RESERVED_HIGHATOMIC] > cap:",
    ),
    Fault(
        "small zones reserve",
        "highatomic",
        "        if share < block_pages:\n            return\n",
        "",
    ),
    Fault(
        "the last block is given back",
        "highatomic",
        "if reserved <= 1 << st[at.PAGEBLOCK_ORDER]:",
        "if reserved < 1 << st[at.PAGEBLOCK_ORDER]:",
    ),
    Fault(
        "whole blocks are given back first",
        "highatomic",
        "st[at.PAGEBLOCK_ORDER]\n    for order in range(st[at.MAX_ORDER] + 1):",
        "st[at.PAGEBLOCK_ORDER]\n    for order in range(st[at.MAX_ORDER], -1, -1):",
    ),
    Fault("a reserve of 3/4", "watermark", "needed -= needed // 2", "needed -= needed // 4"),
    Fault(
        "no extra reserve for atomics",
        "watermark",
        "needed -= needed // 4",
        "needed -= 0",
    ),
    Fault(
        "lowmem_reserve ignored",
        "watermark",
        "if free <= needed + st[region + at.ZONE_LOWMEM_RESERVE + highest_type]:",
        "if free <= needed:",
    ),
    Fault(
        "at the mark is above it",
        "watermark",
        "if free <= needed + st",
        "if free < needed + st",
    ),
    Fault(
        "the reserve satisfies high-order checks",
        "watermark",
        "if flags & at.ALLOC_HIGHATOMIC and reserve >= 0:",
        "if reserve >= 0:",
    ),
    Fault(
        "reserved free pages count as free",
        "watermark",
        "free -= st[region + st[at.WATERMARK_SUBTRACTS]]",
        "free -= 0",
    ),
    Fault(
        "boost counts for order-0 reserves",
        "watermark",
        "if order == 0 and flags & at.ALLOC_IGNORES_BOOST and",
        "if order == 1 and flags & at.ALLOC_IGNORES_BOOST and",
    ),
    Fault(
        "boost without a cap",
        "watermark",
        "min(st[region + at.ZONE_BOOST] + block_pages, cap)",
        "st[region + at.ZONE_BOOST] + block_pages",
    ),
    Fault(
        "boost stays when reclaim ends",
        "watermark",
        "st[region + at.ZONE_BOOST] - st[region + at.ZONE_REMEMBERED_BOOST]",
        "st[region + at.ZONE_BOOST]",
    ),
    Fault(
        "kswapd sleeps through a boost",
        "watermark",
        "if node_boosted(st, node, highest_type) or not node_balanced(",
        "if not node_balanced(",
    ),
    Fault(
        "no last resort for atomics",
        "request",
        "if pfn < 0 and flags & at.ALLOC_NON_BLOCK:",
        "if pfn < 0 and flags < 0:",
    ),
    Fault(
        "NOFRAGMENT is never dropped",
        "request",
        "flags &= ~at.ALLOC_NOFRAGMENT\n            else:",
        "return -1\n            else:",
    ),
    Fault(
        "BELOW_HIGH is never set",
        "request",
        "st[region + at.ZONE_BELOW_HIGH] = 1",
        "st[region + at.ZONE_BELOW_HIGH] = 0",
    ),
    Fault(
        "unreserve is forgotten",
        "request",
        "unreserve(pages, blocks, st, log, cpu, zonelist, migratetype)",
        "pass",
    ),
)


@pytest.fixture
def faulty_package(checkout: Path, tmp_path: Path) -> Path:
    """Folder with a copy of the package, to be spoilt."""
    copy = tmp_path / "pagealloc_model"
    shutil.copytree(checkout / "pagealloc_model", copy, ignore=shutil.ignore_patterns("__py*"))
    return tmp_path


def comparison(checkout: Path, package_parent: Path, examples: int) -> str:
    """Run the comparison with the oracle on a copy; its complaint, "" if there is none."""
    path = os.pathsep.join((str(package_parent), str(checkout)))
    try:
        found = subprocess.run(
            [sys.executable, "-c", COMPARE, str(examples)],
            cwd=package_parent,
            env=os.environ | {"PYTHONPATH": path, "NUMBA_DISABLE_JIT": "1"},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return f"no end within {TIMEOUT_S} s"
    return found.stderr if found.returncode else ""


@pytest.mark.long
def test_the_comparison_finds_nothing_in_a_plain_copy(checkout: Path, faulty_package: Path) -> None:
    assert comparison(checkout, faulty_package, 5) == ""


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_the_comparison_finds(fault: Fault, checkout: Path, faulty_package: Path) -> None:
    source = faulty_package / "pagealloc_model" / "allocator" / f"{fault.module}.py"
    text = source.read_text()
    assert text.count(fault.right) == 1, f"{fault.module}.py does not have this line once"
    source.write_text(text.replace(fault.right, fault.wrong))
    complaint = comparison(checkout, faulty_package, EXAMPLES)
    assert complaint, "nothing was noticed"
    assert "SyntaxError" not in complaint
    assert "NameError" not in complaint


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_the_fault_still_fits_the_source(fault: Fault, checkout: Path) -> None:
    source = checkout / "pagealloc_model" / "allocator" / f"{fault.module}.py"
    assert source.read_text().count(fault.right) == 1
