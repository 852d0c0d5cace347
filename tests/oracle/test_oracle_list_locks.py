"""pcp->lock by hand (S4.11, S11.3): who takes it, and when it changes hands."""

from __future__ import annotations

from tests.oracle import Oracle
from tests.oracle.ownership_bench import PAGES, counts, owning, take
from tests.oracle.pcp_bench import FIXED, ready
from tests.oracle.scenarios import one_zone, oracle, put_free_memory


def locks(target: Oracle, cpu: int = 0) -> tuple[int, int, int]:
    """Acquisitions, holds to drain, hand-overs of a CPU."""
    found = counts(target, cpu)
    return found.lock_acquisitions, found.lock_drain_holds, found.lock_handovers


def test_every_allocation_and_every_free_takes_it_once() -> None:
    """Whatever refills and overflows come with them; without ownership, too."""
    target = ready(FIXED)
    pages = take(target, 40)
    assert locks(target) == (40, 0, 0)
    for pfn in pages:
        target.free(0, pfn, 0)
    assert locks(target) == (80, 0, 0)


def test_the_buddy_has_no_part_in_it() -> None:
    target = ready(FIXED)
    pages = take(target, 1, order=5)
    target.free(0, pages[0], 5)
    assert locks(target) == (0, 0, 0)


def test_a_remote_free_takes_it_away_and_the_owner_takes_it_back() -> None:
    target = owning()
    take(target, PAGES)
    target.free(1, 3, 0)
    target.free(1, 5, 0)
    assert locks(target, cpu=1) == (2, 0, 1)
    take(target)
    assert locks(target, cpu=0) == (PAGES + 1, 0, 1)


def test_drains_take_it_once_a_chunk() -> None:
    """CPU 1 drains CPU 0's lists; the first to take a lock has it from nobody."""
    target = oracle(one_zone(8, nr_cpus=2), "6.12", FIXED)
    put_free_memory(target, 0)
    take(target)
    target.drain_all(by=1)
    assert locks(target, cpu=1) == (0, 1, 1)
    target.tick(0)
    assert locks(target, cpu=0) == (1, 0, 0), "nothing to drain"


def test_later_chunks_of_an_overflow_take_it_again() -> None:
    """7.2 (S4.7): 28 pages in chunks of 4; the first chunk is in the free's own hold."""
    target = ready(FIXED, rules="7.2")
    pages = take(target, 64)
    target.drain_all()
    before = locks(target)
    for pfn in pages[:32]:
        target.free(0, pfn, 0)
    after = locks(target)
    assert (after[0] - before[0], after[1] - before[1]) == (32, 6)


def frees_taken(target: Oracle, batched: list[tuple[int, int]]) -> int:
    """Acquisitions of frees by (CPU, page), all in batches."""
    before = [locks(target, cpu)[0] for cpu in range(2)]
    for cpu, pfn in batched:
        target.free(cpu, pfn, 0, batched=True)
    return sum(locks(target, cpu)[0] for cpu in range(2)) - sum(before)


def test_a_folio_batch_takes_it_once() -> None:
    """31 pages at most; the next begins another."""
    target = owning()
    pages = take(target, 2 * PAGES)
    assert frees_taken(target, [(0, pfn) for pfn in pages]) == 2


def test_a_batch_may_meet_several_owners() -> None:
    target = owning()
    mine, theirs = take(target, 4, cpu=0), take(target, 4, cpu=1)
    assert frees_taken(target, [(0, mine[0]), (0, theirs[0]), (0, theirs[1]), (0, mine[1])]) == 3
    assert (
        frees_taken(target, [(0, mine[2]), (1, theirs[2]), (0, mine[3]), (1, theirs[3])]) == 2 - 1
    )


def test_a_batch_goes_on_past_pages_without_a_list_and_ticks() -> None:
    target = owning()
    pages = take(target, PAGES)
    large = take(target, order=4)[0]
    assert frees_taken(target, [(0, pages[0])]) == 1
    target.free(0, large, 4, batched=True)
    target.tick(0)
    assert frees_taken(target, [(0, pages[1])]) == 0


def test_other_work_ends_a_batch() -> None:
    target = owning()
    pages = take(target, PAGES)
    assert frees_taken(target, [(0, pages[0]), (0, pages[1])]) == 1
    take(target)
    assert frees_taken(target, [(0, pages[2])]) == 1
    target.free(0, pages[3], 0)
    assert frees_taken(target, [(0, pages[4]), (0, pages[5])]) == 1
