"""All speeds of design: reading, replaying, starting, memory, sweeps on two threads.

Usage: python benchmarks/bench.py [RECORDING] [--json] [--only PART ...]     (pagealloc bench)
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

import pandas as pd
import policies
import start_up
import sweep
from reading import reading

import pagealloc_model as pm
from pagealloc_model.cli.output import json_text, rows_of


def _reading(path: str) -> pd.DataFrame:
    rows = reading(pm.open(path).event_file)
    return pd.DataFrame(rows).rename(columns={"value": "events/s", "peer": "beside"})


def _sweep(path: str) -> pd.DataFrame:
    return pd.DataFrame(sweep.threads(path), columns=["what", "value", "unit"])


PARTS: dict[str, Callable[[str], pd.DataFrame]] = {
    "reading": _reading,
    "replay": policies.measured,
    "start": start_up.measured,
    "sweep": _sweep,
}


def main() -> None:
    """Measure the parts asked for and print them."""
    parser = argparse.ArgumentParser(description="speeds of pagealloc_model on this machine")
    parser.add_argument("recording", nargs="?", default="kbuild")
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    tables = {name: PARTS[name](options.recording) for name in options.only}
    if options.json:
        parts = {name: rows_of(table) for name, table in tables.items()}
        print(json_text({"recording": options.recording, "load_before": load, "parts": parts}))
        return
    print(f"{options.recording}; load before: {load:.1f}")
    for name, table in tables.items():
        text = table.to_string(index=False, float_format="{:,.2f}".format, na_rep="")
        print(f"\n{name}\n{text}")


if __name__ == "__main__":
    main()
