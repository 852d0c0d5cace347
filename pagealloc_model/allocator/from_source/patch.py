"""Patches in unified format, applied to texts of a source tree as it is read."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from pagealloc_model.base.errors import UsageError

_FILE = re.compile(r"\+\+\+ (\S+)")
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")


@dataclass(frozen=True, kw_only=True)
class Hunk:
    """Lines that take the place of others.

    Attributes:
        path: file, without the directory that patches put before it.
        line: where the old lines begin, or the line behind which to insert if there are none.
        old: lines as they are, with those around them.
        new: lines as they shall be.
    """

    path: str
    line: int
    old: tuple[str, ...]
    new: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Patch:
    """A patch.

    Attributes:
        name: file, or what to call it in messages.
        hunks: in its order.
    """

    name: str
    hunks: tuple[Hunk, ...]

    def applied(self, path: str, text: str) -> str:
        """A file's text with the patch's changes to it.

        Lines are looked for wherever they stand, those nearest to the place the patch names first;
        they must be the same.

        Raises:
            UsageError: lines that are to be changed are not there.
        """
        lines = text.split("\n")
        moved = 0
        for hunk in self.hunks:
            if hunk.path != path:
                continue
            expected = hunk.line - bool(hunk.old) + moved
            place = _place(lines, hunk.old, expected)
            if place is None:
                raise UsageError(
                    f"{self.name}: what it changes at line {hunk.line} of {path} is not in the "
                    "tree; rebase it"
                )
            lines[place : place + len(hunk.old)] = hunk.new
            moved += place - expected + len(hunk.new) - len(hunk.old)
        return "\n".join(lines)


def read_patch(patch: Path | str, files: Collection[str]) -> Patch:
    """A patch to a tree's files, as `git diff` or a mailing list has it.

    Args:
        patch: the patch's text, or the file that holds it.
        files: files that are read; changes to others are left out.

    Raises:
        UsageError: no such file, no patch, or a patch to none of these files.
    """
    name, text = _named(patch)
    hunks = tuple(_hunks(text.split("\n"), name, files))
    if not hunks:
        raise UsageError(f"{name}: not a patch in unified format")
    wanted = tuple(each for each in hunks if each.path in files)
    if not wanted:
        changed = ", ".join(dict.fromkeys(each.path for each in hunks))
        raise UsageError(f"{name}: changes none of the files that are compiled here, but {changed}")
    return Patch(name=name, hunks=wanted)


def _named(patch: Path | str) -> tuple[str, str]:
    if isinstance(patch, str) and "\n" in patch:
        return "patch", patch
    path = Path(patch).expanduser()
    try:
        return str(path), path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None


def _hunks(lines: list[str], name: str, files: Collection[str]) -> Iterator[Hunk]:
    path = ""
    position = 0
    while position < len(lines):
        file, hunk = _FILE.match(lines[position]), _HUNK.match(lines[position])
        position += 1
        if file:
            path = file[1] if file[1] in files else file[1].partition("/")[2]
        elif hunk and path:
            old, new = int(hunk[2] or 1), int(hunk[3] or 1)
            before, after, behind = _sides(lines, position, old, new)
            if (len(before), len(after)) != (old, new):
                raise UsageError(f"{name}: line {position}: the hunk has other lines than it says")
            position = behind
            yield Hunk(path=path, line=int(hunk[1]), old=tuple(before), new=tuple(after))


def _sides(lines: list[str], position: int, old: int, new: int) -> tuple[list[str], list[str], int]:
    """A hunk's lines before and after, and the position behind it."""
    before: list[str] = []
    after: list[str] = []
    while position < len(lines) and (len(before) < old or len(after) < new):
        line = lines[position]
        sign, rest = line[:1], line[1:]
        if sign in ("", " ", "-"):
            before.append(rest)
        if sign in ("", " ", "+"):
            after.append(rest)
        if sign not in ("", " ", "-", "+", "\\"):
            break
        position += 1
    return before, after, position


def _place(lines: list[str], old: tuple[str, ...], expected: int) -> int | None:
    """Where lines are, nearest to where they are expected; None if nowhere."""
    if not old:
        return expected if expected <= len(lines) else None
    found = [
        start
        for start, line in enumerate(lines)
        if line == old[0] and tuple(lines[start : start + len(old)]) == old
    ]
    return min(found, key=lambda start: abs(start - expected), default=None)
