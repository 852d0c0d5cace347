"""Hostile input: one line or a named doubt; no traceback, no hang, no more than 2 GiB."""

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.recording.hostile_inputs import HOSTILE_INPUTS, Hostile

LONGEST_S = 10
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")
CHECKOUT = Path(__file__).parent.parent.parent


@cache
def came_of() -> dict[str, dict[str, Any]]:
    """What came of each input, by its name; all ran in one process of at most 2 GiB."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.recording.hostile_worker"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in ended.stdout.splitlines() if line.startswith('{"name"')]
    assert ended.returncode == 0, ended.stderr[-2000:]
    found = [json.loads(line) for line in lines]
    return {each["name"]: each for each in found}


def test_there_are_many_of_different_names() -> None:
    assert len({each.name for each in HOSTILE_INPUTS}) == len(HOSTILE_INPUTS) >= 250


@pytest.mark.parametrize("hostile", HOSTILE_INPUTS, ids=lambda each: each.name)
def test_it_is_refused_in_one_line_or_named(hostile: Hostile) -> None:
    ended = came_of()[hostile.name]
    assert "Traceback" not in ended["err"]
    assert ended["seconds"] < LONGEST_S
    assert CONTROL.search(ended["out"] + ended["err"]) is None
    refused = ended["code"] == 2 if hostile.refused is None else hostile.refused
    assert ended["code"] == (2 if refused else 0), ended["err"]
    if refused:
        assert ended["out"] == ""
        assert re.fullmatch(r"pagealloc: [^\n]+\n", ended["err"])
    said = " ".join(ended["err" if refused else "out"].split())
    assert re.search(hostile.says, said), said
