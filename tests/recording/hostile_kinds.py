"""Every file of a recording as something else, and every value of meta.json of another kind."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

from tests.recording.hostile_case import INFO, REPLAY, Hostile, case
from tests.recording.hostile_damage import (
    Damage,
    each_snapshot,
    fifo,
    file_is,
    folder,
    holds,
    loop,
    meta,
    nothing,
    replaced,
    sparse,
    zeros,
)

_ANY = "."
_ESCAPE = "\x1b]0;owned\x07\x1b[31m\u202eevil"
_SECRET = "/etc/hostname"

SHAPES: dict[str, Callable[[Path], object]] = {
    "a FIFO": fifo,
    "a link to zeros": zeros,
    "a link to the kernel's messages": replaced(lambda file: file.symlink_to("/proc/kmsg")),
    "a link to a file": replaced(lambda file: file.symlink_to(_SECRET)),
    "a link to a directory": replaced(lambda file: file.symlink_to("/proc/self/fd")),
    "a link to itself": loop,
    "a directory": folder,
    "of 10 GiB": replaced(sparse),
    "empty": replaced(holds(b"")),
    "of noise": replaced(holds(os.urandom(4096))),
    "of escapes": replaced(holds(_ESCAPE * 10)),
}

_IN_SNAPSHOTS = ("zoneinfo", "vmstat", "buddyinfo", "pagetypeinfo", "read_ns.json")
_AT_TOP = ("meta.json", "perf.data", "kpageflags.u64.gz", "page_owner.txt", "profile.folded")

_SHAPED = tuple(
    case(f"{name}: {shape}", damage(name, change), command, _ANY, refused=None)
    for names, damage, command in (
        (_IN_SNAPSHOTS, each_snapshot, INFO),
        (_AT_TOP, file_is, INFO),
        (("page_owner.txt.gz",), file_is, REPLAY),
    )
    for name in names
    for shape, change in SHAPES.items()
)

_VALUES: dict[str, object] = {
    "true": True,
    "nothing": None,
    "a number": 3,
    "a negative number": -1,
    "a number beyond all": float("inf"),
    "a text": "x",
    "half a letter": "\ud800",
    "escapes": _ESCAPE,
    "a list of lists": [[[]], [None]],
    "an object": {"a": {"b": []}},
}
_KEYS = (
    *("uname", "nr_cpus", "sysctl", "thp", "perf", "command", "profile", "cpu_nodes"),
    *("node_distances", "start_ns", "kpageflags_at_ns", "meminfo", "provenance", "attached"),
)
_OF_META = tuple(
    case(f"{key}: {kind}", meta(**{key: value}), INFO, _ANY, refused=None)
    for key in _KEYS
    for kind, value in _VALUES.items()
)

_OF_SYSCTLS = tuple(
    case(
        f"a sysctl: {kind}",
        meta(sysctl={"watermark_scale_factor": value}),
        REPLAY,
        _ANY,
        refused=None,
    )
    for kind, value in _VALUES.items()
)


def _named(name: str) -> Damage:
    """Another snapshot of this name."""
    return lambda recording: (recording / "snapshots" / name).mkdir()


def _renamed(recording: Path) -> None:
    first = sorted((recording / "snapshots").iterdir())[0]
    first.rename(first.with_name(str(int(first.name))))
    (recording / "snapshots" / first.name).mkdir()


def _many_keys(file: Path) -> None:
    keys = {f"key{number}": number for number in range(400_000)}
    file.write_text(json.dumps({**json.loads(file.read_text()), **keys}))


def _many_keys_twice(file: Path) -> None:
    keys = "".join(f'"key{number}": 1, ' for number in range(400_000))
    file.write_text("{" + keys + '"key399999": 1, "bundle_version": 1}')


def _many_nodes(file: Path) -> None:
    zone = "Node {}, zone DMA\n  pages free 0\n min 0\n low 0\n high 0\n spanned 0\n present 0\n"
    more = "".join(f"{zone} managed 0\n".format(number) for number in range(10, 100_010))
    file.write_text(file.read_text() + more)


_LARGE = (
    case("400,000 keys", file_is("meta.json", _many_keys), INFO, _ANY, refused=None),
    case("a key twice among 400,000", file_is("meta.json", _many_keys_twice), INFO, "twice"),
    case("100,000 nodes", each_snapshot("zoneinfo", _many_nodes), INFO, _ANY, refused=None),
    case(
        "100,000 nodes replayed", each_snapshot("zoneinfo", _many_nodes), REPLAY, _ANY, refused=None
    ),
    case(
        "kallsyms of 1 GiB",
        file_is(
            "kallsyms.gz",
            lambda file: file.write_bytes(gzip.compress(b"ff T " + b"x" * (1 << 20)) * 1024),
        ),
        ("stacks", "{}"),
        _ANY,
        refused=None,
    ),
)

_NAMES = (
    case("a snapshot of time 2 to the 63", _named(str(1 << 63)), INFO, _ANY, refused=None),
    case("a snapshot of 255 digits", _named("1" * 255), INFO, _ANY, refused=None),
    case("a snapshot named by another script's digits", _named("\u0661"), INFO, _ANY, refused=None),
    case("a snapshot named by escapes", _named("\x1b[31m"), INFO, _ANY, refused=None),
    case("a snapshot's name that is not UTF-8", _named("\udcff"), INFO, _ANY, refused=None),
    case("two snapshots of one time", _renamed, INFO, "another snapshot is of this", refused=None),
    case("an emoji in a path", nothing, ("info", "{}\U0001f600"), "does not exist"),
    case("a path that is not UTF-8", nothing, ("info", "\udcff"), "does not exist"),
    case("a path with a zero byte", nothing, ("info", "a\0b"), _ANY),
    case(
        "10 to the 12 points",
        nothing,
        ("sweep", "{}", "--vary", "pcp_batch=1,2", "--points", f"{10**12}"),
        "give 1 to",
    ),
    case("a plan of zeros", nothing, ("experiment", "/dev/zero", "-o", "{tmp}"), "device"),
    case("a state of zeros", nothing, ("explore", "{}", "--state", "/dev/zero"), "device"),
)

KINDS: tuple[Hostile, ...] = (*_SHAPED, *_OF_META, *_OF_SYSCTLS, *_LARGE, *_NAMES)
