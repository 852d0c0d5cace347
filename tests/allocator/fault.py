"""A fault to be put into a kernel."""

from __future__ import annotations

from dataclasses import dataclass


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
