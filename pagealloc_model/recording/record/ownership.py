"""Where root may write what it records, and whose it is afterwards."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from pagealloc_model.base.errors import UsageError


def calling_user(environment: Mapping[str, str], user: int) -> tuple[int, int] | None:
    """User and group that called sudo, None if it was not used to become root."""
    words = environment.get("SUDO_UID", ""), environment.get("SUDO_GID", "")
    if user != 0 or not all(word.isdecimal() for word in words):
        return None
    return int(words[0]), int(words[1])


def give_to(directory: Path, owner: tuple[int, int]) -> None:
    """Make a directory and all in it a user's and a group's; links themselves, not what they name.

    Raises:
        OSError: they cannot be given away.
    """
    for top, _, files in os.walk(directory):
        os.chown(top, *owner, follow_symlinks=False)
        for name in files:
            os.chown(Path(top) / name, *owner, follow_symlinks=False)


def make_where_none_may_exchange(directory: Path, mode: int = 0o777) -> None:
    """Make a directory and those above it, if they are not there; see what follows for root.

    Args:
        directory: to write below.
        mode: of the directory, before the umask.

    Raises:
        UsageError: this is root, and others may exchange what it writes there.
        OSError: it cannot be made.
    """
    if os.geteuid() == 0:
        refuse_what_others_may_exchange(directory, calling_user(os.environ, 0))
    directory.mkdir(mode=mode, parents=True, exist_ok=True)
    if os.geteuid() == 0:  # in /tmp others may have made it meanwhile
        refuse_what_others_may_exchange(directory, calling_user(os.environ, 0))


def refuse_what_others_may_exchange(directory: Path, owner: tuple[int, int] | None) -> None:
    """A UsageError where somebody but root, or the user who called sudo, could put a link.

    What root writes below such a directory would go where the link leads. In a directory with the
    sticky bit, such as /tmp, others cannot exchange what is root's.
    """
    user, group = owner or (0, 0)
    for place in _on_the_way(directory.absolute(), set()):
        try:
            found = os.lstat(place)
        except OSError:
            continue  # it is made, as root
        is_link, is_sticky = stat.S_ISLNK(found.st_mode), found.st_mode & stat.S_ISVTX
        by_group = found.st_mode & stat.S_IWGRP and found.st_gid not in (0, group)
        by_others = found.st_mode & stat.S_IWOTH
        by_mode = (by_group or by_others) and not (is_link or is_sticky)
        if found.st_uid not in (0, user) or by_mode:
            raise UsageError(
                f"{place} can be written by others than root: they could exchange what root writes "
                "below it; name another place"
            )


def _on_the_way(path: Path, seen: set[Path]) -> Iterator[Path]:
    """All directories and links that lead to a path, those that links lead through as well."""
    for place in (*reversed(path.parents), path):
        if place not in seen:
            seen.add(place)
            yield place
            if place.is_symlink():
                yield from _on_the_way(place.parent / os.readlink(place), seen)
