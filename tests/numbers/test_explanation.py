"""What `explain` says of reports, against S3.3 written out plainly and what kernels really did."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pagealloc_model as pm
from pagealloc_model.numbers.explanation import Explanation, explain
from pagealloc_model.recording.proc.mem_info import parse_mem_info
from tests.memory_reports import MadeZone, report

REPORTS = Path(__file__).parents[1] / "recording" / "reports"
ORDINARY = ("Unmovable", "Movable", "Reclaimable")


def explained(text: str, **options: object) -> Explanation:
    (state,) = parse_mem_info(text.splitlines(), "log")
    return explain(state, **options)  # type: ignore[arg-type]


def normal(**blocks: tuple[int, ...]) -> MadeZone:
    """Two zones' worth is not needed where one says it all."""
    return MadeZone(name="Normal", blocks=dict(blocks))


FRAGMENTED = normal(Movable=(4000, 1000, 200, 10))
"""6,880 free pages, none in a block of order 4."""


def test_fragmentation_is_the_reason_where_memory_is_free_in_small_blocks() -> None:
    found = explained(report([FRAGMENTED]))
    assert found.sentence == (
        "Order 4 failed for fragmentation: Normal has free memory (5,865 pages above the min mark) "
        "but no free block of order 4 or above that this request may take."
    )
    (zone,) = found.answer.zones
    assert (zone.usable, zone.needed, zone.above, zone.has_block) == (6865, 1000, 5865, False)
    assert zone.compaction == "suitable" and zone.index > 500
    assert list(found.changes) == ["order 3 instead", "GFP_ATOMIC, which may use reserves"]


def test_lack_of_memory_is_the_reason_below_the_mark() -> None:
    found = explained(report([normal(Movable=(100, 0, 0, 0, 20))]))
    assert "failed for lack of memory: Normal is below the mark" in found.sentence
    assert found.answer.zones[0].has_block and found.answer.zones[0].above <= 0
    table = found.alternatives.set_index("change")
    assert table.loc["GFP_ATOMIC, which may use reserves", "served"]


def test_the_largest_min_free_kbytes_is_that_at_which_the_marks_pass() -> None:
    """1,480 pages free, 15 of the order left out: the mark may be 1,464 pages, 5,856 KiB."""
    zone = MadeZone(name="Normal", min=2000, blocks={"Movable": (1000, 0, 0, 0, 30)})
    found = explained(report([zone]))
    (change,) = [name for name in found.changes if "min_free_kbytes" in name]
    assert change == "--patch min_free_kbytes=5859 or less"
    assert found.changes[change].serving is not None
    for kbytes, passes in ((5856, True), (5860, False)):
        policy = pm.Policy(min_free_kbytes=kbytes)
        tried = explained(report([zone]), policy=policy).changes
        assert (tried[f"--patch {policy}"].serving is not None) == passes


def test_reserved_blocks_are_of_no_use_to_a_request_that_may_sleep() -> None:
    zone = MadeZone(
        name="Normal",
        reserved_highatomic=1024,
        blocks={"Movable": (4000,), "HighAtomic": (0, 0, 0, 0, 12)},
    )
    text = report([zone], order=4)
    found = explained(text)
    assert found.sentence.endswith("may take; those there are 12 of HighAtomic.")
    gate = next(name for name in found.changes if "highatomic_gate_order=3" in name)
    assert found.changes[gate].serving is not None
    atomic = explained(text, gfp="GFP_ATOMIC|__GFP_COMP")
    assert atomic.answer.serving is not None and "HighAtomic" in atomic.answer.types


@pytest.mark.parametrize(("gfp", "served"), [("GFP_KERNEL", False), ("GFP_HIGHUSER_MOVABLE", True)])
def test_cma_serves_movable_requests_alone(gfp: str, served: bool) -> None:
    zone = normal(Movable=(4000,), CMA=(0, 0, 0, 0, 0, 100))
    found = explained(report([zone], gfp=gfp, order=4))
    assert (found.answer.serving is not None) == served
    assert ("CMA" in found.answer.types) == served
    (row,) = found.free_blocks.query("migratetype == 'CMA'").itertuples()
    assert (row.order, row.blocks, row.may_take) == (5, 100, served)


def test_isolated_blocks_serve_nobody() -> None:
    zone = MadeZone(
        name="Normal",
        blocks={"Movable": (4000,), "Isolate": (0, 0, 0, 0, 0, 100)},
    )
    assert "those there are 100 of Isolate" in explained(report([zone])).sentence


def test_the_zone_that_has_pages_is_named_with_what_keeps_them() -> None:
    kept = {"name": "DMA", "min": 30, "blocks": {"Movable": (262,)}}
    normal_is_short = MadeZone(name="Normal", min=1000, blocks={"Movable": (400,)})
    for reserve, shuts in ((234, True), (231, False)):
        dma = MadeZone(lowmem_reserve=(0, reserve, reserve, reserve), **kept)  # type: ignore[arg-type]
        found = explained(report([dma, normal_is_short], order=0))
        assert (found.answer.serving is None) == shuts
        if shuts:
            assert found.sentence == (
                "Order 0 failed for lack of memory and lowmem_reserve: Normal is below the mark "
                "that holds for it (601 pages short); DMA has 232 pages above its min mark, but "
                "its lowmem_reserve keeps 234 from requests that other zones may serve."
            )
            assert [each.why for each in found.answer.zones] == [
                "too little memory",
                "lowmem_reserve",
            ]
    zone = MadeZone(
        min=1000, reserved_highatomic=512, blocks={"HighAtomic": (512,), "Movable": (600,)}
    )
    found = explained(report([zone], order=0))
    assert (
        "(401 pages short; 512 of the highatomic reserve in Normal are not for it)"
        in found.sentence
    )


def test_no_zone_serves_from_below_its_mark() -> None:
    """An atomic request of order 0 is held to the mark without its boost."""
    zone = MadeZone(min=1000, boost=800, blocks={"Movable": (400,)})
    found = explained(report([zone], order=0, gfp="GFP_ATOMIC", version=(6, 1)))
    by = found.answer.serving
    assert by is not None and by.above > 0
    assert by.usable - by.needed - by.reserve == by.above


def test_highmem_is_kept_from_requests_for_the_kernel() -> None:
    """A 32-bit machine: a gigabyte free in HighMem does not help GFP_KERNEL."""
    reserve = (0, 500, 9000, 9000)
    zones = [
        MadeZone(name="DMA", min=50, managed=4000, lowmem_reserve=reserve, blocks={}),
        MadeZone(name="Normal", lowmem_reserve=(0, 0, 8500, 8500), blocks={"Movable": (300,)}),
        MadeZone(name="HighMem", lowmem_reserve=(0,) * 4, blocks={"Movable": (0,) * 10 + (250,)}),
    ]
    text = report(zones, order=0, oom=True, version=(4, 19), gfp="GFP_KERNEL")
    found = explained(text)
    assert "lack of memory: Normal and DMA are below" in found.sentence
    assert found.answer.zones[-1].why == "not in the zonelist"
    user = explained(text, gfp="GFP_HIGHUSER")
    assert user.answer.serving is not None and user.answer.serving.zone.name == "HighMem"
    assert [each.reserve for each in user.answer.zones] == [0, 8500, 9000]


def test_two_nodes_are_tried_from_the_nearest_and_a_policy_binds() -> None:
    zones = [
        MadeZone(node=node, name="Normal", blocks={"Movable": (4000, 0, 0, 0, node * 50)})
        for node in (0, 1)
    ]
    found = explained(report(zones))
    assert [each.zone.node for each in found.answer.zones] == [0, 1]
    assert found.answer.serving is not None and found.answer.serving.zone.node == 1
    assert [each.zone.node for each in explained(report(zones), node=1).answer.zones] == [1, 0]
    bound = explained(report(zones).replace("nodemask=(null)", "nodemask=0"))
    assert bound.answer.serving is None and "Normal of node 0 has free memory" in bound.sentence


@pytest.mark.parametrize(("page_kb", "orders"), [(16, 12), (64, 14)])
def test_larger_pages_change_sizes_alone(page_kb: int, orders: int) -> None:
    found = explained(report([FRAGMENTED], page_kb=page_kb, orders=orders))
    assert found.answer.zones[0].above == 5865
    assert f"order 4 ({16 * page_kb} KiB)" in found.to_text()
    zone = MadeZone(name="Normal", min=2000, blocks={"Movable": (1000, 0, 0, 0, 30)})
    found = explained(report([zone], page_kb=page_kb, orders=orders))
    (change,) = [name for name in found.changes if "min_free_kbytes" in name]
    kbytes = int(change.split("=")[1].split()[0])
    assert kbytes // page_kb == 1464


def test_a_report_that_shows_enough_memory_says_so() -> None:
    found = explained(report([normal(Movable=(4000, 0, 0, 0, 5))]))
    assert "would now be served by zone Normal" in found.sentence
    assert "memory came free between the failure and the report" in found.sentence
    assert not found.changes


def test_what_an_old_kernel_does_not_print_is_said() -> None:
    zone = MadeZone(
        name="Normal", blocks={"Movable": (4000,), "HighAtomic": (0, 8)}, reserved_highatomic=512
    )
    old = explained(report([zone], version=(4, 19)))
    assert any("reserved_highatomic is not in the text" in note for note in old.notes)
    assert "older than every preset, rules 6.1 assumed" in old.to_text()
    assert not explained(report([zone], version=(7, 3))).notes


def test_an_old_kernels_number_is_decoded_by_its_own_table() -> None:
    """0x2084020 of 4.4 is GFP_ATOMIC with __GFP_COMP."""
    found = explained(report([FRAGMENTED], version=(4, 4), mode="0x2084020"))
    assert found.bits == 0x40A20 | 0x40000
    assert "no: the request may not sleep" in found.to_text()


def test_unknown_flags_are_named_and_left_out() -> None:
    found = explained(report([FRAGMENTED], gfp="GFP_KERNEL|__GFP_CMA"))
    assert found.unknown_flags == ("__GFP_CMA",)
    assert "without a known meaning are left out: __GFP_CMA" in found.to_text()


def test_the_kernels_own_failures_are_explained() -> None:
    """Guests that were really refused: fragmentation, with memory free above the mark."""
    for path, above, largest in (
        (REPORTS / "order_7_6.12.117.txt", 1671, 5),
        (REPORTS / "order_7_7.3.4.txt", 3824, 6),
    ):
        found = explain(path)
        assert found.sentence == (
            f"Order 7 failed for fragmentation: DMA32 has free memory ({above:,} pages above the "
            "min mark) but no free block of order 7 or above that this request may take."
        )
        assert f"the largest is of order {largest}" in found.to_text()
        assert f"order {largest} instead" in found.changes


ASKED = sorted(path for path in REPORTS.glob("*.txt") if "ask: after" in path.read_text())


@pytest.mark.parametrize("path", ASKED, ids=lambda path: path.stem)
def test_verdicts_are_those_of_the_kernel_at_that_moment(path: Path) -> None:
    """Each guest's module asked for every order at once, with four kinds of flags.

    Where a report leaves out memory that a kind may use, a request that was served there is not
    called a failure without saying so.
    """
    judged = re.findall(r"ask: after node (\d) (\S+) (.*)", path.read_text())
    assert len(judged) == 4
    for node, gfp, words in judged:
        for order, what in re.findall(r"(\d+):(served|failed)", words):
            found = pm.explain(path, order=int(order), gfp=gfp, node=int(node))
            if found.unseen:
                assert found.answer.serving is None or what == "served", (gfp, order)
                assert found.answer.serving or "not in the report" in found.sentence
            else:
                assert (found.answer.serving is not None) == (what == "served"), (gfp, order)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "oom_6.1.176",
            "Order 0 failed for lack of memory and lowmem_reserve: DMA32 is below the mark that",
        ),
        (
            "oom_cpuset_6.1.176",
            "Order 0 failed for lack of memory: DMA32 of node 1 is below the mark",
        ),
        (
            "order_6_highmem_6.1.176",
            "Order 6 failed for fragmentation: HighMem, Normal and DMA have free memory (173,824 ",
        ),
        (
            "order_6_lowmem_6.1.176",
            "Order 6 failed for fragmentation: Normal and DMA have free memory (",
        ),
        (
            "order_6_cma_16k_6.12.95",
            "Order 6 failed for fragmentation: DMA has free memory (",
        ),
    ],
)
def test_the_kernel_did_not_serve_the_request_of_the_report(name: str, sentence: str) -> None:
    path = REPORTS / f"{name}.txt"
    found = pm.explain(path)
    assert found.sentence.startswith(sentence) and not found.unseen
    assert found.request.what != "oom-killer" or "Out of memory: Killed process" in path.read_text()


def test_free_blocks_of_a_cma_area_and_pages_of_16_kib() -> None:
    found = pm.explain(REPORTS / "order_6_cma_16k_6.12.95.txt")
    assert found.state.page_kb == 16 and "order 6 (1024 KiB)" in found.to_text()
    assert found.sentence.endswith("those there are 5 of CMA.")
    movable = pm.explain(
        REPORTS / "order_6_cma_16k_6.12.95.txt", order=11, gfp="GFP_HIGHUSER_MOVABLE"
    )
    assert movable.answer.serving is not None and "CMA" in movable.answer.types


def test_memory_that_a_report_leaves_out_is_named() -> None:
    """Kernels print the zones and nodes that the failed request may use."""
    path = REPORTS / "order_6_lowmem_6.1.176.txt"
    assert pm.explain(path, gfp="GFP_HIGHUSER").unseen == ("HighMem",)
    assert not pm.explain(path, gfp="GFP_KERNEL").unseen
    path = REPORTS / "oom_cpuset_6.1.176.txt"
    assert "bound to node 1 by its cpuset" in pm.explain(path).to_text()
    kernel = pm.explain(path, gfp="GFP_KERNEL")
    assert kernel.unseen == ("node 0",) and "bound to" not in kernel.to_text()
    assert kernel.sentence.endswith("; node 0, not in the report, might serve it.")
    assert not pm.explain(path, gfp="GFP_USER").unseen


def test_a_cpuset_binds_requests_for_user_memory_alone() -> None:
    """cpuset_node_allowed(): without __GFP_HARDWALL, or in an interrupt, all nodes serve."""
    zones = [
        MadeZone(node=node, name="Normal", blocks={"Movable": (4000, 0, 0, 0, 50 - node * 50)})
        for node in (0, 1)
    ]
    text = report(zones, gfp="GFP_USER").replace("mems_allowed=0-1", "mems_allowed=1")
    assert explained(text).answer.serving is None
    assert explained(text, gfp="GFP_KERNEL").answer.serving is not None
    assert explained(text.replace("<TASK>", "<IRQ>")).answer.serving is not None
    bound = text.replace("nodemask=(null)", "nodemask=1")
    assert explained(bound, gfp="GFP_KERNEL").answer.serving is None
    assert explained(bound, gfp="GFP_ATOMIC").answer.serving is not None


def test_a_cgroups_oom_report_is_no_failure_of_the_allocator() -> None:
    message = r"memory cgroup /a: its limit was met \(usage 20,480 kB, limit 20,480 kB\), the page"
    with pytest.raises(pm.RecordingError, match=message):
        pm.explain(REPORTS / "oom_memcg_6.1.176.txt")


def test_a_request_for_one_node_alone_is_judged_on_the_node_that_failed() -> None:
    """It was node 1; node 0 had memory."""
    found = pm.explain(REPORTS / "order_4_node_1_6.1.176.txt")
    assert found.answer.serving is None
    assert "failed for fragmentation: DMA32 of node 1 has" in found.sentence
    assert any("node 1 is taken, the first that cannot serve it" in note for note in found.notes)


def test_the_answer_is_one_screen() -> None:
    lines = explained(report([FRAGMENTED, MadeZone(name="DMA32", blocks={})])).to_text().split("\n")
    assert len(lines) <= 40 and max(map(len, lines)) <= 100


def test_requests_and_policies_that_cannot_be_are_refused() -> None:
    with pytest.raises(pm.UsageError, match="orders 0 to 10"):
        explained(report([FRAGMENTED]), order=11)
    with pytest.raises(pm.PolicyError, match="changes nothing for memory as it stands"):
        explained(report([FRAGMENTED]), policy=pm.Policy(pcp_batch=3))
    with pytest.raises(pm.UsageError, match="there are nodes 0"):
        explained(report([FRAGMENTED]), node=3)


counts = st.tuples(*[st.integers(0, 40)] * 6)
made_zones = st.builds(
    MadeZone,
    name=st.just("Normal"),
    min=st.integers(0, 600),
    boost=st.integers(0, 100),
    reserved_highatomic=st.integers(0, 4).map(lambda blocks: blocks * 512),
    lowmem_reserve=st.integers(0, 50).map(lambda pages: (pages,) * 4),
    blocks=st.dictionaries(
        st.sampled_from([*ORDINARY, "HighAtomic", "CMA", "Isolate"]), counts, max_size=4
    ),
)


def serves(zone: MadeZone, order: int, gfp: str) -> bool:
    """S3.3 and S2.6 of 7.3 for a request at the min mark, written out."""
    is_atomic, is_movable = gfp == "GFP_ATOMIC", gfp == "GFP_HIGHUSER_MOVABLE"
    free = zone.free - ((1 << order) - 1)
    if not is_atomic:
        free -= zone.pages("HighAtomic")
    if not is_movable:
        free -= zone.pages("CMA")
    mark = zone.min + zone.boost
    if is_atomic:
        mark -= mark // 2
        mark -= mark // 4
    # an atomic request of order 0 is tried without the boost, too
    marks = [mark]
    if is_atomic and order == 0 and zone.boost:
        bare = zone.min - zone.min // 2
        marks.append(bare - bare // 4)
    if all(free <= mark + zone.lowmem_reserve[2] for mark in marks):
        return False
    types = {*ORDINARY, *(["CMA"] if is_movable else []), *(["HighAtomic"] if is_atomic else [])}
    return order == 0 or any(any(zone.blocks.get(name, ())[order:]) for name in types)


@settings(max_examples=150, deadline=None)
@given(
    zone=made_zones,
    order=st.integers(0, 5),
    gfp=st.sampled_from(["GFP_KERNEL", "GFP_ATOMIC", "GFP_HIGHUSER_MOVABLE"]),
)
def test_verdicts_are_those_of_the_specification(zone: MadeZone, order: int, gfp: str) -> None:
    found = explained(report([zone], order=order, gfp=gfp, version=(7, 3)))
    assert (found.answer.serving is not None) == serves(zone, order, gfp)
