"""Figures that authors posted with their patches, as shipped in data/posted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pagealloc_model.base.errors import UsageError
from pagealloc_model.recording.recording import shipped_recordings_directory

if TYPE_CHECKING:
    import pandas as pd


def posted_figures(study: str) -> pd.DataFrame:
    """The posted values of one study, with where and when they were posted.

    Columns: subject, address (list or message id), date, machine, variant ("unpatched",
    "patched"), quantity, value (as posted), low and high (its range as numbers), unit.

    Args:
        study: name of a file in data/posted without ".csv", such as "highatomic".

    Raises:
        UsageError: there is no such study.
    """
    import pandas as pd

    data = shipped_recordings_directory()
    path = data / "posted" / f"{study}.csv" if data else None
    if path is None or not path.is_file():
        known = sorted(each.stem for each in (data / "posted").glob("*.csv")) if data else []
        raise UsageError(f"no posted figures for {study!r}; there are {', '.join(known) or 'none'}")
    return pd.read_csv(path, dtype={"value": str})
