"""A start image re-cut into smaller and larger pageblocks, and replays with them (S1.12)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pagealloc_model as pm
from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.state import LISTED, StartImage, install, make_state
from pagealloc_model.base.errors import PolicyError
from pagealloc_model.numbers.values import States
from pagealloc_model.numbers.vocabulary import by_zone
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.predicted.start.pageblocks import recut
from pagealloc_model.recording.machine import (
    PAGE_KB,
    Machine,
    Zone,
    min_free_kbytes_at_boot,
    synthetic_machine,
)
from tests.allocator.invariants import broken_invariants
from tests.small_recordings import shipped_recording

RULES = KernelRules.preset("6.12")
BLOCK = 512
BLOCKS = 8
MACHINE = Machine(
    zones=(
        Zone(
            name="Normal",
            start_pfn=0,
            spanned=BLOCKS * BLOCK,
            present=BLOCKS * BLOCK,
            managed=BLOCKS * BLOCK,
        ),
    ),
    nr_cpus=1,
)
FREE, KERNEL, USER = 0, 1, 2


def image_of(types: list[int], content: dict[int, list[int]]) -> StartImage:
    """Blocks of these types; the content of some quarters, of a quarter's page each, else free."""
    pages = np.zeros(BLOCKS * BLOCK, np.int8)
    for block, quarters in content.items():
        for quarter, what in enumerate(quarters):
            pages[block * BLOCK + quarter * 128 + 7] = what
    return StartImage(
        free=pages == FREE,
        movable=pages == USER,
        block_types=np.array(types, np.int8),
        listed=np.zeros(0, LISTED),
        pcp_high=np.zeros((1, 1), np.int64),
        allocated_pfn=np.zeros(0, np.int32),
        allocated_order=np.zeros(0, np.int8),
    )


def test_a_smaller_block_takes_its_blocks_type_unless_all_its_pages_are_of_the_other_kind() -> None:
    types = [at.MOVABLE, at.UNMOVABLE, at.RECLAIMABLE, at.HIGHATOMIC, -1, 1, 1, 1]
    quarters = [FREE, KERNEL, USER, USER]
    image = recut(MACHINE, image_of(types, {number: quarters for number in range(4)}), 7)
    found = image.block_types.reshape(-1, 4).tolist()
    assert found[0] == [at.MOVABLE, at.UNMOVABLE, at.MOVABLE, at.MOVABLE]
    assert found[1] == [at.UNMOVABLE, at.UNMOVABLE, at.MOVABLE, at.MOVABLE]
    assert found[2] == [at.RECLAIMABLE, at.RECLAIMABLE, at.MOVABLE, at.MOVABLE]
    assert found[3] == [at.HIGHATOMIC] * 4
    assert found[4:6] == [[-1] * 4, [1] * 4]
    assert "32 pageblocks, 5 have another type" in image.origin[-1]


def test_a_smaller_block_with_pages_of_both_kinds_keeps_its_type() -> None:
    image = image_of([at.MOVABLE, at.UNMOVABLE, *[1] * 6], {0: [KERNEL] * 4, 1: [USER] * 4})
    image.free[[0, BLOCK]] = False
    image.movable[0] = True
    found = recut(MACHINE, image, 7).block_types
    assert found[0] == at.MOVABLE and found[4] == at.UNMOVABLE
    assert (found[[1, 5]] == [at.UNMOVABLE, at.MOVABLE]).all()


def test_pages_on_per_cpu_lists_are_in_use_by_nobody() -> None:
    image = image_of([at.MOVABLE] * BLOCKS, {0: [KERNEL, FREE, FREE, FREE]})
    listed = np.zeros(1, LISTED)
    listed["pfn"] = 7
    assert (recut(MACHINE, replace(image, listed=listed), 7).block_types == at.MOVABLE).all()


def test_a_larger_block_takes_the_type_of_most_of_its_blocks() -> None:
    types = [at.MOVABLE, at.UNMOVABLE, at.RECLAIMABLE, at.RECLAIMABLE, -1, at.MOVABLE, -1, -1]
    machine = replace(MACHINE, max_order=11)
    assert recut(machine, image_of(types, {}), 10).block_types.tolist() == [0, 2, 1, -1]
    assert recut(machine, image_of(types, {}), 11).block_types.tolist() == [2, 1]


@pytest.mark.parametrize("order", [1, 5, 7, 8, 10])
@pytest.mark.parametrize("preset", ["6.1", "6.12"])
def test_every_page_of_a_re_cut_image_has_its_place(order: int, preset: str) -> None:
    rng = np.random.default_rng(order)
    image = image_of(rng.integers(0, 4, BLOCKS).tolist(), {})
    image.free[:] = rng.random(len(image.free)) < 0.95
    image.free[rng.integers(0, BLOCKS) * BLOCK :][:BLOCK] = True
    image.movable[:] = ~image.free & (rng.random(len(image.free)) < 0.5)
    machine = MACHINE.with_pageblock_order(order)
    state = make_state(machine, KernelRules.preset(preset))
    install(state, recut(MACHINE, image, order))
    assert broken_invariants(state) == []
    sizes = 1 << np.arange(at.ORDERS)
    assert (state.free_buddies().sum(axis=(0, 2)) * sizes).sum() == image.free.sum()
    assert (state.blocks["zone"] == 1).all()


def test_min_free_kbytes_follows_the_blocks_where_it_is_that_of_boot() -> None:
    machine = synthetic_machine(16, 4, RULES)
    smaller = machine.at_boot(pm.Policy(pageblock_order=7), RULES)
    assert min_free_kbytes_at_boot(machine) == 512 * 3 * 11 * PAGE_KB
    assert smaller.min_free_kbytes == 128 * 3 * 11 * PAGE_KB
    given = pm.Policy(pageblock_order=7, min_free_kbytes=4096)
    assert machine.at_boot(given, RULES) == given
    assert machine.at_boot(pm.Policy(pageblock_order=9), RULES).min_free_kbytes is None
    other = machine.with_watermarks(pm.Policy(min_free_kbytes=50_000), RULES)
    assert other.at_boot(pm.Policy(pageblock_order=7), RULES).min_free_kbytes is None


def test_blocks_larger_than_the_largest_buddy_and_machines_without_a_recording_are_refused() -> (
    None
):
    with pytest.raises(PolicyError, match="the largest buddy has order 10"):
        MACHINE.with_pageblock_order(11)
    with pytest.raises(PolicyError, match="only replays of recordings have it"):
        make_state(MACHINE, RULES, pm.Policy(pageblock_order=7))


@pytest.mark.parametrize("reclaim", ["literal", "elastic"])
def test_a_replay_has_the_policys_blocks_and_counts_in_recorded_ones(reclaim: str) -> None:
    recording = shipped_recording("highatomic_stock")
    mode = pm.Assumptions(reclaim=reclaim)
    base = pm.replay(recording, assumptions=mode)
    same = pm.replay(recording, pm.Policy(pageblock_order=9), assumptions=mode)
    assert np.array_equal(base.final.st, same.final.st)
    smaller = pm.replay(recording, pm.Policy(pageblock_order=7), assumptions=mode)
    assert smaller.machine.pageblock_order == 7
    assert smaller.policy.min_free_kbytes == 128 * 2 * 11 * PAGE_KB
    assert broken_invariants(smaller.final) == []
    assert len(smaller.final.blocks) == 4 * len(base.final.blocks)
    assert "pageblock order 7 in place of 9" in smaller.start_state[-1]
    assert np.array_equal(States.of_replay(smaller).blocks * 4, smaller.samples.blocks)
    whole = {each.metric: each.value for each in by_zone(States.of_replay(smaller), MACHINE)}
    counted = smaller.samples.free_buddies[:, 0, 9:].sum(axis=2) @ (512, 1024, *[0] * 4)
    assert whole["free_in_whole_blocks"] == pytest.approx(counted.mean())
    assert pm.compare(base, smaller).rows.shape[0] > 0
