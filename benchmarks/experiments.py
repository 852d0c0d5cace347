"""Predict a finished experiment anew with this version of the model, and ship the tables.

Usage: python benchmarks/experiments.py PLAN DIR

PLAN is the name of a shipped plan, and DIR where `pagealloc experiment` left its runs. Nothing is
run; every recording in DIR is measured, and those of the sides that others are predicted from are
replayed. The tables go to data/experiments/PLAN; `make readme` writes documentation from them.
"""

from __future__ import annotations

import sys
import time

import pagealloc_model as pm
from pagealloc_model.studies.experiments.shipped import ship_experiment


def main(plan: str, directory: str) -> None:
    """Predict, print the table and ship it."""
    began = time.monotonic()
    result = pm.experiment(plan, directory, make=False)
    print(result.to_text())
    print(f"{ship_experiment(result)}: {len(result.runs)} runs, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
