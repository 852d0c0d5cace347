"""What `info`, `validate` and `compare` print of our own words is in docs/glossary.md."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path

import pytest

from pagealloc_model.allocator.pressure_layout import DIVERGENCE_NAMES
from pagealloc_model.cli import main

GLOSSARY = Path(__file__).parent.parent.parent / "docs" / "glossary.md"
PLAIN = {
    *("path", "sha256", "kernel", "cpus", "seconds", "events", "other_events", "notes", "missing"),
    *("zone_sizes", "lock_waits", "not_modelled", "metrics", "time_s", "recordings", "version"),
    *("model", "kind", "rule", "value", "standing", "line", "check", "rules_origin", "changed"),
    *("cpu", "pid", "task", "order", "migratetype", "event", "row", "actual", "high", "listed"),
    *("alloc_factor", "free_count", "below_high", "reclaim_active", "what", "cause", "rows"),
    *("kernel_function", "block_share", "choices_over_time", "resync_notes", "lost_events"),
}
"""Keys of the JSON that are the kernel's words, or plain English."""


@cache
def explained() -> set[str]:
    """Entries, and what an entry names in backticks."""
    text = GLOSSARY.read_text()
    return {*re.findall(r"\*\*(.+?)\*\*", text), *re.findall(r"`([\w.]+)`", text)}


def keys(value: object) -> Iterator[str]:
    """Keys at every depth, but for what is below a policy, assumptions, or another open mapping."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            if name not in {"policy", "changed", "assumptions", "events", "other_events"} | {
                *("lost_by_cpu", "lock_waits", "resync_repairs"),
                *("not_in_this_recording", "record_next_time"),
            }:
                yield from keys(inner)
    elif isinstance(value, list):
        for each in value:
            yield from keys(each)


COMMANDS = {
    "info": ["info", "xfree", "--json"],
    "validate": ["validate", "xfree", "--resync", "--json"],
    "budget": ["validate", "highatomic_gate3", "--budget", "--json"],
    "compare": ["compare", "xfree", "--patch", "pcp_batch=63", "--format", "json"],
}


@pytest.fixture(scope="module", params=COMMANDS)
def printed(request: pytest.FixtureRequest) -> dict[str, object]:
    out = io.StringIO()
    with redirect_stdout(out):
        assert main(COMMANDS[request.param]) == 0
    return json.loads(out.getvalue())


def test_keys_that_commands_print_are_explained(printed: dict[str, object]) -> None:
    assert sorted(set(keys(printed)) - explained() - PLAIN) == []


def test_metrics_and_choices_are_explained(printed: dict[str, object]) -> None:
    rows = [row for table in printed.values() if isinstance(table, list) for row in table]
    named = {
        row[key]
        for row in rows
        if isinstance(row, dict)
        for key in ("metric", "choice")
        if key in row
    }
    assert sorted(named - explained()) == []


def test_divergences_of_elastic_replays_are_explained() -> None:
    assert set(DIVERGENCE_NAMES) <= explained()
