"""What came in place of failed requests (T10.4): worked out by hand, and against the oracle."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pagealloc_model.allocator.objects import REQUEST, OpenFailures, link_replacements
from pagealloc_model.measured.folios import huge_attempts
from tests.oracle.lru import Kind
from tests.oracle.replacements import Asked, Replacements
from tests.oracle.request import Bits
from tests.oracle.task_faults import HEAVY, KERNEL, LIGHT, Drawn, task_requests

TOKENS: dict[str, Drawn] = {
    "first!": (Kind.ANON, 9, HEAVY | Bits.THISNODE | Bits.NORETRY, True),
    "second!": (Kind.ANON, 9, HEAVY, True),
    "second": (Kind.ANON, 9, HEAVY, False),
    "only!": (Kind.ANON, 9, LIGHT | Bits.THISNODE, True),
    "only": (Kind.ANON, 9, LIGHT | Bits.THISNODE, False),
    **{f"{order}": (Kind.ANON, order, HEAVY, False) for order in range(9)},
    **{f"{order}!": (Kind.ANON, order, HEAVY, True) for order in range(9)},
    **{f"k{order}": (Kind.KERNEL, order, KERNEL, False) for order in range(4)},
    **{f"k{order}!": (Kind.KERNEL, order, KERNEL, True) for order in range(4)},
}
"""Requests: the attempts at a huge page, smaller ones by order, kernel memory; ! is refused."""

Request = tuple[int, Drawn]  # task, request


def by_model(requests: list[Request]) -> list[int]:
    """The failure that each request came in place of, both by their place; -1 for none."""
    leads = np.full(len(requests), -1, np.int32)
    failures = OpenFailures()
    for cut in (slice(0, len(requests) // 2), slice(len(requests) // 2, None)):
        rows = [
            (task, number, kind, order, failed, 0)
            for number, (task, (kind, order, _, failed)) in list(enumerate(requests))[cut]
        ]
        part = np.array(rows, REQUEST)
        bits = np.array([int(bits) for _, (_, _, bits, _) in requests[cut]], np.uint32)
        part["attempt"] = huge_attempts(bits, part["order"], part["kind"])
        link_replacements(part, *failures.of(part), leads)
    return leads.tolist()


def by_oracle(requests: list[Request]) -> list[int]:
    replacements = Replacements()
    return [
        replacements.take(task, kind, Asked(number, order, bits, failed))
        for number, (task, (kind, order, bits, failed)) in enumerate(requests)
    ]


@pytest.mark.parametrize(
    ("told", "leads"),
    [
        # A write that is refused a huge page: its own fault goes on with single pages.
        ("only! 0 0 only! 0", "- 0 0 - 3"),
        # The second attempt is the same fault's, served or not; behind it nothing is left open.
        ("first! second! 0 0", "- 0 1 1"),
        ("first! second 0", "- 0 -"),
        ("first! second first! second! 0", "- 0 - 2 3"),
        # Without direct reclaim there is no second attempt: each is another place.
        ("only! second! 0", "- - 1"),
        ("first! 0 second! 0", "- 0 - 2"),
        # Reads map the zero page and ask for nothing, so that huge pages fail in a row. The next
        # page may be of the last one's own fault; the others wait, the oldest first.
        ("only! only! only! 0 8 8 8 8 0", "- - - 2 2 2 0 0 1"),
        ("first! second! first! second! 8 8 0", "- 0 - 2 3 3 1"),
        # A place that got pages is left when the task goes on, one that got none is not.
        ("only! 0 only 0", "- 0 - -"),
        ("only! only 0", "- - 0"),
        ("only! only! 0 only! 0 8 8 0", "- - 1 - 3 3 3 0"),
        # A fault goes down through what is enabled, and each size counts in all that stand.
        ("first! second! 4! 2! 0 0 2 0", "- 0 1 2 3 3 2 2"),
        ("only! 4! 3! 2! 0 0 0 0 0", "- 0 1 2 3 3 3 3 2"),
        ("4! 4! 0", "- 0 1"),
        ("4! 0 4! 0", "- 0 - 2"),
        ("4! only! 0", "- - 1"),
        ("4! 4 0", "- - -"),
        # A refused single page ends nothing: the fault is made again.
        ("only! 4! 0! 4! 0", "- 0 1 1 3"),
        # Up to as many pages as were asked for; kernel memory is replaced by one request.
        ("1! 0 0 0", "- 0 0 -"),
        ("k3! k0 k0", "- 0 -"),
        ("k3! 0", "- -"),
        ("0 only", "- -"),
    ],
)
def test_what_came_in_place_of_what(told: str, leads: str) -> None:
    requests = [(1, TOKENS[word]) for word in told.split()]
    expected = [-1 if word == "-" else int(word) for word in leads.split()]
    assert by_model(requests) == expected
    assert by_oracle(requests) == expected


def test_tasks_have_nothing_to_do_with_each_other() -> None:
    requests = [(1, "first!"), (2, "second!"), (2, "0"), (1, "0"), (1, "second"), (2, "0")]
    drawn = [(task, TOKENS[word]) for task, word in requests]
    assert by_model(drawn) == by_oracle(drawn) == [-1, -1, 1, 0, -1, 1]


@pytest.mark.parametrize("seed", range(40))
def test_the_oracle_says_the_same_of_many_faults(seed: int) -> None:
    rng = random.Random(seed)
    asking = {task: task_requests(rng) for task in (5, 6, 7)}
    requests = [(task, next(asking[task])) for task in rng.choices(list(asking), k=400)]
    found = by_model(requests)
    assert found == by_oracle(requests)
    assert max(found) > 0
