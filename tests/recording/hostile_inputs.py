"""Inputs that no kernel or recorder makes: how each is made, what is asked, and what must be said.

Each starts as a copy of a small sound recording. What is refused is one line that names the file;
what is used all the same is named in what `info` prints.
"""

from __future__ import annotations

import gzip
import json
import lzma
import os
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import zstandard

from tests.memory_reports import ALMOST, MadeZone, report
from tests.recording.hostile_files import CRAFTED, text_in_a_byte
from tests.small_recordings import (
    AFTER_NS,
    BEFORE_NS,
    shipped_recording,
    start_free,
    write_snapshot,
)

Damage = Callable[[Path], object]
GIB = 1 << 30
_NOISE = random.Random(1).randbytes(9999)
PIECE = bytes(1 << 24)
EVENT = "task 1 [000] 1.000{}: kmem:mm_page_{}\n"
ALLOC = "alloc: page=0x1 pfn={} order={} migratetype={} gfp_flags=GFP_KERNEL"


def each_snapshot(name: str, change: Callable[[Path], object]) -> Damage:
    def damage(recording: Path) -> None:
        for file in recording.glob(f"snapshots/*/{name}"):
            change(file)

    return damage


def replaced(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def change(file: Path) -> None:
        file.unlink(missing_ok=True)
        make(file)

    return change


fifo = replaced(os.mkfifo)
zeros = replaced(lambda file: file.symlink_to("/dev/zero"))
loop = replaced(lambda file: file.symlink_to(file))
folder = replaced(lambda file: file.mkdir())


def sparse(file: Path) -> None:
    file.unlink(missing_ok=True)
    with file.open("wb") as content:
        content.truncate(10 * GIB)


def packed_zeros(file: Path, packer: Callable[[bytes], bytes], head: bytes = b"") -> None:
    """10 GiB in members that were packed once."""
    member = packer(PIECE)
    file.write_bytes((packer(head) if head else b"") + member * (10 * GIB // len(PIECE)))


def file_is(name: str, change: Callable[[Path], object]) -> Damage:
    return lambda recording: change(recording / name)


def holds(content: str | bytes) -> Callable[[Path], object]:
    data = content if isinstance(content, bytes) else content.encode()
    return lambda file: file.write_bytes(data)


def substituted(pattern: str, replacement: str, count: int = 0) -> Callable[[Path], object]:
    def change(file: Path) -> None:
        changed, times = re.subn(pattern, replacement, file.read_text(), count=count)
        assert times, f"{pattern!r} is not in {file.name}"
        file.write_text(changed)

    return change


def zoneinfo(pattern: str, replacement: str, count: int = 0) -> Damage:
    return each_snapshot("zoneinfo", substituted(pattern, replacement, count))


def stray(name: str, byte: bytes) -> Damage:
    """A byte in the file's third line, or its first if it has no third."""

    def change(file: Path) -> None:
        lines = file.read_bytes().splitlines(keepends=True)
        place = min(2, len(lines) - 1)
        lines[place] = byte + lines[place]
        file.write_bytes(b"".join(lines))

    return each_snapshot(name, change)


def meta(**changes: object) -> Damage:
    def change(file: Path) -> None:
        file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))

    return file_is("meta.json", change)


def events(*bodies: str) -> Damage:
    """The recording's event text with more events behind it."""

    def change(file: Path) -> None:
        late = "".join(
            f"task 1 [000] 9.{at:06d}: kmem:mm_page_{b}\n" for at, b in enumerate(bodies)
        )
        file.write_text(file.read_text() + late)

    return file_is("perf.data", change)


def nothing(recording: Path) -> None:
    pass


def without_snapshots(recording: Path) -> None:
    shutil.rmtree(recording / "snapshots")


INFO, REPLAY, VALIDATE = ("info", "{}", "--full"), ("replay", "{}"), ("validate", "{}")
USELESS = "no snapshot with a usable zoneinfo"
"""What is said where no snapshot can start a replay."""


@dataclass(frozen=True)
class Hostile:
    """One input.

    Attributes:
        name: of the case.
        damage: what is done to the recording's directory.
        says: a pattern that the one line of an error has, or what is printed if it is used.
        command: words for `pagealloc`; {} is the recording, {tmp} a directory to write to.
        refused: whether the command must end with code 2 and one line; None: it may, or use it.
    """

    name: str
    damage: Damage
    says: str
    command: tuple[str, ...] = INFO
    refused: bool | None = True


def named(name: str, damage: Damage, says: str) -> Hostile:
    """Return an input that `info` names and does without."""
    return Hostile(name, damage, says, refused=False)


def survived(
    name: str, damage: Damage, command: tuple[str, ...] = INFO, says: str = "."
) -> Hostile:
    """Return an input that may be refused or used, in clean lines either way."""
    return Hostile(name, damage, says, command, refused=None)


BECOMES: dict[str, tuple[Callable[[Path], object], str]] = {
    "is a FIFO": (fifo, "FIFO"),
    "is a device": (zeros, "device"),
    "leads to itself": (loop, "symbolic links"),
    "is a directory": (folder, "directory"),
    "of 10 GiB": (sparse, "bytes"),
}
"""What a file becomes, how, and what is said of it."""


def becomes(file: str, what: str, command: tuple[str, ...] = INFO) -> Hostile:
    """Return an input with another kind of file in a file's place."""
    change, said = BECOMES[what]
    return Hostile(f"{file} {what}", file_is(file, change), f"{file}.*{said}", command)


def other_machine(recording: Path) -> None:
    """One more snapshot, whose zone has another name."""
    snapshot = write_snapshot(recording, AFTER_NS, start_free())
    substituted("Node 0, zone   Normal", "Node 0, zone Odd")(snapshot / "zoneinfo")


def odd_zoneinfo_before(recording: Path) -> None:
    snapshot = write_snapshot(recording, BEFORE_NS + 1, start_free())
    (snapshot / "zoneinfo").write_text("Node 0, zone Normal\n  pages free many\n")


FILES = (
    *(
        named(f"vmstat {what}", each_snapshot("vmstat", change), f"vmstat.*{said}")
        for what, (change, said) in BECOMES.items()
    ),
    Hostile("zoneinfo is a FIFO", each_snapshot("zoneinfo", fifo), USELESS, REPLAY),
    *(
        Hostile(f"zoneinfo: {text!r}", each_snapshot("zoneinfo", holds(text)), USELESS, VALIDATE)
        for text in ("", "garbage\n", "Node 0, zone Normal\n")
    ),
    *(
        Hostile(f"no snapshots: {command[0]}", without_snapshots, USELESS, command)
        for command in (REPLAY, VALIDATE)
    ),
    named("no snapshots", without_snapshots, "no snapshots"),
    Hostile("an odd zoneinfo before", odd_zoneinfo_before, "zone Normal", REPLAY, refused=False),
    *(
        Hostile(f"a snapshot of another machine: {command[0]}", other_machine, "Odd", command)
        for command in (REPLAY, VALIDATE)
    ),
    Hostile(
        "nodes with different zones",
        zoneinfo("Node 0, zone   Normal", "Node 1, zone   Normal"),
        "the same zones",
        REPLAY,
    ),
    *(
        named(f"{name} {what}", each_snapshot(name, change), name)
        for name in ("pagetypeinfo", "buddyinfo")
        for what, change in (("is missing", Path.unlink), ("is garbage", holds("garbage\n")))
    ),
    Hostile("zoneinfo is a device", each_snapshot("zoneinfo", zeros), USELESS, VALIDATE),
    *(becomes("meta.json", what) for what in ("is a FIFO", "is a device", "of 10 GiB")),
    *(becomes("perf.data", what) for what in BECOMES if what != "of 10 GiB"),
    Hostile("a device as a recording", nothing, "/dev/zero.*device", ("info", "/dev/zero")),
    becomes("kpageflags.u64.gz", "is a FIFO", REPLAY),
    becomes("kpageflags.u64.gz", "is a device", REPLAY),
    becomes("page_owner.txt", "is a FIFO", REPLAY),
    Hostile(
        "snapshots is a FIFO",
        lambda path: (shutil.rmtree(path / "snapshots"), os.mkfifo(path / "snapshots")),
        "snapshots.*FIFO|no snapshot",
        REPLAY,
    ),
)

_zstd = zstandard.ZstdCompressor(write_content_size=False).compress
_HEAD = b"PERFILE2" + bytes(96)


def large(file: str, packer: Callable[[bytes], bytes], head: bytes = b"") -> Damage:
    """A file that unpacks to 10 GiB."""
    return file_is(file, lambda path: packed_zeros(path, packer, head))


FLAGS, OWNERS = "kpageflags.u64.gz", "page_owner.txt.gz"
SIZES = (
    Hostile("flags of 10 GiB", large(FLAGS, gzip.compress), "more than.*(words|pages)", REPLAY),
    Hostile("flags of 10 GiB, sparse", file_is(FLAGS, sparse), "kpageflags.*gzip", REPLAY),
    Hostile("owners of 10 GiB of zeros", large(OWNERS, gzip.compress), "page_owner", REPLAY),
    Hostile("perf.data of 10 GiB, sparse", file_is("perf.data", sparse), "perf.data"),
    Hostile("perf.data of 10 GiB, gzip", large("perf.data", gzip.compress, _HEAD), "perf.data"),
    Hostile("perf.data of 10 GiB, zstd", large("perf.data", _zstd, _HEAD), "perf.data"),
    Hostile("perf.data of 10 GiB, xz", large("perf.data", lzma.compress, _HEAD), "perf.data"),
    Hostile("one line of 10 GiB", large("perf.data", gzip.compress, b"task 1 "), "perf.data"),
    Hostile("an empty gzip", file_is("perf.data", holds(gzip.compress(b""))), "perf.data"),
    Hostile(
        "a cut gzip",
        file_is("perf.data", holds(gzip.compress(_NOISE)[:5000])),
        "perf.data.*intact",
    ),
)

_NESTED = "[" * 200_000


def _cut(share: float) -> Damage:
    """A real perf.data of which only a share is there."""
    content = shipped_recording("highatomic_gate3").event_file.read_bytes()
    return file_is("perf.data", holds(content[: int(len(content) * share)]))


CUT = tuple(
    Hostile(f"{share:%} of a perf.data: {command[0]}", _cut(share), "perf.data", command)
    for share in (0.0, 0.00002, 0.001, 0.3, 0.999)
    for command in (INFO, VALIDATE)
)


def meta_is(name: str, content: str | bytes, says: str = "") -> Hostile:
    """Return an input whose meta.json holds something else."""
    return Hostile(name, file_is("meta.json", holds(content)), f"meta.json.*{says}")


_SYSCTLS = (
    *(("highatomic_gate_order", "many"), ("highatomic_gate_order", "99")),
    *(("pcp_free_batched", "perhaps"), ("watermark_scale_factor", "x")),
    ("watermark_boost_factor", "-3"),
)


def release(text: str) -> Damage:
    return meta(uname=["Linux", "host", text, "#1", "x86_64"])


WORDS = (
    meta_is("half a meta.json", "{"),
    meta_is("a list", "[]"),
    meta_is("a version of letters", '{"bundle_version": "one"}'),
    meta_is("sysctls that are a number", '{"bundle_version": 1, "sysctl": 3}'),
    meta_is("a later layout", '{"bundle_version": 99}', "bundle_version is 99"),
    *(
        Hostile(f"{command[0]}: {name} {value}", meta(sysctl={name: value}), name, command)
        for name, value in _SYSCTLS
        for command in (REPLAY, VALIDATE)
    ),
    Hostile(
        "a kernel newer than the presets",
        release("8.1.0-rc1"),
        "kernel 8.1.0-rc1 is newer than every preset, rules 7.3 assumed",
        REPLAY,
        refused=False,
    ),
    Hostile("an older kernel", release("5.10.0-21"), "5.10.0-21 is older.*--rules", REPLAY),
    Hostile(
        "an older kernel by other rules",
        release("5.10.0-21"),
        "zone Normal",
        (*REPLAY, "--rules", "6.12"),
        refused=False,
    ),
    meta_is("nested JSON", '{"a":' + _NESTED, "nested"),
    meta_is("a number of 5000 digits", '{"bundle_version": 1' + "0" * 5000 + "}"),
    meta_is("the same key twice", '{"bundle_version": 1, "bundle_version": 1}', "twice"),
    meta_is("a time that is no number", '{"bundle_version": 1, "start_ns": NaN}', "start_ns"),
    meta_is("a stray byte in meta.json", b'{"bundle_version": 1,\n"a": "\xff"}', "line 2.*0xff"),
    Hostile("uname of numbers", meta(uname=[1, 2, 3]), "meta.json.*uname"),
    Hostile("a thousand million CPUs", meta(nr_cpus=10**9), "meta.json.*nr_cpus"),
    Hostile("fewer CPUs than none", meta(nr_cpus=-2), "meta.json.*nr_cpus"),
    named(
        "read_ns.json nested",
        lambda path: [
            (snapshot / "read_ns.json").write_text(_NESTED) for snapshot in path.glob("snapshots/*")
        ],
        "read_ns.json",
    ),
    named("a stray byte in zoneinfo", stray("zoneinfo", b"\xff"), "zoneinfo.*line 3.*0xff"),
    named("a stray byte in vmstat", stray("vmstat", b"\xe9"), "vmstat.*line 1.*0xe9"),
    named("a zero byte in pagetypeinfo", stray("pagetypeinfo", b"\0"), "pagetypeinfo.*line 3"),
)


def odd(name: str, pattern: str, replacement: str, says: str) -> Hostile:
    """Return an input whose zoneinfo has something else where a pattern was."""
    return named(name, zoneinfo(pattern, replacement), rf"zoneinfo: line \d+: {says}")


def useless(name: str, pattern: str, replacement: str) -> Hostile:
    """The same where no zoneinfo is left to replay from."""
    return Hostile(name, zoneinfo(pattern, replacement), USELESS, REPLAY)


_BATCH, _BATCH_2 = "batch: 15", "batch: 15\n              batch: 31"
_HUGE = 1 << 60
VALUES = (
    useless("a CPU number of 100 million", r"cpu: 1\n", "cpu: 100000000\n"),
    odd("the same CPU twice", r"cpu: 1\n", "cpu: 0\n", r"zone \w+ has cpu 0 a second time"),
    odd("batch 0", _BATCH, "batch: 0", r"zone \w+ cpu 0 has batch \d+,"),
    odd("a huge batch", _BATCH, "batch: 4000000000", r"zone \w+ cpu 0 has batch \d+,"),
    odd("batch twice", _BATCH, _BATCH_2, "batch appears a second time"),
    survived("high_min above high_max", zoneinfo("min: 60", "min: 241"), REPLAY),
    odd("marks above the zone", r"high +96", "high 960000", "zone Normal has high 960000 above"),
    odd("min above low", r"min +64", "min      90", "zone Normal has min 90, low 80"),
    odd("boost above min", r"boost +0\n +min +64", "boost 65\n min 64", ".*boost 65 above min 64"),
    odd("min twice", r"(min +64\n)", r"\1        min 63\n", "min appears a second time"),
    odd("a zone twice", "zone    DMA32", "zone   Normal", "zone Normal of node 0 .* second time"),
    odd("managed above present", r"managed +8192", "managed 9000", ".*9000 above present"),
    odd("more free than managed", r"free +\d{4}", "free 99999", r".*free 99999 above present"),
    useless("2 to the 60 pages", r"(spanned|present|managed) +8192", rf"\1 {_HUGE}"),
    odd("a start of 2 to the 60", r"start_pfn: +4096", f"start_pfn: {_HUGE}", ".*than 2.52"),
    useless("a list longer than the zone", r"count: 0", "count: 4000000000"),
    named(
        "pageblocks of order 60",
        each_snapshot("pagetypeinfo", substituted("order: 9", "order: 60")),
        r"pagetypeinfo: line \d+: blocks of order 60",
    ),
    named(
        "more blocks than the zone has",
        each_snapshot("pagetypeinfo", substituted("Normal 1 15", "Normal 1 150000")),
        r"pagetypeinfo has 150001 blocks",
    ),
    named(
        "a count of 30 digits",
        each_snapshot("vmstat", holds("nr_free_pages 1" + "0" * 30)),
        "vmstat.*line 1",
    ),
)

_TRACE_DAT = b"\x17\x08\x44tracing6\0\0" + bytes(4096)
_TAR = b"rec/meta.json".ljust(257, b"\0") + b"ustar\0" + bytes(250)
_UTF_16 = "task 1 [000] 1.000001: x:y:\n".encode("utf-16")
_NO_TIME = "task 1 [000] 18446744073709551615.000001: kmem:mm_page_free: pfn=1 order=0\n"
_FTRACE = (
    "# tracer: nop\n#\n# entries-in-buffer/entries-written: 2/2   #P:2\n#\n"
    "            bash-77      [000] d..2.   101.000001: mm_page_alloc: page=000000001 pfn=0x1 "
    "order=0 migratetype=0 gfp_flags=GFP_KERNEL\n"
    "           bash-77      [000] d..2. no time: mm_page_alloc: page=000000001 pfn=0x1\n"
)


_OTHER_EVENT = "task 1 [000] 1.000001: sched:sched_switch: prev_pid=1 next_pid=2\n"
_REFILL = (
    "task 1 [000] 1.000001: kmem:mm_page_alloc_zone_locked: page=0x1 pfn=0x1800 order=0 "
    "migratetype=0 percpu_refill=1\n"
)
_TIMELESS = "kmem:mm_page_free: page=0x1 pfn=0x10 order=0\n"
_ON_CPU_9 = f"task 1 [009] 1.000001: kmem:mm_page_{ALLOC.format(0x1800, 0, 0)}\n"
OUTSIDE = "1 of .* outside the machine's zones"
EVENTS = (
    *(
        Hostile(name, file_is("perf.data", holds(content)), f"perf.data.*{says}")
        for name, content, says in (
            ("ftrace text", _FTRACE, "line 6.*ftrace.*trace-cmd report"),
            ("trace.dat", _TRACE_DAT, "32-bit"),
            ("a tar archive", _TAR, "tar archive"),
            ("text of two bytes a letter", _UTF_16, "UTF-16"),
            ("times that are no times", _NO_TIME, ""),
            ("plain text", "not a recording\n", ""),
            ("a program", b"\x7fELF" + bytes(500), ""),
            ("an older perf.data", b"PERFILE1" + bytes(200), ""),
            ("empty lines", "\n\n", ""),
            ("other events alone", _OTHER_EVENT, "no page-allocator event"),
        )
    ),
    named("a page frame of 2 to the 45", events(ALLOC.format(1 << 45, 0, 0)), OUTSIDE),
    named("order 11", events(ALLOC.format(0x1800, 11, 0)), OUTSIDE),
    *(
        Hostile(f"an event that is odd: {name}", events(body), r"perf.data: line \d+", REPLAY)
        for name, body in (
            ("its page", "alloc: pfn=zz order=0 migratetype=0 gfp_flags=0"),
            ("no gfp flags", "alloc: pfn=0x10 order=0 migratetype=0"),
            ("its order", "free: page=0x1 pfn=0x10 order=99"),
        )
    ),
    Hostile("refills alone", file_is("perf.data", holds(_REFILL)), "no allocation or free", REPLAY),
    Hostile("an event without a time", file_is("perf.data", holds(_TIMELESS)), "line 1", REPLAY),
    Hostile("a CPU too many", file_is("perf.data", holds(_ON_CPU_9)), "CPU 9", REPLAY),
    named("an event of tomorrow", events("of_tomorrow: pfn=0x12"), "mm_page_of_tomorrow"),
    Hostile("migratetype 7", events(ALLOC.format(0x2000, 0, 7)), "migratetype 7", REPLAY),
)

ASKED = tuple(
    Hostile(name, nothing, says, tuple(words.split()))
    for name, says, words in (
        ("a window that is no number", "window.*nan", "window {} nan 1"),
        ("a window that never begins", "window", "window {} inf inf"),
        ("a window that ends before it begins", "window", "window {} 1 0"),
        ("a setting that is no number", "pcp_batch", "compare {} --patch pcp_batch=nan"),
        ("trimmed from no number on", "nan", "trim {} {tmp} --start nan"),
        ("10 to the 18 points", "pcp_batch", f"sweep {{}} --vary pcp_batch=1:{10**18}:1"),
        ("10 to the 12 points", "give 1 to", f"sweep {{}} --vary pcp_batch=1,2 --points {10**12}"),
        ("a machine of 10 to the 9 GiB", "GiB|gib|memory", "synth exit -o {tmp} --gib 1e9"),
        ("a machine of no number of GiB", "gib|GiB", "synth exit -o {tmp} --gib nan"),
        ("a plan of zeros", "device", "experiment /dev/zero -o {tmp}"),
        ("a state of zeros", "device", "explore {} --state /dev/zero"),
        ("nothing there", "does not exist", "replay /nowhere/at/all"),
        ("a long name of nothing", ".", "validate " + "a" * 300),
        ("a name that is nearly one", r"did you mean kbuild\?", "replay kbulid"),
        ("a name unlike any", "highatomic_stock.*kbuild", "replay none_such"),
        *(
            (f"{command} {setting}", ".", f"{command} {{}} {option} {setting}")
            for command, option in (("replay", "--set"), ("compare", "--patch"))
            for setting in ("x=1", "pcp_batch", "pcp_batch=-1", "pcp_batch=a", "=")
        ),
    )
)


def _taken(recording: Path) -> None:
    (recording.parent / "out").mkdir()
    (recording.parent / "out/mine").write_text("kept")


TAKEN = (
    Hostile("a taken directory", _taken, "not empty", (*REPLAY, "-o", "{tmp}")),
    Hostile("below a file", nothing, ".", (*REPLAY, "-o", "{}/perf.data/below")),
)

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
    "of noise": replaced(holds(_NOISE[:4096])),
    "of escapes": replaced(holds(_ESCAPE * 10)),
}

_IN_SNAPSHOTS = ("zoneinfo", "vmstat", "buddyinfo", "pagetypeinfo", "read_ns.json")
_AT_TOP = ("meta.json", "perf.data", "kpageflags.u64.gz", "page_owner.txt", "profile.folded")

_SHAPED = tuple(
    survived(f"{name}: {shape}", damage(name, change), command)
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
    survived(f"{key}: {kind}", meta(**{key: value}))
    for key in _KEYS
    for kind, value in _VALUES.items()
)

_OF_SYSCTLS = tuple(
    survived(f"a sysctl: {kind}", meta(sysctl={"watermark_scale_factor": value}), REPLAY)
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


_FAR_NODE, _LARGE_RESERVE = f"Node {'9' * 5000}", f"protection: (0, {1 << 63})"
_SAME_NS = f'{{"zoneinfo": [{1 << 62}, {1 << 62}]}}'
_QUIET = EVENT.format("000001", "free: page=0x1 pfn=0x10 order=0") + "\n" * (1 << 21)
_WORD = EVENT.format("000001", "free: page=0x1 pfn=0x10 order=0 " + "a" * 16_000) * 60
_CENTURY = f"task 1 [000] 4000000000.000000: kmem:mm_page_{ALLOC.format(0x1800, 0, 0)}\n"
_LINE = "  sh-77 [000] d..2. {}.000001: mm_page_free: page=1 pfn=0x1 order=0\n"


def _read_at_once(recording: Path) -> None:
    """Snapshots that say that all were read in the same far instant."""
    for at_ns in (AFTER_NS, AFTER_NS + 1000):
        write_snapshot(recording, at_ns, start_free())
    each_snapshot("read_ns.json", holds(_SAME_NS))(recording)
    for snapshot in recording.glob("snapshots/*"):
        (snapshot / "read_ns.json").write_text(_SAME_NS)


_CRAFTED = (
    *(Hostile(name, file_is("perf.data", make), f"perf.data.*{s}") for name, make, s in CRAFTED),
    named("a text's place in a byte", file_is("perf.data", text_in_a_byte), "lock:x"),
    useless("a node of 5000 digits", "Node 0", _FAR_NODE),
    useless("a reserve of 2 to the 63 pages", r"protection: \([\d, ]+\)", _LARGE_RESERVE),
    named(
        "a node of 5000 digits in buddyinfo",
        each_snapshot("buddyinfo", substituted("Node 0", _FAR_NODE)),
        "buddyinfo: line 1",
    ),
    named("memory of 5000 digits", meta(meminfo=f"MemTotal: {'9' * 5000} kB"), "."),
    named("a kernel of 5000 digits", release("6." + "9" * 5000), "."),
    Hostile("snapshots of one instant", _read_at_once, ".", VALIDATE, refused=False),
    Hostile(
        "no event in two million lines", file_is("perf.data", holds(_QUIET)), "without an event"
    ),
    named("words of 16,000 letters", file_is("perf.data", holds(_WORD)), "."),
    *(
        Hostile(name, file_is("perf.data", holds(_LINE.format(1) + more)), "perf.data: line 2")
        for name, more in (("a time of 10 digits in ftrace", _LINE.format(9_999_999_999)),)
    ),
    Hostile(
        "events of a hundred years",
        file_is("perf.data", lambda file: file.write_text(file.read_text() + _CENTURY)),
        "416 days",
        REPLAY,
    ),
    Hostile(
        "a plan of 5000 digits",
        file_is("plan.toml", holds("repeats = " + "9" * 5000)),
        "plan.toml.*no TOML",
        ("experiment", "{}/plan.toml", "-o", "{tmp}"),
    ),
    Hostile("no measured traffic", nothing, "zone->lock", ("locks", "{}"), refused=False),
)

_SYMBOLS = gzip.compress(b"ff T " + b"x" * (1 << 20)) * 1024
_LARGE = (
    survived("400,000 keys", file_is("meta.json", _many_keys)),
    Hostile("a key twice among 400,000", file_is("meta.json", _many_keys_twice), "twice"),
    survived("100,000 nodes", each_snapshot("zoneinfo", _many_nodes)),
    survived("100,000 nodes replayed", each_snapshot("zoneinfo", _many_nodes), REPLAY),
    survived("kallsyms of 1 GiB", file_is("kallsyms.gz", holds(_SYMBOLS)), ("stacks", "{}")),
)

_TWO = "another snapshot is of this"
_NAMES = (
    survived("a snapshot of time 2 to the 63", _named(str(1 << 63))),
    survived("a snapshot of 255 digits", _named("1" * 255)),
    survived("a snapshot named by another script's digits", _named("\u0661")),
    survived("a snapshot named by escapes", _named("\x1b[31m")),
    survived("a snapshot's name that is not UTF-8", _named("\udcff")),
    survived("two snapshots of one time", _renamed, says=_TWO),
    Hostile("an emoji in a path", nothing, "does not exist", ("info", "{}\U0001f600")),
    Hostile("a path that is not UTF-8", nothing, "does not exist", ("info", "\udcff")),
    Hostile("a path with a zero byte", nothing, ".", ("info", "a\0b")),
)

_EXPLAIN = ("explain", "{}/log")
_REPORT = report([MadeZone(blocks={"Movable": (4000,)})])
_EXPLAINED = (
    *(becomes("log", what, _EXPLAIN) for what in ("is a FIFO", "leads to itself", "of 10 GiB")),
    Hostile("log is a device", file_is("log", zeros), "is a device", _EXPLAIN),
    survived("a log of a million lines", file_is("log", holds("a line\n" * 1_000_000)), _EXPLAIN),
    survived("a log of one line", file_is("log", holds("Node 0 Normal " * 1_000_000)), _EXPLAIN),
    survived(
        "a log whose lines almost match",
        file_is("log", holds("".join(f"{line[:4000]}\n" for line in ALMOST * 500) + _REPORT)),
        _EXPLAIN,
    ),
    survived(
        "a report with escapes",
        file_is("log", holds(_REPORT.replace("kworker", "\x1b[31m\u202ek"))),
        _EXPLAIN,
    ),
    Hostile(
        "a report with pages of 20 digits",
        file_is("log", holds(_REPORT.replace("4000*4kB", f"{'9' * 20}*4kB"))),
        ".",
        _EXPLAIN,
        refused=None,
    ),
    Hostile(
        "1,001 reports",
        file_is("log", holds(_REPORT * 1001)),
        "more than 1000 reports",
        _EXPLAIN,
    ),
    survived("copies of /proc asked of", each_snapshot("buddyinfo", fifo), ("explain", "{}")),
    survived("stalls of no stalls", nothing, ("stalls", "{}")),
)

HOSTILE_INPUTS: tuple[Hostile, ...] = (
    *(*FILES, *SIZES, *CUT, *WORDS, *VALUES, *EVENTS, *ASKED, *TAKEN),
    *(*_SHAPED, *_OF_META, *_OF_SYSCTLS, *_LARGE, *_CRAFTED, *_NAMES, *_EXPLAINED),
)
