"""What the patch of the score costs a request: loops of requests and of faults, by instructions.

What was expected is in data/experiments/score_cost/registered.toml.
"""

from __future__ import annotations

import itertools

import pandas as pd
from pagealloc_model.notebooks.studies.others.shipped_data import shipped_data

NONE, SENT = "none", "sent"
"""Sides: without the patch, and with it."""


def request_costs() -> pd.DataFrame:
    """Instructions of a request with the patch by those without it, a row a loop.

    Returns:
        loop; held: pages or folios that are held at once; ratio: of the medians over all rounds;
        least, most: of any round with the patch to any without; null_least, null_most: of any round
        of one boot without the patch to any of another.
    """
    costs = pd.read_csv(shipped_data("the boots") / "experiments/score_cost/boots.csv")
    rows = []
    for (loop, held), own in costs.groupby(["loop", "held"], sort=False):
        sides = {side: rounds["ns"] for side, rounds in own.groupby("side")}
        boots = [each["ns"] for _, each in own[own["side"] == NONE].groupby("boot")]
        pairs = list(itertools.permutations(boots, 2))
        rows.append(
            {
                "loop": loop,
                "held": held,
                "ratio": sides[SENT].median() / sides[NONE].median(),
                "least": sides[SENT].min() / sides[NONE].max(),
                "most": sides[SENT].max() / sides[NONE].min(),
                "null_least": min(each.min() / other.max() for each, other in pairs),
                "null_most": max(each.max() / other.min() for each, other in pairs),
            }
        )
    return pd.DataFrame(rows)
