"""The table of tracepoints: each name once, and as kernels spell it."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

from pagealloc_model.recording.trace import tracepoints as tp

TABLE = Path(tp.__file__)
NAMES = {*re.findall(r'"([a-z_]+:[a-z_]+)"', TABLE.read_text(encoding="utf-8"))}


def test_a_name_is_written_once() -> None:
    texts = (module.read_text(encoding="utf-8") for module in TABLE.parents[2].rglob("*.py"))
    found = Counter(name for text in texts for name in re.findall(r'"([a-z_]+:[a-z_]+)"', text))
    assert {name: found[name] for name in NAMES if found[name] != 1} == {}


def test_kernels_have_the_usual_set_but_for_recent_names(checkout: Path) -> None:
    """Recordings tell which events perf was asked for; it refuses those that a kernel lacks."""
    recorded: set[str] = set()
    for file in (checkout / "data").glob("*/meta.json"):
        recorded.update(json.loads(file.read_text(encoding="utf-8")).get("perf", ()))
    recorded = {word.split("/")[0] for word in recorded}
    assert {*tp.USUAL} - recorded == {*tp.RECENT}


def test_sets_name_an_event_once_and_hold_the_smaller_ones() -> None:
    assert len(tp.USUAL) == len({*tp.USUAL})
    assert tp.USUAL[:2] == tp.ESSENTIAL
    assert {*tp.LOCKS, *tp.RECENT} < {*tp.USUAL} < NAMES
