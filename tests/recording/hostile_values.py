"""Hostile contents of a recording's small files: words that are none, numbers that cannot be."""

from __future__ import annotations

from tests.recording.hostile_case import INFO, REPLAY, USELESS, case
from tests.recording.hostile_damage import (
    each_snapshot,
    file_is,
    holds,
    meta,
    stray,
    substituted,
    zoneinfo,
)

_NESTED = "[" * 200_000

WORDS = (
    case("nested JSON", file_is("meta.json", holds('{"a":' + _NESTED)), INFO, "meta.json.*nested"),
    case(
        "a number of 5000 digits",
        file_is("meta.json", holds('{"bundle_version": 1' + "0" * 5000 + "}")),
        INFO,
        "meta.json",
    ),
    case(
        "the same key twice",
        file_is("meta.json", holds('{"bundle_version": 1, "bundle_version": 1}')),
        INFO,
        "meta.json.*twice",
    ),
    case(
        "a time that is no number",
        file_is("meta.json", holds('{"bundle_version": 1, "start_ns": NaN}')),
        INFO,
        "meta.json.*start_ns",
    ),
    case("uname of numbers", meta(uname=[1, 2, 3]), INFO, "meta.json.*uname"),
    case("a thousand million CPUs", meta(nr_cpus=10**9), INFO, "meta.json.*nr_cpus"),
    case("fewer CPUs than none", meta(nr_cpus=-2), INFO, "meta.json.*nr_cpus"),
    case(
        "read_ns.json nested",
        lambda path: [
            (each / "read_ns.json").write_text(_NESTED) for each in path.glob("snapshots/*")
        ],
        INFO,
        "read_ns.json",
        refused=False,
    ),
    case(
        "a stray byte in zoneinfo",
        stray("zoneinfo", b"\xff"),
        INFO,
        "zoneinfo.*line 3.*0xff",
        refused=False,
    ),
    case(
        "a stray byte in vmstat",
        stray("vmstat", b"\xe9"),
        INFO,
        "vmstat.*line 1.*0xe9",
        refused=False,
    ),
    case(
        "a zero byte in pagetypeinfo",
        stray("pagetypeinfo", b"\0"),
        INFO,
        "pagetypeinfo.*line 3",
        refused=False,
    ),
    case(
        "a stray byte in meta.json",
        file_is("meta.json", holds(b'{"bundle_version": 1,\n"a": "\xff"}')),
        INFO,
        "meta.json.*line 2.*0xff",
    ),
)

VALUES = (
    case("a CPU number of 100 million", zoneinfo(r"cpu: 1\n", "cpu: 100000000\n"), REPLAY, USELESS),
    case(
        "the same CPU twice",
        zoneinfo(r"cpu: 1\n", "cpu: 0\n"),
        INFO,
        r"zoneinfo: line \d+: zone \w+ has cpu 0 a second time",
        refused=False,
    ),
    case(
        "batch 0",
        zoneinfo("batch: 15", "batch: 0"),
        INFO,
        r"zoneinfo: line \d+: zone \w+ cpu 0 has batch \d+,",
        refused=False,
    ),
    case(
        "batch of four thousand million",
        zoneinfo("batch: 15", "batch: 4000000000"),
        INFO,
        r"zoneinfo: line \d+: zone \w+ cpu 0 has batch \d+,",
        refused=False,
    ),
    case(
        "batch twice",
        zoneinfo("batch: 15", "batch: 15\n              batch: 31"),
        INFO,
        r"zoneinfo: line \d+: batch appears a second time",
        refused=False,
    ),
    case(
        "high_min above high_max",
        zoneinfo("high_min: 60", "high_min: 241"),
        INFO,
        r"zoneinfo: line \d+: zone \w+ cpu 0 has high_min 241 above high_max 240",
        refused=False,
    ),
    case(
        "marks above the zone",
        zoneinfo(r"high +96", "high     960000"),
        INFO,
        r"zoneinfo: line \d+: zone Normal has high 960000 above",
        refused=False,
    ),
    case(
        "min above low",
        zoneinfo(r"min +64", "min      90"),
        INFO,
        r"zoneinfo: line \d+: zone Normal has min 90, low 80",
        refused=False,
    ),
    case(
        "boost above min",
        zoneinfo(r"boost +0\n +min +64", "boost 65\n min 64"),
        INFO,
        r"zoneinfo: line \d+: zone Normal has boost 65 above min 64",
        refused=False,
    ),
    case(
        "min twice",
        zoneinfo(r"(min +64\n)", r"\1        min 63\n"),
        INFO,
        r"zoneinfo: line \d+: min appears a second time",
        refused=False,
    ),
    case(
        "a zone twice",
        zoneinfo("zone    DMA32", "zone   Normal"),
        INFO,
        r"zoneinfo: line \d+: zone Normal of node 0 appears a second time",
        refused=False,
    ),
    case(
        "managed above present",
        zoneinfo(r"managed +8192", "managed  9000"),
        INFO,
        r"zoneinfo: line \d+: zone Normal has managed 9000 above present",
        refused=False,
    ),
    case(
        "more free than managed",
        zoneinfo(r"pages free +\d{4}", "pages free 99999"),
        INFO,
        r"zoneinfo: line \d+: zone \w+ has free 99999 above present",
        refused=False,
    ),
    case(
        "a zone of 2 to the 60 pages",
        zoneinfo(r"(spanned|present|managed) +8192", r"\1 1152921504606846976"),
        REPLAY,
        USELESS,
    ),
    case(
        "a zone that begins at 2 to the 60",
        zoneinfo(r"start_pfn: +4096", "start_pfn: 1152921504606846976"),
        REPLAY,
        USELESS,
    ),
    case(
        "a list longer than the zone", zoneinfo(r"count: 0", "count: 4000000000"), REPLAY, USELESS
    ),
    case(
        "pageblocks of order 60",
        each_snapshot("pagetypeinfo", substituted("order: 9", "order: 60")),
        INFO,
        r"pagetypeinfo: line \d+: blocks of order 60",
        refused=False,
    ),
    case(
        "more blocks than the zone has",
        each_snapshot("pagetypeinfo", substituted("Normal 1 15", "Normal 1 150000")),
        INFO,
        r"pagetypeinfo has 150001 blocks",
        refused=False,
    ),
    case(
        "a count of 30 digits",
        each_snapshot("vmstat", holds("nr_free_pages 1" + "0" * 30)),
        INFO,
        "vmstat.*line 1",
        refused=False,
    ),
)
