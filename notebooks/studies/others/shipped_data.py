"""Where tables that come with the project lie."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

import pagealloc_model as pm
from pagealloc_model.numbers.statistics import mean_interval
from pagealloc_model.recording.recording import shipped_recordings_directory


def shipped_data(holds: str) -> Path:
    """The folder data/, which would hold something; a UsageError where it was left out."""
    data = shipped_recordings_directory()
    if data is None:
        raise pm.UsageError(f"data/ was left out of this copy; it would hold {holds}")
    return data


def success(shares: pd.Series) -> dict[str, float]:
    """The mean of shares of faults that got a huge page, and its interval within 0 and 1."""
    mean, low, high = mean_interval(shares.to_list())
    return {"thp_success": mean, "low": max(low, 0.0), "high": min(high, 1.0)}
