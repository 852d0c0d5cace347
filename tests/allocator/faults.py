"""Faults to be put into the kernels one at a time, which scenarios of their kind must tell.

`faults.txt` lists them. A line `## PRESETS: KINDS` says under which rules, and in which kinds of
scenarios, those after it must be found. A fault is a line `# MODULE: what is wrong`, then the text
as it is, which is once in the file, each of its lines after a `-`, and what is put in its place,
each line after a `+`. A line `? KIND NUMBER` names a scenario that told when it was written, which
is tried first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Fault:
    """One wrong piece of a kernel: its module, texts, what must tell, and what is tried first."""

    name: str
    module: str
    right: str
    wrong: str
    presets: tuple[str, ...]
    scenarios: tuple[str, ...]
    first: str = ""


def read_faults(file: Path) -> tuple[Fault, ...]:
    return tuple(_faults(file.read_text()))


def _faults(text: str) -> Iterator[Fault]:
    for section in text.removeprefix("## ").split("\n## "):
        head, *bodies = section.split("\n# ")
        presets, scenarios = (tuple(words.split()) for words in head.split(":"))
        for body in bodies:
            module, name, *lines = body.replace(": ", "\n", 1).rstrip("\n").split("\n")
            right, wrong, first = (
                "\n".join(line[1:] for line in lines if line[0] == sign) for sign in "-+?"
            )
            yield Fault(name, module, right, wrong, presets, scenarios, first.strip())


FAULTS = read_faults(Path(__file__).with_name("faults.txt"))


def module_source(package: Path, module: str) -> Path:
    """The kernel source of a name in a copy of the package, whichever room it is in."""
    (source,) = (package / "allocator").rglob(f"{module}.py")
    return source
