"""A machine made of directories, and a perf that does what a test tells it."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

from pagealloc_model.recording.record.host import Host
from pagealloc_model.recording.trace import tracepoints as tp
from tests.synthetic_perf_data import ALLOC, FREE, attr_of, sample, write

PAGE_FLAGS = bytes(range(256)) * 64
KALLSYMS = "ffffffff81000000 T _text\nffffffff815bc070 t vmstat_update\n"
ALL_CAPABILITIES = "000001ffffffffff"

_FILES = {
    "proc/buddyinfo": "Node 0, zone   Normal 1 2 3\n",
    "proc/pagetypeinfo": "Page block order: 9\n",
    "proc/zoneinfo": "Node 0, zone   Normal\n",
    "proc/stat": "cpu 10 0 200 5 0 0 50 0 0 0\ncpu0 10 0 200 5 0 0 50 0 0 0\nintr 7\nbtime 9\n",
    "proc/pressure/memory": (
        "some avg10=0.10 avg60=0.00 avg300=0.00 total=5\n"
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=3\n"
    ),
    "proc/vmstat": "nr_free_pages 17\npgalloc_normal 100\npgfree 50\n",
    "proc/kallsyms": KALLSYMS,
    "proc/cmdline": "root=/dev/secret quiet\n",
    "proc/cpuinfo": "model name\t: A Processor\nflags\t\t: fpu hypervisor\n",
    "proc/meminfo": "MemTotal:  8000000 kB\nMemAvailable:  4000000 kB\n",
    "proc/self/status": f"Name:\tx\nCapEff:\t{ALL_CAPABILITIES}\n",
    "proc/sys/kernel/perf_event_paranoid": "2\n",
    "proc/sys/kernel/kptr_restrict": "0\n",
    "proc/sys/vm/min_free_kbytes": "67584\n",
    "proc/sys/vm/stat_refresh": "must not be read\n",
    "sys/devices/system/cpu/online": "0-1,4\n",
    "sys/devices/system/cpu/cpu0/topology/core_id": "0\n",
    "sys/devices/system/node/node0/cpulist": "0,4\n",
    "sys/devices/system/node/node0/distance": "10 21\n",
    "sys/devices/system/node/node10/cpulist": "\n",
    "sys/devices/system/node/node10/distance": "31 10\n",
    "sys/devices/system/node/node2/cpulist": "1\n",
    "sys/devices/system/node/node2/distance": "21 10\n",
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    "sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled": "[never]\n",
    "sys/kernel/security/lockdown": "[none] integrity confidentiality\n",
    "sys/kernel/tracing/available_events": "\n".join(tp.USUAL) + "\nsched:sched_switch\n",
    "sys/kernel/tracing/events/enable": "0\n",
    "sys/kernel/tracing/kprobe_events": "",
}


def make_machine(top: Path, *, user: int = 0) -> Host:
    """A machine that can record everything; tests take parts of it away."""
    for name, text in _FILES.items():
        file = top / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (top / "proc/kpageflags").write_bytes(PAGE_FLAGS)
    (top / "proc/kcore").touch()
    config = b"CONFIG_NUMA=y\nCONFIG_PCP_BATCH_SCALE_MAX=5\nCONFIG_SOUND=m\n"
    (top / "proc/config.gz").write_bytes(gzip.compress(config))
    return Host(proc=top / "proc", sysfs=top / "sys", boot=top / "boot", user=user, release="6.12")


_PERF = """#!{python}
import os, shutil, signal, sys

arguments = sys.argv[1:]
how = os.environ.get("PAGEALLOC_FAKE_PERF", "")
if arguments[0] == "version":
    if how == "wrapper":
        print("WARNING: perf not found for kernel 6.12", file=sys.stderr)
        sys.exit(2)
    print("perf version 5.4.2" if how == "old" else "perf version 6.1.187")
    if "--build-options" in arguments:
        print("                  zstd: [ on  ]  # HAVE_ZSTD_SUPPORT")
    sys.exit(0)

def fail(line):
    print(line, file=sys.stderr)
    sys.exit(255)

output = arguments[arguments.index("-o") + 1]
output = "/dev/stdout" if output == "-" else output
if how.startswith("refuse "):
    fail(how.removeprefix("refuse "))
if "--control" not in arguments:
    if how != "no file":
        shutil.copyfile({data!r}, output)
    sys.exit(0)

def finish(number, frame):
    if how == "disk full at the end":
        fail("failed to write perf data, error: No space left on device")
    if enabled:
        shutil.copyfile({data!r}, output)
    sys.exit(0)

enabled = False
signal.signal(signal.SIGINT, finish)
orders, answers = map(int, arguments[arguments.index("--control") + 1][3:].split(","))
while order := os.read(orders, 64).decode():
    os.write(answers, b"ack\\n\\0")
    if order.startswith("enable"):
        enabled = True
        if how == "disk full while recording":
            fail("failed to write perf data, error: No space left on device")
        if how == "ended by somebody":
            finish(0, None)
"""


def make_perf(directory: Path) -> Path:
    """A perf command in its own directory; the variable PAGEALLOC_FAKE_PERF says how it fails."""
    directory.mkdir()
    attrs = [attr_of(ALLOC, [10]), attr_of(FREE, [11])]
    raws = [ALLOC.raw(pfn=5, order=0, gfp_flags=0xC0, migratetype=0), FREE.raw(pfn=5, order=0)]
    records = [
        sample(attr, raw, number=attr.ids[0], time=1000 + index)
        for index, (attr, raw) in enumerate(zip(attrs, raws, strict=True))
    ]
    data = write(directory / "recorded.data", attrs, records)
    command = directory / "perf"
    command.write_text(_PERF.format(python=sys.executable, data=str(data)))
    command.chmod(0o755)
    return directory
