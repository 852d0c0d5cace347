"""Hostile files: those that are none, and those that are far too large once unpacked."""

from __future__ import annotations

import gzip
import lzma
import os
import shutil

import zstandard

from tests.recording.hostile_case import INFO, REPLAY, USELESS, VALIDATE, case
from tests.recording.hostile_damage import (
    each_snapshot,
    fifo,
    file_is,
    folder,
    holds,
    loop,
    nothing,
    packed_zeros,
    sparse,
    zeros,
)

_gzip = gzip.compress
_zstd = zstandard.ZstdCompressor(write_content_size=False).compress

FILES = (
    case("vmstat is a FIFO", each_snapshot("vmstat", fifo), INFO, "vmstat.*FIFO", refused=False),
    case(
        "vmstat is a device",
        each_snapshot("vmstat", zeros),
        INFO,
        "vmstat.*device",
        refused=False,
    ),
    case(
        "vmstat leads to itself",
        each_snapshot("vmstat", loop),
        INFO,
        "vmstat.*symbolic links",
        refused=False,
    ),
    case(
        "vmstat is a directory",
        each_snapshot("vmstat", folder),
        INFO,
        "vmstat.*directory",
        refused=False,
    ),
    case("vmstat of 10 GiB", each_snapshot("vmstat", sparse), INFO, "vmstat.*bytes", refused=False),
    case("zoneinfo is a FIFO", each_snapshot("zoneinfo", fifo), REPLAY, USELESS),
    case("zoneinfo is a device", each_snapshot("zoneinfo", zeros), VALIDATE, USELESS),
    case("meta.json is a FIFO", file_is("meta.json", fifo), INFO, "meta.json.*FIFO"),
    case("meta.json is a device", file_is("meta.json", zeros), INFO, "meta.json.*device"),
    case("meta.json of 10 GiB", file_is("meta.json", sparse), INFO, "meta.json.*bytes"),
    case("perf.data is a FIFO", file_is("perf.data", fifo), INFO, "perf.data.*FIFO"),
    case("perf.data is a device", file_is("perf.data", zeros), INFO, "perf.data.*device"),
    case("perf.data is a directory", file_is("perf.data", folder), INFO, "perf.data.*directory"),
    case("perf.data leads nowhere", file_is("perf.data", loop), INFO, "perf.data.*symbolic links"),
    case("a device as a recording", nothing, ("info", "/dev/zero"), "/dev/zero.*device"),
    case("kpageflags is a FIFO", file_is("kpageflags.u64.gz", fifo), REPLAY, "kpageflags.*FIFO"),
    case(
        "kpageflags is a device", file_is("kpageflags.u64.gz", zeros), REPLAY, "kpageflags.*device"
    ),
    case("page_owner is a FIFO", file_is("page_owner.txt", fifo), REPLAY, "page_owner.*FIFO"),
    case(
        "snapshots is a FIFO",
        lambda path: (shutil.rmtree(path / "snapshots"), os.mkfifo(path / "snapshots")),
        REPLAY,
        "snapshots.*FIFO|no snapshot",
    ),
)

SIZES = (
    case(
        "kpageflags of 10 GiB of zeros, packed",
        file_is("kpageflags.u64.gz", lambda file: packed_zeros(file, _gzip)),
        REPLAY,
        "kpageflags.*more than.*(words|pages)",
    ),
    case(
        "kpageflags of 10 GiB of zeros, sparse",
        file_is("kpageflags.u64.gz", sparse),
        REPLAY,
        "kpageflags.*gzip",
    ),
    case("perf.data of 10 GiB, sparse", file_is("perf.data", sparse), INFO, "perf.data"),
    case(
        "perf.data of 10 GiB, gzip",
        file_is("perf.data", lambda file: packed_zeros(file, _gzip, b"PERFILE2" + bytes(96))),
        INFO,
        "perf.data",
    ),
    case(
        "perf.data of 10 GiB, zstd",
        file_is("perf.data", lambda file: packed_zeros(file, _zstd, b"PERFILE2" + bytes(96))),
        INFO,
        "perf.data",
    ),
    case(
        "perf.data of 10 GiB, xz",
        file_is(
            "perf.data", lambda file: packed_zeros(file, lzma.compress, b"PERFILE2" + bytes(96))
        ),
        INFO,
        "perf.data",
    ),
    case(
        "event text of 10 GiB in one line",
        file_is("perf.data", lambda file: packed_zeros(file, _gzip, b"task 1 ")),
        INFO,
        "perf.data",
    ),
    case(
        "page_owner of 10 GiB of zeros",
        file_is("page_owner.txt.gz", lambda file: packed_zeros(file, _gzip)),
        REPLAY,
        "page_owner",
    ),
    case("an empty gzip", file_is("perf.data", holds(gzip.compress(b""))), INFO, "perf.data"),
    case(
        "a cut gzip",
        file_is("perf.data", holds(gzip.compress(os.urandom(9999))[:5000])),
        INFO,
        "perf.data.*intact",
    ),
)
