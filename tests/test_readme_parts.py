"""Every table that `make readme` writes has its place in README, docs/ or data/tables, once."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest


def declared(checkout: Path) -> dict[str, Any]:
    """The tables that `make readme` writes, as benchmarks/readme.toml declares them."""
    return tomllib.loads((checkout / "benchmarks" / "readme.toml").read_text())


def parts_made(checkout: Path) -> list[str]:
    """Names of the parts that benchmarks/readme.py has lines for."""
    tree = ast.parse((checkout / "benchmarks" / "readme.py").read_text())
    return [
        ast.literal_eval(key)
        for node in tree.body
        if isinstance(node, ast.AnnAssign)
        and ast.unparse(node.target) in ("PARTS", "FULL_PARTS", "EXCERPTS")
        for key in node.value.keys  # type: ignore[union-attr]
        if key is not None
    ]


@pytest.fixture(scope="module")
def written(checkout: Path) -> dict[str, str]:
    files = [checkout / "README.md", *(checkout / "docs").glob("*.md")]
    return {str(file.relative_to(checkout)): file.read_text() for file in files}


def test_every_part_has_a_place(checkout: Path) -> None:
    tables = declared(checkout)
    written = [*parts_made(checkout), *tables["excerpts"]]
    assert sorted([*tables["places"], *tables["files"]]) == sorted(written)


def test_markers_are_where_their_part_is_written_once(
    checkout: Path, written: dict[str, str]
) -> None:
    for edge in ("begin", "end"):
        found = sorted(
            (name, file)
            for file, text in written.items()
            for name in re.findall(rf"<!-- ([\w-]+):{edge} -->", text)
        )
        assert found == sorted(declared(checkout)["places"].items())


def shown(checkout: Path, name: str) -> list[str]:
    """The lines of a part on its page."""
    text = (checkout / declared(checkout)["places"][name]).read_text()
    _, _, rest = text.partition(f"<!-- {name}:begin -->\n")
    return rest.partition(f"<!-- {name}:end -->")[0].splitlines()


@pytest.fixture
def readme(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """benchmarks/readme.py, which is no part of the package."""
    monkeypatch.syspath_prepend(str(checkout / "benchmarks"))
    return importlib.import_module("readme")


def test_excerpts_are_rows_of_their_tables(checkout: Path, readme: ModuleType) -> None:
    """A number that was changed on a page, or a table that was made anew, is told here."""
    assert len(readme.EXCERPTS) > 20
    for name, lines in readme.EXCERPTS.items():
        assert shown(checkout, name) == list(lines()), name


QUICK = (
    *("errors-short", "experiments-sentence", "experiments-short", "errors-guests-short"),
    *("proposals-index", "locks-fastpath", "defrag-storms"),
)
"""Parts on pages that take less than a minute and are the same on every machine."""


@pytest.mark.parametrize("name", QUICK)
def test_tables_of_pages_are_what_their_code_makes(
    name: str, checkout: Path, readme: ModuleType
) -> None:
    make = readme.PARTS.get(name) or partial(readme.FULL_PARTS[name], checkout)
    assert shown(checkout, name) == list(make())


def test_the_sentence_on_intervals_has_the_figures_of_its_table(checkout: Path) -> None:
    table = pd.read_csv(checkout / "data/tables/intervals_by_quantity.csv").set_index("quantities")
    whole, kinds = table.loc["all"], table.drop("all")["held"].str.rstrip("%").astype(int)
    words = " ".join((checkout / "docs/posts.md").read_text().split())
    held = whole["held"].replace("%", " %")
    assert f"in {held} of {whole['rows']} rows ({kinds.min()} to {kinds.max()} % by kind" in words
    counts = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
    told, right = counts[whole["told"]], counts[whole["sign right"]]
    assert f"Of {told} changes called better, worse or changed {right} went that way" in words
