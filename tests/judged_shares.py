"""Shares of judged choices of an oracle's recording as JSON: python -m tests.judged_shares DIR."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pagealloc_model as pm

COLUMNS = ["choice", "scope", "judged", "hits", "unjudged"]


def shares(recording: Path) -> list[list[object]]:
    """Rows of the table of choices, as plain values."""
    choices = pm.open(recording).judge_choices().choices
    return [list(row) for row in choices[COLUMNS].itertuples(index=False)]


if __name__ == "__main__":
    print(json.dumps(shares(Path(sys.argv[1]))))
