"""Functions that compute the same have one digest, in every process; others have another."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace

import numba
import numpy as np
import pytest

import pagealloc_model as pm
from pagealloc_model.base.jit.digest import function_digest

LARGEST = 3
SIZES = np.array([1, 2, 4])
UNIDENTIFIED = SimpleNamespace()

PROGRAM = """
import pagealloc_model as pm
LARGEST = 3
print(pm.Hooks(reserve=lambda order, reserved, managed: order > LARGEST and order in {7, 9}
).fingerprint)
"""


def gate(largest: int) -> Callable[[int, int, int], bool]:
    def reserve(order: int, reserved: int, managed: int) -> bool:
        return order > largest

    return reserve


def by_global(order: int, reserved: int, managed: int) -> bool:
    """Refers to a global."""
    return order > LARGEST


def is_large(order: int) -> bool:
    return order > LARGEST


def by_function(order: int, reserved: int, managed: int) -> bool:
    return is_large(order)


def by_array(order: int, reserved: int, managed: int) -> int:
    return max(SIZES[each] for each in range(order))


def by_itself(order: int, reserved: int, managed: int) -> bool:
    return order > 0 and by_itself(order - 1, reserved, managed)


def unidentified(order: int, reserved: int, managed: int) -> bool:
    return order > UNIDENTIFIED.order


def test_what_a_function_computes_counts_and_nothing_else() -> None:
    plain = function_digest(lambda order, reserved, managed: order > 3)

    def named(order: int, reserved: int, managed: int) -> bool:
        # Says the same.
        return order > 3

    assert function_digest(named) == plain
    assert function_digest(numba.njit(named)) == plain
    others = [
        lambda order, reserved, managed: order > 4,
        lambda order, reserved, managed: order >= 3,
        lambda order, reserved, managed: reserved > 3,
        lambda order, reserved, managed, least=3: order > least,
        lambda order, reserved, managed, least=4: order > least,
        gate(3),
        gate(4),
    ]
    assert len({plain, *map(function_digest, others)}) == 1 + len(others)
    assert function_digest(gate(4)) == function_digest(gate(4))


@pytest.mark.parametrize(
    ("function", "name", "changed"),
    [
        (by_global, "LARGEST", 4),
        (by_function, "LARGEST", 4),
        (by_function, "is_large", by_global),
        (by_array, "SIZES", np.array([1, 2, 5])),
        (by_array, "SIZES", np.array([1, 2, 4], np.int8)),
        (by_itself, "by_itself", by_global),
    ],
)
def test_what_a_function_refers_to_counts(
    function: Callable[..., int], name: str, changed: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = function_digest(function)
    assert function_digest(function) == before
    monkeypatch.setitem(globals(), name, changed)
    assert function_digest(function) != before


def test_what_has_no_identity_is_refused() -> None:
    with pytest.raises(pm.UsageError, match="global 'UNIDENTIFIED', a SimpleNamespace"):
        function_digest(unidentified)
    with pytest.raises(pm.UsageError, match="no function written in Python"):
        function_digest(len)


def test_hooks_have_one_fingerprint_in_every_process() -> None:
    found = set()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(done.stdout)
    assert len(found) == 1


def test_a_fingerprint_tells_which_decision_is_replaced() -> None:
    def most(first: int, order: int, count: int, high: int, batch: int) -> int:
        return first

    assert pm.Hooks(refill=most).fingerprint != pm.Hooks(drain=most).fingerprint
    assert pm.Hooks(refill=most).fingerprint == pm.Hooks(refill=most).fingerprint
    assert pm.Hooks().fingerprint != pm.Hooks(drain=most).fingerprint
