"""Mem-Info of the kernel's log: prefixes, versions, broken and folded lines, hostile text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording.proc.mem_info import (
    LONGEST_LINE,
    MOST_REPORTS,
    MemoryState,
    parse_mem_info,
)
from tests.memory_reports import ALMOST, MadeZone, report

REPORTS = Path(__file__).parents[1] / "reports"
ZONES = (
    MadeZone(
        name="DMA32",
        lowmem_reserve=(0, 0, 500, 500),
        blocks={"Movable": (10, 5, 0, 1), "CMA": (0, 0, 3)},
    ),
    MadeZone(
        name="Normal",
        boost=40,
        reserved_highatomic=512,
        blocks={"Unmovable": (3,), "HighAtomic": (1, 0, 0, 0, 2)},
    ),
)


def read(text: str) -> MemoryState:
    (state,) = parse_mem_info(text.splitlines(), "log")
    return state


PREFIXES = (
    "",
    "[  123.456789] ",
    "[Mon May 16 08:57:19 2022] ",
    "<4>[  123.456789] ",
    "May 16 08:57:19 host kernel: ",
    "May 16 08:57:19 host kernel: [  123.456789] ",
    "2024-05-16T08:57:19.123456+02:00 host kernel: [  123.456789] ",
    "kern  :warn  : [  123.456789] ",
    "> [  123.456789] ",
    "[  123.456789][ T1234] ",
    "<4>[  123.456789].(2)[77:kworker/u8:3] ",
    "| ",
)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_what_stands_before_the_lines_of_a_log_does_not_matter(prefix: str) -> None:
    state, plain = read(report(ZONES, prefix=prefix)), read(report(ZONES))
    assert state.zones == plain.zones
    assert state.request is not None and plain.request is not None
    assert (state.request.order, state.request.gfp) == (4, "GFP_KERNEL|__GFP_COMP")
    assert state.request.comm.endswith("kworker/u8:3")
    assert state.release == "6.12.7-made-up"


def test_a_zone_has_what_the_report_says_in_pages() -> None:
    dma32, normal = read(report(ZONES)).zones
    assert dma32.buddies[:4] == (10, 5, 3, 1) and dma32.types[:4] == ("M", "M", "C", "M")
    assert dma32.free == 10 + 10 + 12 + 8 and dma32.free_cma == 12
    assert dma32.lowmem_reserve == (0, 0, 500, 500)
    assert (normal.min, normal.boost, normal.reserved_highatomic) == (1040, 40, 512)
    assert normal.types[:5] == ("UH", "", "", "", "H")
    assert normal.managed == 1 << 20 and normal.file_pages == 33


@pytest.mark.parametrize("version", [(4, 4), (4, 9), (4, 19), (5, 10), (6, 1), (7, 3)])
def test_what_a_version_does_not_print_is_not_known(version: tuple[int, int]) -> None:
    normal = read(report(ZONES, version=version)).zones[1]
    assert (normal.boost is None) == (version < (5, 16))
    assert (normal.reserved_highatomic is None) == (version < (5, 6))
    assert (normal.free_highatomic is None) == (version < (7, 0))


@pytest.mark.parametrize(("page_kb", "orders"), [(4, 11), (16, 12), (64, 14)])
def test_the_page_size_is_that_of_the_smallest_block(page_kb: int, orders: int) -> None:
    state = read(report(ZONES, page_kb=page_kb, orders=orders))
    assert state.page_kb == page_kb and len(state.zones[0].buddies) == orders
    assert [zone.free for zone in state.zones] == [zone.free for zone in ZONES]


def test_the_oom_killer_and_interrupts_are_told() -> None:
    oom = read(report(ZONES, oom=True, order=0)).request
    assert oom is not None and (oom.what, oom.order, oom.comm) == ("oom-killer", 0, "stress")
    atomic = read(report(ZONES, stack=" <IRQ>")).request
    assert atomic is not None and atomic.in_interrupt is True and atomic.cpu == 1


def test_the_nodes_of_policy_and_cpuset_are_told() -> None:
    text = report(ZONES).replace("nodemask=(null)", "nodemask=0,2-3")
    request = read(text).request
    assert request is not None
    assert (request.nodes, request.cpuset_nodes) == (frozenset({0, 2, 3}), frozenset({0, 1}))


def test_rows_that_a_mail_folds_or_an_old_kernel_breaks_are_joined() -> None:
    text = report(ZONES, version=(4, 9))
    folded = re.sub(r"(.{60,72}) (?=\S)", "\\1\n", text)
    broken = text.replace("lowmem_reserve[]: ", "lowmem_reserve[]:\n[   1.0]  ")
    broken = re.sub(r"(\d+\*\d+kB)", r"\n[   1.0] \1", broken)
    assert folded != text and broken != text
    assert read(folded).zones == read(text).zones
    assert read(broken).zones == read(text).zones


def test_the_kernels_own_reports_are_read() -> None:
    """Printed by guests as a ring buffer asked for sub-buffers of 512 KiB."""
    found = {}
    for path in sorted(REPORTS.glob("order_7_*.txt")):
        state = read(path.read_text())
        assert state.request is not None and state.request.order == 7
        (zone,) = state.zones
        found[state.release] = (zone.name, zone.free, zone.buddies[5:8])
    assert found == {
        "6.12.117": ("DMA32", 2054, (4, 0, 0)),
        "7.3.4": ("DMA32", 4207, (16, 7, 0)),
    }


def test_a_log_has_all_its_reports_and_those_without_zones_are_left_out() -> None:
    text = report(ZONES) + "x: page allocation failure: order:1, mode:0x20(GFP_ATOMIC)\n"
    states = parse_mem_info((text + report(ZONES, order=9)).splitlines(), "log")
    orders = [state.request.order for state in states if state.request]
    assert orders == [4, 9] and [state.number for state in states] == [1, 2]


def test_sysrq_prints_memory_without_a_request() -> None:
    text = report(ZONES)
    assert read(text[text.index("Mem-Info:") :]).request is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no report of a failed allocation"),
        ("hello\n" * 50, "no report of a failed allocation"),
        ("a: page allocation failure: order:1, mode:0x20(GFP_ATOMIC)\n", "without the zones"),
        (
            "a invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0\n"
            "memory: usage 8192kB, limit 8192kB, failcnt 12\n",
            "memory cgroup",
        ),
    ],
)
def test_text_without_a_report_says_what_is_missing(text: str, words: str) -> None:
    with pytest.raises(RecordingError, match=words):
        parse_mem_info(text.splitlines(), "log")


def test_blocks_that_do_not_double_are_refused() -> None:
    with pytest.raises(RecordingError, match="doubling"):
        read(report(ZONES).replace("*16kB", "*17kB"))


def test_hostile_lines_hide_no_report() -> None:
    """No pattern takes time that grows faster than the line, or this test does not end."""
    lines = [line[: 2 * LONGEST_LINE] for line in ALMOST] * 20
    states = parse_mem_info([*lines, *report(ZONES).splitlines()], "log")
    assert states[-1].zones == read(report(ZONES)).zones


def test_a_log_with_very_many_reports_is_refused() -> None:
    first = report(ZONES).splitlines()[0]
    with pytest.raises(RecordingError, match=f"more than {MOST_REPORTS} reports"):
        parse_mem_info([first] * (MOST_REPORTS + 1), "log")
