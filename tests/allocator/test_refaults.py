"""Uses of files' pages in an elastic replay: hits, and what must be read again (S10.7)."""

from __future__ import annotations

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.invariants import broken_invariants, broken_pieces
from tests.allocator.elastic_state import BLOCK, Pressed, bits_of, pressed_zone

FILE = bits_of(pr.FILE)
LAST = 3 * BLOCK - 1
"""Object of the page at the head of the list."""


def nearly_full(active: int = 0) -> Pressed:
    """Pages of files, some active, and fewer free ones than the min mark."""
    pressed = Pressed(machine=pressed_zone(4, 64))
    pressed.put_allocated(0, *range(active), kind=pr.FILE, active=True)
    pressed.put_allocated(0, *range(active, 3 * BLOCK), kind=pr.FILE)
    pressed.put_allocated(0, *range(3 * BLOCK, 4 * BLOCK - 20))
    pressed.put_free(0, *range(4 * BLOCK - 20, 4 * BLOCK, 2))
    pressed.put_allocated(0, *range(4 * BLOCK - 19, 4 * BLOCK, 2))
    return pressed


def use(pressed: Pressed, number: int, *, recorded: bool = False) -> None:
    pressed.take(
        operation=at.USE,
        object=number,
        offset=int(recorded),
        migratetype=at.MOVABLE,
        bits=FILE,
    )


def list_of(pressed: Pressed, number: int) -> int:
    return int(pressed.state.folios[pressed.places[number]]["place"]) - 1


def evict(pressed: Pressed) -> int:
    """Let direct reclaim take pages; the first object that it took."""
    pressed.alloc(0, at.UNMOVABLE)
    lost = (pressed.places[: 3 * BLOCK] < pr.LOST).nonzero()[0]
    assert len(lost)
    return int(lost[0])


def sound(pressed: Pressed) -> list[str]:
    return broken_invariants(pressed.state) + broken_pieces(pressed.state, pressed.places)


def test_a_second_use_makes_a_page_active() -> None:
    pressed = nearly_full()
    for expected in (pr.INACTIVE_FILE, pr.ACTIVE_FILE, pr.ACTIVE_FILE):
        use(pressed, LAST)
        assert list_of(pressed, LAST) == expected
    assert pressed.count("pgactivate") == 1
    assert pressed.count("workingset_refault_file") == 0
    assert sound(pressed) == []


def test_what_reclaim_took_is_read_again() -> None:
    pressed = nearly_full()
    number = evict(pressed)
    use(pressed, number)
    assert pressed.places[number] >= 0
    assert pressed.count("workingset_refault_file") == 1
    assert pressed.word(pr.ADDED_READS) == 1
    pressed.free(number)
    assert pressed.places[number] == pr.LOST
    assert sound(pressed) == []


def test_it_is_active_if_no_more_was_evicted_since_than_is_active() -> None:
    """32 pages or more go at a time: with fewer active ones the first is not recent."""
    for active, expected in ((0, pr.INACTIVE_FILE), (BLOCK, pr.ACTIVE_FILE)):
        pressed = nearly_full(active)
        number = evict(pressed)
        for each in range(LAST - 99, LAST + 1):
            pressed.free(each)
        use(pressed, number)
        assert list_of(pressed, number) == expected
        activated = int(expected == pr.ACTIVE_FILE)
        assert pressed.count("workingset_activate_file") == activated


def test_a_recorded_read_of_what_is_held_is_spared() -> None:
    pressed = nearly_full()
    free = pressed.state.free_buddies().sum()
    use(pressed, LAST, recorded=True)
    assert pressed.word(pr.SPARED_READS) == 1
    assert pressed.state.free_buddies().sum() == free


def test_a_recorded_read_of_what_is_gone_is_no_added_one() -> None:
    pressed = nearly_full()
    number = evict(pressed)
    use(pressed, number, recorded=True)
    assert pressed.places[number] >= 0
    assert pressed.word(pr.ADDED_READS) == 0


def test_what_was_freed_is_not_read_again() -> None:
    pressed = nearly_full()
    pressed.free(LAST)
    use(pressed, LAST)
    assert pressed.places[LAST] == pr.LOST
    assert pressed.word(pr.ADDED_READS) == 0
