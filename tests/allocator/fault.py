"""A fault to be put into a kernel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Fault:
    """One wrong line.

    Attributes:
        name: what is wrong.
        module: kernel source.
        right: text as it is, once in the file.
        wrong: text put in its place.
        presets: rules of the scenarios that must tell.
        scenarios: kinds of scenarios that must tell.
    """

    name: str
    module: str
    right: str
    wrong: str
    presets: tuple[str, ...] = ("6.12", "6.18", "7.2")
    scenarios: tuple[str, ...] = ("small", "nodes")


def module_source(package: Path, module: str) -> Path:
    """The kernel source of a name in a copy of the package, whichever room it is in."""
    (source,) = (package / "allocator").rglob(f"{module}.py")
    return source
