"""No text of a stranger makes a pattern of the package take more steps than the text is long."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import pagealloc_model
from pagealloc_model.recording.anonymise import _THP_VALUES
from tests.linear_patterns import ambiguity

PACKAGE = Path(pagealloc_model.__file__).parent
MADE = {"compile", "match", "fullmatch", "search", "findall", "finditer", "split", "sub"}
ANYWHERE = {"search", "findall", "finditer", "split", "sub", "contains", "extract"}


def module_of(file: Path) -> str:
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def patterns_of(file: Path) -> Iterator[tuple[str, str | re.Pattern[str], bool, bool]]:
    """Place, pattern, and whether it is searched for, or must match all, of each in a file."""
    source = file.read_text(encoding="utf-8")
    if "import re\n" not in source and ".str." not in source:
        return
    tree = ast.parse(source)
    names = vars(importlib.import_module(module_of(file)))
    named = {
        (call.func.value.id, call.func.attr)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
    }
    for name, value in names.items():
        if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
            used = {method for of, method in named if of == name}
            yield f"{module_of(file)}.{name}", value, bool(used & ANYWHERE), "fullmatch" in used
    for call in ast.walk(tree):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args):
            continue
        owner, of_texts = call.func.value, isinstance(call.func.value, ast.Attribute)
        is_re = isinstance(owner, ast.Name) and owner.id == "re" and call.func.attr in MADE
        is_str = of_texts and owner.attr == "str" and call.func.attr in ("match", *ANYWHERE)
        if is_re or is_str:
            place = f"{module_of(file)}:{call.lineno}"
            try:
                text = eval(compile(ast.Expression(call.args[0]), str(file), "eval"), dict(names))
            except NameError:
                text = f"{ast.unparse(call.args[0])}"
                place = f"?{place}"
            text = text.pattern if isinstance(text, re.Pattern) else text
            if isinstance(text, str) and call.func.attr != "compile":
                yield place, text, call.func.attr in ANYWHERE, call.func.attr == "fullmatch"


EXEMPT = {
    "pagealloc_model.kernel_source.": "reads kernel trees, which are programs",
    "pagealloc_model.guests.": "reads what the user's own guests and programs print",
    "pagealloc_model.recording.record.probes": "reads a table of the package",
}
MADE_OF_PARTS = {
    ("pagealloc_model.base.text", "f'\\\\\\\\(?=x)|{unsafe}'"),
    ("pagealloc_model.recording.anonymise", "pattern"),
    ("pagealloc_model.recording.anonymise", "keys"),
    ("pagealloc_model.recording.record.perf", "f'^\\\\s*{library}: \\\\[ on'"),
    ("pagealloc_model.recording.record.perf", "pattern"),
}
"""Patterns that are known only where they are used; their parts are in the texts below."""
PARTS = (
    *(r"\\(?=x)|^\s+|\s+$|^:", r"\\(?=x)|\s", r"\\(?=x)|[\s,()]|^[\d-]"),
    *(r"^\s*libtraceevent: \[ on", _THP_VALUES, r"\d+\.\d+(\.\d+)?(-rc\d+)?"),
    *(r"(\s*\[?(none|integrity|confidentiality)\]?(?!\w))+", r"[0-9a-f]{64}$"),
)


@pytest.mark.parametrize("file", sorted(PACKAGE.rglob("*.py")), ids=module_of)
def test_patterns_take_no_more_steps_than_a_text_is_long(file: Path) -> None:
    if module_of(file).startswith(tuple(EXEMPT)):
        return
    for place, pattern, anywhere, whole in patterns_of(file):
        if place.startswith("?"):
            assert (module_of(file), pattern) in MADE_OF_PARTS, place
        else:
            assert ambiguity(pattern, anywhere=anywhere, whole=whole) == "", (place, pattern)


@pytest.mark.parametrize("pattern", PARTS)
def test_parts_of_patterns_do_not_either(pattern: str) -> None:
    assert ambiguity(pattern, whole=True) == ""


@pytest.mark.parametrize(
    ("pattern", "anywhere", "growth"),
    [
        (r"(a|a)*b", False, "exponential"),
        (r"(a*)*b", False, "exponential"),
        (r"(\w+\s?)*!", False, "exponential"),
        (r"(?:[\s\d]|\b(?:zone(?:_[a-z]{1,40})?|zone|thp)\b)*!", False, "exponential"),
        (r"a*a*b", False, "polynomial"),
        (r"\s+$", True, "polynomial"),
        (r"(\w+)=", True, "polynomial"),
        (r"\b(\w+)=", True, ""),
        (r"(?:[\s\d]|\b(?:zone|thp)\b)*!", False, ""),
        (r"\s*+(\[[^][]*\]\s*+)?$", False, ""),
        (r"(ab|cd)*x", False, ""),
    ],
)
def test_the_check_sees_what_is_known(pattern: str, anywhere: bool, growth: str) -> None:
    assert ambiguity(pattern, anywhere=anywhere, whole=True) == growth
