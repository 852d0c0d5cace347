"""What is committed: a JSON file for each part, and a text file for each text of a case."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator
from pathlib import Path

from tests.golden.digests import hash_of_bytes

FOLDER = Path(__file__).parent / "expected"
LARGE_CHARACTERS = 20_000
FIRST_LINES = 40
DIFF_LINES = 24
REFUSED, FAILED = "refused", "failed"
"""The only field of a case that the package refuses, and of one that ends with another error."""
Outcome = dict[str, str]  # a hash, one line or a text for each field of a case


def shortened(outcome: Outcome) -> Outcome:
    """The outcome with the first lines and the hash of a large text in its place."""
    short = dict(outcome)
    for name, value in outcome.items():
        if len(value) > LARGE_CHARACTERS:
            lines, whole = value.splitlines(), hash_of_bytes(value.encode())
            first = "\n".join(lines[:FIRST_LINES])[:LARGE_CHARACTERS]
            short[name] = f"{first}\n... {len(lines)} lines in all, hash {whole}\n"
    return short


def text_path(part: str, case: str, field: str) -> Path:
    plain = re.sub(r"[^A-Za-z0-9_.=,-]+", "_", f"{case}.{field}")
    name = plain if len(plain) < 120 else f"{plain[:100]}-{hash_of_bytes(plain.encode())}"
    return FOLDER / part / f"{name}.txt"


def read(part: str) -> dict[str, Outcome]:
    """What is expected of a part by case; nothing where it was never written."""
    path = FOLDER / f"{part}.json"
    if not path.exists():
        return {}
    cases: dict[str, Outcome] = json.loads(path.read_text())
    for case, outcome in cases.items():
        for field, value in outcome.items():
            if value == "text":
                outcome[field] = text_path(part, case, field).read_text()
    return cases


def write(part: str, cases: dict[str, Outcome]) -> None:
    """Write what is expected of a part; texts of cases that are gone are removed."""
    kept = set()
    spelled: dict[str, Outcome] = {}
    for case in sorted(cases):
        spelled[case] = {}
        for field, value in sorted(cases[case].items()):
            spelled[case][field] = value
            if "\n" in value:
                spelled[case][field] = "text"
                path = text_path(part, case, field)
                kept.add(path)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(value)
    for path in (FOLDER / part).glob("*.txt"):
        if path not in kept:
            path.unlink()
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{part}.json").write_text(json.dumps(spelled, indent=1) + "\n")


def differences(expected: Outcome | None, found: Outcome) -> Iterator[str]:
    """A line for each field that differs, with the lines of a text that do."""
    if expected is None:
        yield "is not among the expected results (--update adds it)"
        return
    for outcome in (REFUSED, FAILED):
        if outcome in found and outcome not in expected:
            yield f"{outcome}: {found[outcome]}"
            return
    for field in sorted(expected | found):
        before, after = expected.get(field), found.get(field)
        if before == after:
            continue
        if before is None or after is None:
            yield f"{field}: {'is new' if before is None else 'is gone'}"
        elif "\n" in before + after:
            yield f"{field} differs"
            lines = difflib.unified_diff(
                before.splitlines(), after.splitlines(), "expected", "found", lineterm="", n=1
            )
            yield from (f"    {line}" for line, _ in zip(lines, range(DIFF_LINES), strict=False))
        else:
            yield f"{field} differs: {before} expected, {after} found"
