"""Inputs that no kernel or recorder makes: how each is made, what is asked, and what must be said.

Each starts as a copy of a small sound recording. What is refused is one line that names the file;
what is used all the same is named in what `info` prints.
"""

from __future__ import annotations

import gzip
import lzma
import os
import shutil
from dataclasses import dataclass

import zstandard

from tests.recording.hostile_damage import (
    ALLOC,
    Damage,
    each_snapshot,
    events,
    fifo,
    file_is,
    folder,
    holds,
    loop,
    meta,
    nothing,
    packed_zeros,
    sparse,
    stray,
    substituted,
    zeros,
    zoneinfo,
)

INFO, REPLAY, VALIDATE = ("info", "{}"), ("replay", "{}"), ("validate", "{}")


@dataclass(frozen=True, kw_only=True)
class Hostile:
    """One input.

    Attributes:
        name: of the case.
        damage: what is done to the recording's directory.
        command: words for `pagealloc`; {} is the recording, {tmp} a directory to write to.
        says: a pattern that the one line of an error has, or what is printed if it is used.
        refused: whether the command must end with code 2 and one line.
    """

    name: str
    damage: Damage
    command: tuple[str, ...]
    says: str
    refused: bool = True


_NESTED = "[" * 200_000
_TRACE_DAT = b"\x17\x08\x44tracing6\0\0" + bytes(4096)
_FTRACE = (
    "# tracer: nop\n#\n# entries-in-buffer/entries-written: 2/2   #P:2\n#\n"
    "            bash-77      [000] d..2.   101.000001: mm_page_alloc: page=000000001 pfn=0x1 "
    "order=0 migratetype=0 gfp_flags=GFP_KERNEL\n"
    "           bash-77      [000] d..2. no time: mm_page_alloc: page=000000001 pfn=0x1\n"
)
_gzip = gzip.compress
_zstd = zstandard.ZstdCompressor(write_content_size=False).compress
_USELESS = "no snapshot with a usable zoneinfo"


def _case(
    name: str, damage: Damage, command: tuple[str, ...], says: str, *, refused: bool = True
) -> Hostile:
    return Hostile(name=name, damage=damage, command=command, says=says, refused=refused)


FILES = (
    _case("vmstat is a FIFO", each_snapshot("vmstat", fifo), INFO, "vmstat.*FIFO", refused=False),
    _case(
        "vmstat is a device",
        each_snapshot("vmstat", zeros),
        INFO,
        "vmstat.*device",
        refused=False,
    ),
    _case(
        "vmstat leads to itself",
        each_snapshot("vmstat", loop),
        INFO,
        "vmstat.*symbolic links",
        refused=False,
    ),
    _case(
        "vmstat is a directory",
        each_snapshot("vmstat", folder),
        INFO,
        "vmstat.*directory",
        refused=False,
    ),
    _case(
        "vmstat of 10 GiB", each_snapshot("vmstat", sparse), INFO, "vmstat.*bytes", refused=False
    ),
    _case("zoneinfo is a FIFO", each_snapshot("zoneinfo", fifo), REPLAY, _USELESS),
    _case("zoneinfo is a device", each_snapshot("zoneinfo", zeros), VALIDATE, _USELESS),
    _case("meta.json is a FIFO", file_is("meta.json", fifo), INFO, "meta.json.*FIFO"),
    _case("meta.json is a device", file_is("meta.json", zeros), INFO, "meta.json.*device"),
    _case("meta.json of 10 GiB", file_is("meta.json", sparse), INFO, "meta.json.*bytes"),
    _case("perf.data is a FIFO", file_is("perf.data", fifo), INFO, "perf.data.*FIFO"),
    _case("perf.data is a device", file_is("perf.data", zeros), INFO, "perf.data.*device"),
    _case("perf.data is a directory", file_is("perf.data", folder), INFO, "perf.data.*directory"),
    _case("perf.data leads nowhere", file_is("perf.data", loop), INFO, "perf.data.*symbolic links"),
    _case("a device as a recording", nothing, ("info", "/dev/zero"), "/dev/zero.*device"),
    _case("kpageflags is a FIFO", file_is("kpageflags.u64.gz", fifo), REPLAY, "kpageflags.*FIFO"),
    _case(
        "kpageflags is a device", file_is("kpageflags.u64.gz", zeros), REPLAY, "kpageflags.*device"
    ),
    _case("page_owner is a FIFO", file_is("page_owner.txt", fifo), REPLAY, "page_owner.*FIFO"),
    _case(
        "snapshots is a FIFO",
        lambda path: (shutil.rmtree(path / "snapshots"), os.mkfifo(path / "snapshots")),
        REPLAY,
        "snapshots.*FIFO|no snapshot",
    ),
)

SIZES = (
    _case(
        "kpageflags of 10 GiB of zeros, packed",
        file_is("kpageflags.u64.gz", lambda file: packed_zeros(file, _gzip)),
        REPLAY,
        "kpageflags.*more than.*(words|pages)",
    ),
    _case(
        "kpageflags of 10 GiB of zeros, sparse",
        file_is("kpageflags.u64.gz", sparse),
        REPLAY,
        "kpageflags.*gzip",
    ),
    _case("perf.data of 10 GiB, sparse", file_is("perf.data", sparse), INFO, "perf.data"),
    _case(
        "perf.data of 10 GiB, gzip",
        file_is("perf.data", lambda file: packed_zeros(file, _gzip, b"PERFILE2" + bytes(96))),
        INFO,
        "perf.data",
    ),
    _case(
        "perf.data of 10 GiB, zstd",
        file_is("perf.data", lambda file: packed_zeros(file, _zstd, b"PERFILE2" + bytes(96))),
        INFO,
        "perf.data",
    ),
    _case(
        "perf.data of 10 GiB, xz",
        file_is(
            "perf.data", lambda file: packed_zeros(file, lzma.compress, b"PERFILE2" + bytes(96))
        ),
        INFO,
        "perf.data",
    ),
    _case(
        "event text of 10 GiB in one line",
        file_is("perf.data", lambda file: packed_zeros(file, _gzip, b"task 1 ")),
        INFO,
        "perf.data",
    ),
    _case(
        "page_owner of 10 GiB of zeros",
        file_is("page_owner.txt.gz", lambda file: packed_zeros(file, _gzip)),
        REPLAY,
        "page_owner",
    ),
    _case("an empty gzip", file_is("perf.data", holds(gzip.compress(b""))), INFO, "perf.data"),
    _case(
        "a cut gzip",
        file_is("perf.data", holds(gzip.compress(os.urandom(9999))[:5000])),
        INFO,
        "perf.data.*intact",
    ),
)

WORDS = (
    _case("nested JSON", file_is("meta.json", holds('{"a":' + _NESTED)), INFO, "meta.json.*nested"),
    _case(
        "a number of 5000 digits",
        file_is("meta.json", holds('{"bundle_version": 1' + "0" * 5000 + "}")),
        INFO,
        "meta.json",
    ),
    _case(
        "the same key twice",
        file_is("meta.json", holds('{"bundle_version": 1, "bundle_version": 1}')),
        INFO,
        "meta.json.*twice",
    ),
    _case(
        "a time that is no number",
        file_is("meta.json", holds('{"bundle_version": 1, "start_ns": NaN}')),
        INFO,
        "meta.json.*start_ns",
    ),
    _case("uname of numbers", meta(uname=[1, 2, 3]), INFO, "meta.json.*uname"),
    _case("a thousand million CPUs", meta(nr_cpus=10**9), INFO, "meta.json.*nr_cpus"),
    _case("fewer CPUs than none", meta(nr_cpus=-2), INFO, "meta.json.*nr_cpus"),
    _case(
        "read_ns.json nested",
        lambda path: [
            (each / "read_ns.json").write_text(_NESTED) for each in path.glob("snapshots/*")
        ],
        INFO,
        "read_ns.json",
        refused=False,
    ),
    _case(
        "a stray byte in zoneinfo",
        stray("zoneinfo", b"\xff"),
        INFO,
        "zoneinfo.*line 3.*0xff",
        refused=False,
    ),
    _case(
        "a stray byte in vmstat",
        stray("vmstat", b"\xe9"),
        INFO,
        "vmstat.*line 1.*0xe9",
        refused=False,
    ),
    _case(
        "a zero byte in pagetypeinfo",
        stray("pagetypeinfo", b"\0"),
        INFO,
        "pagetypeinfo.*line 3",
        refused=False,
    ),
    _case(
        "a stray byte in meta.json",
        file_is("meta.json", holds(b'{"bundle_version": 1,\n"a": "\xff"}')),
        INFO,
        "meta.json.*line 2.*0xff",
    ),
)

VALUES = (
    _case(
        "a CPU number of 100 million", zoneinfo(r"cpu: 1\n", "cpu: 100000000\n"), REPLAY, _USELESS
    ),
    _case(
        "the same CPU twice",
        zoneinfo(r"cpu: 1\n", "cpu: 0\n"),
        INFO,
        r"zoneinfo: line \d+: zone \w+ has cpu 0 a second time",
        refused=False,
    ),
    _case(
        "batch 0",
        zoneinfo("batch: 15", "batch: 0"),
        INFO,
        r"zoneinfo: line \d+: zone \w+ cpu 0 has batch \d+,",
        refused=False,
    ),
    _case(
        "batch of four thousand million",
        zoneinfo("batch: 15", "batch: 4000000000"),
        INFO,
        r"zoneinfo: line \d+: zone \w+ cpu 0 has batch \d+,",
        refused=False,
    ),
    _case(
        "batch twice",
        zoneinfo("batch: 15", "batch: 15\n              batch: 31"),
        INFO,
        r"zoneinfo: line \d+: batch appears a second time",
        refused=False,
    ),
    _case(
        "high_min above high_max",
        zoneinfo("high_min: 60", "high_min: 241"),
        INFO,
        r"zoneinfo: line \d+: zone \w+ cpu 0 has high_min 241 above high_max 240",
        refused=False,
    ),
    _case(
        "marks above the zone",
        zoneinfo(r"high +96", "high     960000"),
        INFO,
        r"zoneinfo: line \d+: zone Normal has high 960000 above",
        refused=False,
    ),
    _case(
        "min above low",
        zoneinfo(r"min +64", "min      90"),
        INFO,
        r"zoneinfo: line \d+: zone Normal has min 90, low 80",
        refused=False,
    ),
    _case(
        "boost above min",
        zoneinfo(r"boost +0\n +min +64", "boost 65\n min 64"),
        INFO,
        r"zoneinfo: line \d+: zone Normal has boost 65 above min 64",
        refused=False,
    ),
    _case(
        "min twice",
        zoneinfo(r"(min +64\n)", r"\1        min 63\n"),
        INFO,
        r"zoneinfo: line \d+: min appears a second time",
        refused=False,
    ),
    _case(
        "a zone twice",
        zoneinfo("zone    DMA32", "zone   Normal"),
        INFO,
        r"zoneinfo: line \d+: zone Normal of node 0 appears a second time",
        refused=False,
    ),
    _case(
        "managed above present",
        zoneinfo(r"managed +8192", "managed  9000"),
        INFO,
        r"zoneinfo: line \d+: zone Normal has managed 9000 above present",
        refused=False,
    ),
    _case(
        "more free than managed",
        zoneinfo(r"pages free +\d{4}", "pages free 99999"),
        INFO,
        r"zoneinfo: line \d+: zone \w+ has free 99999 above present",
        refused=False,
    ),
    _case(
        "a zone of 2 to the 60 pages",
        zoneinfo(r"(spanned|present|managed) +8192", r"\1 1152921504606846976"),
        REPLAY,
        _USELESS,
    ),
    _case(
        "a zone that begins at 2 to the 60",
        zoneinfo(r"start_pfn: +4096", "start_pfn: 1152921504606846976"),
        REPLAY,
        _USELESS,
    ),
    _case(
        "a list longer than the zone", zoneinfo(r"count: 0", "count: 4000000000"), REPLAY, _USELESS
    ),
    _case(
        "pageblocks of order 60",
        each_snapshot("pagetypeinfo", substituted("order: 9", "order: 60")),
        INFO,
        r"pagetypeinfo: line \d+: blocks of order 60",
        refused=False,
    ),
    _case(
        "more blocks than the zone has",
        each_snapshot("pagetypeinfo", substituted("Normal 1 15", "Normal 1 150000")),
        INFO,
        r"pagetypeinfo has 150001 blocks",
        refused=False,
    ),
    _case(
        "a count of 30 digits",
        each_snapshot("vmstat", holds("nr_free_pages 1" + "0" * 30)),
        INFO,
        "vmstat.*line 1",
        refused=False,
    ),
)

EVENTS = (
    _case(
        "ftrace text",
        file_is("perf.data", holds(_FTRACE)),
        INFO,
        "perf.data.*line 6.*ftrace.*trace-cmd report",
    ),
    _case(
        "trace.dat",
        file_is("perf.data", holds(_TRACE_DAT)),
        INFO,
        "perf.data.*32-bit",
    ),
    _case(
        "a tar archive",
        file_is("perf.data", holds(b"rec/meta.json".ljust(257, b"\0") + b"ustar\0" + bytes(250))),
        INFO,
        "perf.data.*tar archive",
    ),
    _case(
        "text of two bytes a letter",
        file_is("perf.data", holds("task 1 [000] 1.000001: x:y:\n".encode("utf-16"))),
        INFO,
        "perf.data.*UTF-16",
    ),
    _case(
        "a page frame of 2 to the 45",
        events(ALLOC.format(1 << 45, 0, 0)),
        INFO,
        "1 of .* outside the machine's zones",
        refused=False,
    ),
    _case(
        "order 11",
        events(ALLOC.format(0x1800, 11, 0)),
        INFO,
        "1 of .* outside the machine's zones",
        refused=False,
    ),
    _case("migratetype 7", events(ALLOC.format(0x2000, 0, 7)), REPLAY, "migratetype 7"),
    _case(
        "times that are no times",
        file_is(
            "perf.data",
            holds("task 1 [000] 18446744073709551615.000001: kmem:mm_page_free: pfn=1 order=0\n"),
        ),
        INFO,
        "perf.data",
    ),
)

ASKED = (
    _case("a window that is no number", nothing, ("window", "{}", "nan", "1"), "window.*nan"),
    _case("a window that never begins", nothing, ("window", "{}", "inf", "inf"), "window"),
    _case("a window that ends before it begins", nothing, ("window", "{}", "1", "0"), "window"),
    _case(
        "a setting that is no number",
        nothing,
        ("compare", "{}", "--patch", "pcp_batch=nan"),
        "pcp_batch",
    ),
    _case("trimmed from no number on", nothing, ("trim", "{}", "{tmp}", "--start", "nan"), "nan"),
    _case(
        "a sweep of 10 to the 18 points",
        nothing,
        ("sweep", "{}", "--vary", "pcp_batch=1:1000000000000000000:1"),
        "pcp_batch",
    ),
    _case(
        "a machine of a thousand million GiB",
        nothing,
        ("synth", "exit", "-o", "{tmp}", "--gib", "1e9"),
        "GiB|gib|memory",
    ),
    _case(
        "a machine of no number of GiB",
        nothing,
        ("synth", "exit", "-o", "{tmp}", "--gib", "nan"),
        "gib|GiB",
    ),
)

HOSTILE_INPUTS: tuple[Hostile, ...] = (*FILES, *SIZES, *WORDS, *VALUES, *EVENTS, *ASKED)
