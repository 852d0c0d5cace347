"""Whether a difference over repeated runs could be chance: a paired test that assumes no shape."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

LEVEL = 0.05
EXACT_RUNS = 14
"""With more runs, signs are drawn instead of gone through."""

DRAWS = 1 << 14
TEST = "two-sided sign-flip permutation test on the paired differences of runs"


def paired_p(base: Sequence[float], patch: Sequence[float], seed: int = 0) -> float:
    """How often a difference at least as large comes about if base and patch are exchangeable.

    Every run has its value under both; if the policy did nothing, each pair's difference could
    as well have the other sign. Exact up to `EXACT_RUNS` runs, beyond by drawn signs.

    Args:
        base: one value per run.
        patch: of the same runs.
        seed: of drawn signs.

    Returns:
        The share of signs whose mean difference is at least as far from 0; NaN where fewer than
        two pairs are known.
    """
    differences = np.asarray(patch, float) - np.asarray(base, float)
    differences = differences[~np.isnan(differences)]
    runs = len(differences)
    if runs < 2:
        return float("nan")
    seen = abs(differences.sum())
    sums = np.abs(_signs(runs, seed) @ differences)
    return float(np.mean(sums >= seen * (1 - 1e-12)))


def smallest_p(runs: int) -> float:
    """The smallest value that `paired_p` can have with so many runs."""
    return 2.0 / 2**runs if runs <= EXACT_RUNS else 1.0 / DRAWS


def _signs(runs: int, seed: int) -> np.ndarray:
    """int8, shape (ways, runs): every way to sign the differences, or some of them."""
    if runs <= EXACT_RUNS:
        return np.array(list(itertools.product((-1, 1), repeat=runs)), np.int8)
    drawn = np.random.default_rng(seed).choice(np.array([-1, 1], np.int8), (DRAWS, runs))
    drawn[0] = 1
    return drawn
