"""Call stacks as files that flame graph viewers open: folded lines, or speedscope's JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pandas as pd

from pagealloc_model.base.version import __version__

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def folded(table: pd.DataFrame, weight: str = "pages") -> str:
    """One line a stack: functions from the outermost on, and a number.

    Args:
        table: columns stack (";" between functions) and the weight.
        weight: "pages" or "events".
    """
    stacks = zip(table["stack"], table[weight], strict=True)
    return "".join(f"{stack} {int(value)}\n" for stack, value in stacks)


def speedscope(sides: Mapping[str, pd.DataFrame], weight: str = "pages") -> str:
    """JSON for speedscope.app with one profile a side.

    Args:
        sides: by name, such as "as recorded": columns stack and the weight.
        weight: "pages" or "events".
    """
    frames: dict[str, int] = {}
    profiles = []
    for name, table in sides.items():
        stacks = (stack.split(";") for stack in table["stack"])
        samples = [[frames.setdefault(frame, len(frames)) for frame in stack] for stack in stacks]
        weights = [int(value) for value in table[weight]]
        about = {"type": "sampled", "name": f"{name}, {weight}", "unit": "none"}
        span = {"startValue": 0, "endValue": sum(weights)}
        profiles.append(about | span | {"samples": samples, "weights": weights})
    shared = {"frames": [{"name": name} for name in frames]}
    content = {"$schema": SCHEMA, "shared": shared, "profiles": profiles}
    return json.dumps(content | {"exporter": f"pagealloc_model {__version__}"})
