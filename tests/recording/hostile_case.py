"""What a hostile input is, and the commands that most are given to."""

from __future__ import annotations

from dataclasses import dataclass

from tests.recording.hostile_damage import Damage

INFO, REPLAY, VALIDATE = ("info", "{}"), ("replay", "{}"), ("validate", "{}")
USELESS = "no snapshot with a usable zoneinfo"
"""What is said where no snapshot can start a replay."""


@dataclass(frozen=True, kw_only=True)
class Hostile:
    """One input.

    Attributes:
        name: of the case.
        damage: what is done to the recording's directory.
        command: words for `pagealloc`; {} is the recording, {tmp} a directory to write to.
        says: a pattern that the one line of an error has, or what is printed if it is used.
        refused: whether the command must end with code 2 and one line; None: it may, or use it.
    """

    name: str
    damage: Damage
    command: tuple[str, ...]
    says: str
    refused: bool | None = True


def case(
    name: str, damage: Damage, command: tuple[str, ...], says: str, *, refused: bool | None = True
) -> Hostile:
    """Return an input from its parts in their usual order."""
    return Hostile(name=name, damage=damage, command=command, says=says, refused=refused)
