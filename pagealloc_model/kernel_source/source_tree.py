"""A kernel source tree: a checkout, or a distribution's source package or its tarball, unpacked."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.jit import sources_directory

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
            places = [
                start
                for start in range(len(lines) + 1 if hunk.old else 0)
                if tuple(lines[start : start + len(hunk.old)]) == hunk.old
            ]
            if not hunk.old and expected <= len(lines):
                places = [expected]
            place = min(places, key=lambda start: abs(start - expected), default=None)
            if place is None:
                raise UsageError(
                    f"{self.name}: what it changes at line {hunk.line} of {path} is not in the "
                    "tree; rebase it"
                )
            lines[place : place + len(hunk.old)] = hunk.new
            moved += place - expected + len(hunk.new) - len(hunk.old)
        return "\n".join(lines)


def read_patch(patch: Path | str, files: Collection[str]) -> Patch:
    """A patch to a tree's files, as `git diff` or a mailing list has it."""
    name, text = "patch", str(patch)
    if isinstance(patch, Path) or "\n" not in patch:
        path = Path(patch).expanduser()
        try:
            name, text = str(path), path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    hunks = tuple(_hunks(text.split("\n"), name, files))
    if not hunks:
        raise UsageError(f"{name}: not a patch in unified format")
    wanted = tuple(each for each in hunks if each.path in files)
    if not wanted:
        changed = ", ".join(dict.fromkeys(each.path for each in hunks))
        raise UsageError(f"{name}: changes none of the files that are compiled here, but {changed}")
    return Patch(name=name, hunks=wanted)


def _hunks(lines: list[str], name: str, files: Collection[str]) -> Iterator[Hunk]:
    path = ""
    position = 0
    while position < len(lines):
        file, hunk = _FILE.match(lines[position]), _HUNK.match(lines[position])
        position += 1
        if file:
            path = file[1] if file[1] in files else file[1].partition("/")[2]
        if not hunk or not path:
            continue
        begin = position
        before: list[str] = []
        after: list[str] = []
        old, new = int(hunk[2] or 1), int(hunk[3] or 1)
        while position < len(lines) and (len(before) < old or len(after) < new):
            sign, rest = lines[position][:1], lines[position][1:]
            if sign in ("", " ", "-"):
                before.append(rest)
            if sign in ("", " ", "+"):
                after.append(rest)
            if sign not in ("", " ", "-", "+", "\\"):
                break
            position += 1
        if (len(before), len(after)) != (old, new):
            raise UsageError(f"{name}: line {begin}: the hunk has other lines than it says")
        yield Hunk(path=path, line=int(hunk[1]), old=tuple(before), new=tuple(after))


SOURCES = (
    "include/linux/gfp_types.h",
    "include/linux/gfp.h",
    "include/linux/mmzone.h",
    "include/linux/pageblock-flags.h",
    "include/linux/page-isolation.h",
    "include/linux/vmstat.h",
    "mm/internal.h",
    "mm/page_alloc.h",
    "mm/mmzone.c",
    "mm/page_alloc.c",
    "mm/vmscan.c",
    "mm/vmstat.c",
)
"""Files of a tree that are looked into, those whose definitions others need first."""

PRESSURE_SOURCES = ("include/linux/compaction.h", "mm/compaction.c")
"""Files that only the judges of pressure look into."""

SOURCES_OF_SOME = ("mm/page_alloc.h",)
"""Files among them that came with a release (7.3); older trees have their contents elsewhere."""

NEEDED = ("mm/*.[ch]", "include/linux/*.h", "Makefile")
"""What is taken out of a tarball."""


@dataclass(frozen=True, kw_only=True)
class SourceTree:
    """A readable tree.

    Attributes:
        path: as the user named it.
        root: directory that holds mm/.
        patch: changes to its files, None if there are none.
    """

    path: Path
    root: Path
    patch: Patch | None = None

    def read(self, path: str) -> str | None:
        """A file's text, patched; None if the tree has no such file.

        Raises:
            UsageError: the patch does not apply.
        """
        try:
            text = (self.root / path).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None
        return text if self.patch is None else self.patch.applied(path, text)

    @property
    def release(self) -> str:
        """Version by its Makefile, such as "6.12.117"; "" if it does not say."""
        text = self.read("Makefile") or ""
        found = dict(re.findall(r"^(VERSION|PATCHLEVEL|SUBLEVEL)\s*=\s*(\d+)$", text, re.M))
        return ".".join(
            found[each] for each in ("VERSION", "PATCHLEVEL", "SUBLEVEL") if each in found
        )


def open_tree(path: Path | str, patch: Path | str | None = None) -> SourceTree:
    """A tree at a checkout, or in a tarball such as /usr/src/linux-source-6.12.tar.xz.

    A tarball's mm/ and headers are unpacked once, into the user's cache directory; that takes
    about half a minute.

    Args:
        path: the tree.
        patch: text or file of a patch to it; the tree on disk stays as it is.

    Raises:
        UsageError: nothing of the kind is there, or the patch does not apply.
    """
    path = Path(path).expanduser()
    root = path
    if not (path / "mm" / "page_alloc.c").is_file():
        folders = (path, path / "usr" / "src")
        in_folders = (sorted(each.glob("linux-source-*.tar.*")) for each in folders)
        tarballs = [path] if path.is_file() else next(filter(None, in_folders), [])
        if len(tarballs) > 1:
            names = ", ".join(each.name for each in tarballs)
            raise UsageError(f"{path}: name one of {names} in it")
        if not tarballs:
            raise UsageError(
                f"{path}: has no mm/page_alloc.c; name a kernel checkout, or the tarball that a "
                "distribution's linux-source package puts into /usr/src"
            )
        root = _unpacked(tarballs[0])
    tree = SourceTree(path=path, root=root)
    if patch is None:
        return tree
    patched = replace(tree, patch=read_patch(patch, (*SOURCES, *PRESSURE_SOURCES)))
    for each in (*SOURCES, *PRESSURE_SOURCES):
        patched.read(each)
    return patched


def _unpacked(tarball: Path) -> Path:
    """The directory of a tarball's needed files, unpacked if they are not yet."""
    about = tarball.stat()
    key = f"{tarball.resolve()} {about.st_size} {about.st_mtime_ns}"
    cache = sources_directory()  # nobody else writes there: what is kept in it is compiled
    place = cache / hashlib.sha256(key.encode()).hexdigest()[:16]
    if place.is_dir():
        return place
    cache.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix="source-", dir=cache))
    try:
        done = subprocess.run(
            [
                "tar",
                *(["-I", "xz -dT0"] if tarball.suffix == ".xz" else []),
                *("-xf", str(tarball), "-C", str(partial), "--strip-components=1"),
                *("--wildcards", "--no-wildcards-match-slash"),
                *(f"*/{pattern}" for pattern in NEEDED),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if not (partial / "mm" / "page_alloc.c").is_file():
            reason = (done.stderr.strip().splitlines() or ["it has no mm/page_alloc.c"])[0]
            raise UsageError(f"{tarball}: not a kernel source tarball ({reason})")
        partial.rename(place)
    except OSError as error:
        if not place.is_dir():
            raise UsageError(f"{tarball}: cannot be unpacked ({error.strerror})") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return place


def not_found(tree: SourceTree, functions: Iterable[str]) -> str:
    """Functions and files that a tree does not have where they are looked for."""
    files = [path for path in SOURCES if path not in SOURCES_OF_SOME and tree.read(path) is None]
    others = {}
    for path in sorted(tree.root.glob("mm/*.[ch]")):
        relative = path.relative_to(tree.root).as_posix()
        others[relative] = "" if relative in SOURCES else tree.read(relative) or ""
    lines = []
    for name in functions:
        definition = re.compile(rf"^\w[\w \t*]*\b{name}\([^;{{]*\)\s*\{{", re.M)
        matches = ((path, text, definition.search(text)) for path, text in others.items())
        places = (
            f" (it is at {path}:{text.count(chr(10), 0, match.start()) + 1})"
            for path, text, match in matches
            if match
        )
        lines.append(f"{name}(){next(places, '')}")
    return ", ".join([*lines, *files])
