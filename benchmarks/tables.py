"""Full tables as CSV in data/tables, and the rows of them that a page shows."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "data" / "tables"
NUMBER = re.compile(r"[-+]?\d{1,3}(,\d{3})*(\.\d+)?|[-+]?\d+(\.\d+)?")


def tables_in(lines: Iterable[str]) -> list[list[list[str]]]:
    """The markdown tables among some lines: rows of cells, headings first."""
    found: list[list[list[str]]] = []
    ended = True
    for line in lines:
        if not line.startswith("|"):
            ended = True
        elif not re.fullmatch(r"[-:|]+", line):
            if ended:
                found.append([])
            found[-1].append([cell.strip() for cell in line.strip()[1:-1].split("|")])
            ended = False
    return found


def write_tables(names: Sequence[str], lines: Iterable[str]) -> None:
    """Write each markdown table among some lines to the CSV file of that name; others go on."""
    FOLDER.mkdir(exist_ok=True)
    for name, table in zip(names, tables_in(lines), strict=True):
        rows = [[_plain(cell) for cell in row] for row in table]
        with (FOLDER / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)


def read_table(name: str) -> list[dict[str, str]]:
    """The rows of a CSV file, by heading."""
    with (FOLDER / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@dataclass(frozen=True)
class Excerpt:
    """A part of a full table, as a page shows it.

    Attributes:
        table: name of its CSV file.
        columns: headings, in order, "of the table = on the page" where they differ; none: all.
        rows: by heading of the table, the values of which a shown row has one.
    """

    table: str
    columns: Sequence[str] = ()
    rows: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __call__(self) -> Iterator[str]:
        """The excerpt as markdown."""
        kept = [
            row
            for row in read_table(self.table)
            if all(row[name] in values for name, values in self.rows.items())
        ]
        columns = {}
        for heading in self.columns or kept[0]:
            name, _, shown = heading.partition(" = ")
            columns[name] = shown or name
        numeric = [all(_is_number(row[name]) for row in kept) for name in columns]
        yield f"| {' | '.join(columns.values())} |"
        yield f"|{'|'.join('--:' if each else '---' for each in numeric)}|"
        for row in kept:
            yield f"| {' | '.join(_grouped(row[name]) for name in columns)} |"


def _plain(cell: str) -> str:
    """A number without commas; other cells as they are."""
    return cell.replace(",", "") if NUMBER.fullmatch(cell) else cell


def _is_number(cell: str) -> bool:
    return cell == "NA" or NUMBER.fullmatch(cell.rstrip("%")) is not None


def _grouped(cell: str) -> str:
    """A whole number with commas."""
    return f"{int(cell):,}" if re.fullmatch(r"-?\d{4,}", cell) else cell
