"""Inputs that no kernel or recorder makes: how each is made, what is asked, and what must be said.

Each starts as a copy of a small sound recording. What is refused is one line that names the file;
what is used all the same is named in what `info` prints.
"""

from __future__ import annotations

from tests.recording.hostile_case import INFO, REPLAY, Hostile, case
from tests.recording.hostile_damage import ALLOC, events, file_is, holds, nothing
from tests.recording.hostile_files import FILES, SIZES
from tests.recording.hostile_kinds import KINDS
from tests.recording.hostile_values import VALUES, WORDS

_TRACE_DAT = b"\x17\x08\x44tracing6\0\0" + bytes(4096)
_FTRACE = (
    "# tracer: nop\n#\n# entries-in-buffer/entries-written: 2/2   #P:2\n#\n"
    "            bash-77      [000] d..2.   101.000001: mm_page_alloc: page=000000001 pfn=0x1 "
    "order=0 migratetype=0 gfp_flags=GFP_KERNEL\n"
    "           bash-77      [000] d..2. no time: mm_page_alloc: page=000000001 pfn=0x1\n"
)

EVENTS = (
    case(
        "ftrace text",
        file_is("perf.data", holds(_FTRACE)),
        INFO,
        "perf.data.*line 6.*ftrace.*trace-cmd report",
    ),
    case(
        "trace.dat",
        file_is("perf.data", holds(_TRACE_DAT)),
        INFO,
        "perf.data.*32-bit",
    ),
    case(
        "a tar archive",
        file_is("perf.data", holds(b"rec/meta.json".ljust(257, b"\0") + b"ustar\0" + bytes(250))),
        INFO,
        "perf.data.*tar archive",
    ),
    case(
        "text of two bytes a letter",
        file_is("perf.data", holds("task 1 [000] 1.000001: x:y:\n".encode("utf-16"))),
        INFO,
        "perf.data.*UTF-16",
    ),
    case(
        "a page frame of 2 to the 45",
        events(ALLOC.format(1 << 45, 0, 0)),
        INFO,
        "1 of .* outside the machine's zones",
        refused=False,
    ),
    case(
        "order 11",
        events(ALLOC.format(0x1800, 11, 0)),
        INFO,
        "1 of .* outside the machine's zones",
        refused=False,
    ),
    case("migratetype 7", events(ALLOC.format(0x2000, 0, 7)), REPLAY, "migratetype 7"),
    case(
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
    case("a window that is no number", nothing, ("window", "{}", "nan", "1"), "window.*nan"),
    case("a window that never begins", nothing, ("window", "{}", "inf", "inf"), "window"),
    case("a window that ends before it begins", nothing, ("window", "{}", "1", "0"), "window"),
    case(
        "a setting that is no number",
        nothing,
        ("compare", "{}", "--patch", "pcp_batch=nan"),
        "pcp_batch",
    ),
    case("trimmed from no number on", nothing, ("trim", "{}", "{tmp}", "--start", "nan"), "nan"),
    case(
        "a sweep of 10 to the 18 points",
        nothing,
        ("sweep", "{}", "--vary", "pcp_batch=1:1000000000000000000:1"),
        "pcp_batch",
    ),
    case(
        "a machine of a thousand million GiB",
        nothing,
        ("synth", "exit", "-o", "{tmp}", "--gib", "1e9"),
        "GiB|gib|memory",
    ),
    case(
        "a machine of no number of GiB",
        nothing,
        ("synth", "exit", "-o", "{tmp}", "--gib", "nan"),
        "gib|GiB",
    ),
)

HOSTILE_INPUTS: tuple[Hostile, ...] = (*FILES, *SIZES, *WORDS, *VALUES, *EVENTS, *ASKED, *KINDS)
