"""Call stacks as files that flame graph viewers open: folded lines, or speedscope's JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pandas as pd

from pagealloc_model.base.version import __version__

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def folded(table: pd.DataFrame, weight: str = "pages") -> str:
    """Return one line a stack: functions from the outermost on, and a number.

    Args:
        table: columns stack (";" between functions) and the weight.
        weight: "pages" or "events".
    """
    return "".join(
        f"{stack} {int(value)}\n"
        for stack, value in zip(table["stack"], table[weight], strict=True)
    )


def speedscope(sides: Mapping[str, pd.DataFrame], weight: str = "pages") -> str:
    """Return JSON for speedscope.app with one profile a side.

    Args:
        sides: by name, such as "as recorded": columns stack and the weight.
        weight: "pages" or "events".
    """
    frames: dict[str, int] = {}
    profiles = []
    for name, table in sides.items():
        samples = [
            [frames.setdefault(each, len(frames)) for each in stack.split(";")]
            for stack in table["stack"]
        ]
        weights = [int(value) for value in table[weight]]
        profiles.append(
            {
                "type": "sampled",
                "name": f"{name}, {weight}",
                "unit": "none",
                "startValue": 0,
                "endValue": sum(weights),
                "samples": samples,
                "weights": weights,
            }
        )
    shared = {"frames": [{"name": name} for name in frames]}
    exporter = f"pagealloc_model {__version__}"
    return json.dumps(
        {"$schema": SCHEMA, "shared": shared, "profiles": profiles, "exporter": exporter}
    )
