"""A kernel source tree: a checkout, or a distribution's source package or its tarball, unpacked."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from pagealloc_model.allocator.from_source.patch import Patch, read_patch
from pagealloc_model.base.errors import UsageError

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
    tree = _unpatched(Path(path).expanduser())
    if patch is None:
        return tree
    patched = replace(tree, patch=read_patch(patch, (*SOURCES, *PRESSURE_SOURCES)))
    for each in (*SOURCES, *PRESSURE_SOURCES):
        patched.read(each)
    return patched


def _unpatched(path: Path) -> SourceTree:
    if (path / "mm" / "page_alloc.c").is_file():
        return SourceTree(path=path, root=path)
    tarballs = _tarballs(path)
    if len(tarballs) > 1:
        raise UsageError(f"{path}: name one of {', '.join(each.name for each in tarballs)} in it")
    if not tarballs:
        raise UsageError(
            f"{path}: has no mm/page_alloc.c; name a kernel checkout, or the tarball that a "
            "distribution's linux-source package puts into /usr/src"
        )
    return SourceTree(path=path, root=_unpacked(tarballs[0]))


def _tarballs(path: Path) -> list[Path]:
    """The tarballs a path may mean: itself, or those in a directory or its usr/src."""
    if path.is_file():
        return [path]
    directories = (path, path / "usr" / "src")
    found = (sorted(each.glob("linux-source-*.tar.*")) for each in directories)
    return next((tarballs for tarballs in found if tarballs), [])


def _unpacked(tarball: Path) -> Path:
    """The directory of a tarball's needed files, unpacked if they are not yet."""
    about = tarball.stat()
    key = f"{tarball.resolve()} {about.st_size} {about.st_mtime_ns}"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pagealloc_model"
    place = cache / f"source-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
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
