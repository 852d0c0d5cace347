"""How fast each format of events is read, beside perf script and trace-cmd report, in one run.

Usage: python benchmarks/formats.py [RECORDING] [--json]

The samples of a perf.data are written as pages of the kernel's ring buffer (trace.dat of versions
6 and 7, raw pages), as text and in columnar form: the same events in every format but those with
call chains, which the ring buffer does not keep. Measured as in reading.py.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from reading import Row, in_turns, on_one_core, perf_seconds, print_rates, row, uncompressed

import pagealloc_model as pm
from pagealloc_model.recording.exporting import export_recording
from pagealloc_model.recording.trace.formats import tracing_data
from pagealloc_model.recording.trace.layout import part_offsets
from pagealloc_model.recording.trace.perf_file import Feature, SampleType, open_perf_file
from tests.perf_data_writer import SAMPLE, records_in, time_of_record
from tests.trace_dat_writer import (
    Pages,
    event,
    page,
    time_extend,
    write_trace_dat,
    write_tracefs_copy,
)

_ROOM = 4080
_LONGEST_DELTA = 1 << 27
_READ = """
import resource, sys, warnings
from pathlib import Path
from pagealloc_model.recording.recording import read_events
warnings.simplefilter("ignore")
def spent():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
if Path(sys.argv[1]).suffix != ".txt":
    read_events(Path(sys.argv[1])).pfn.sum()
begun = spent()
trace = read_events(Path(sys.argv[1]))
trace.pfn.sum(), trace.time_ns.sum()
print(spent() - begun, len(trace) + sum(len(each["row"]) for each in trace.tables.values()))
"""


def ring_buffer_pages(event_file: Path) -> Pages:
    """A perf.data's samples without call chains as pages of the kernel's ring buffer."""
    file = open_perf_file(event_file)
    streams: dict[int, list[tuple[int, bytes]]] = {}
    attr_of = {number: attr for attr in file.attrs for number in attr.ids}
    id_at = part_offsets(file.attrs[0].sample_type)["identifier"]
    for record in records_in(file):
        if int.from_bytes(record[:4], "little") != SAMPLE:
            continue
        attr = attr_of[int.from_bytes(record[id_at : id_at + 8], "little")]
        if not attr.sample_type & SampleType.CALLCHAIN:
            places = part_offsets(attr.sample_type)
            start = places["end"] + 4
            size = int.from_bytes(record[start - 4 : start], "little")
            cpu = int.from_bytes(record[places["cpu"] : places["cpu"] + 4], "little")
            raw = record[start : start + size]
            streams.setdefault(cpu, []).append((time_of_record(file, record), raw))
    return Pages(
        cpus={cpu: _stream(sorted(events)) for cpu, events in sorted(streams.items())},
        event_texts=tracing_data(file.feature(Feature.TRACING_DATA))[1],
        release=file.release,
    )


def _stream(events: list[tuple[int, bytes]]) -> bytes:
    pages, body, begin, now, used = [], [], events[0][0], events[0][0], 0
    for time_ns, raw in events:
        delta = time_ns - now
        piece = event(delta, raw) if delta < _LONGEST_DELTA else time_extend(delta) + event(0, raw)
        if used + len(piece) > _ROOM:
            pages.append(page(begin, *body))
            body, begin, used, piece = [], time_ns, 0, event(0, raw)
        body.append(piece)
        used += len(piece)
        now = time_ns
    return b"".join([*pages, page(begin, *body)])


def formats(event_file: Path) -> list[Row]:
    """Events a second of each reader, and of trace-cmd and perf on the same events."""
    with tempfile.TemporaryDirectory(prefix="pagealloc-formats-") as name:
        directory = Path(name)
        pages = ring_buffer_pages(event_file)
        plain = uncompressed(event_file, directory / "perf.data")
        six = write_trace_dat(directory / "six.dat", pages, version=6)
        zstd = write_trace_dat(directory / "zstd.dat", pages, compression="zstd")
        ours = {
            "perf.data": plain,
            "perf.data, -z": event_file,
            "trace.dat 6": six,
            "trace.dat 7": write_trace_dat(directory / "seven.dat", pages),
            "trace.dat 7, zlib": write_trace_dat(directory / "zlib.dat", pages, compression="zlib"),
            "trace.dat 7, zstd": zstd,
            "raw pages": write_tracefs_copy(directory / "copy", pages),
        }
        recording = pm.open(six)
        ours["perf script text"] = export_recording(recording, directory / "p.txt", "text").path
        recording.to_columns(directory / "columns.arrow")
        ours["columnar form"] = directory / "columns.arrow"
        if shutil.which("trace-cmd"):
            ours["trace-cmd report text"] = directory / "t.txt"
            with ours["trace-cmd report text"].open("wb") as out:
                subprocess.run(["trace-cmd", "report", "-t", "-i", six], stdout=out, check=True)
        runs: dict[str, Callable[[], float]] = {
            name: partial(_our_rate, path) for name, path in ours.items()
        }
        events = len(recording.trace) + sum(
            len(each["row"]) for each in recording.trace.tables.values()
        )
        for peer, words in (("trace-cmd report", ["report", "-t", "-i"]), ("perf script", [])):
            program = peer.split()[0]
            if shutil.which(program):
                words = ["script", "-i", str(plain)] if program == "perf" else [*words, str(six)]
                runs[peer] = partial(_peer_rate, program, words, name, events)
        best = {each: max(rates) for each, rates in in_turns(runs).items()}
    peer = "trace-cmd report" if "trace-cmd report" in best else None
    return [
        row(f"read {each}" if each in ours else each, rate, peer, best.get(peer or ""))
        for each, rate in best.items()
    ]


def _our_rate(path: Path) -> float:
    done = subprocess.run(
        [sys.executable, "-c", _READ, str(path)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=on_one_core,
    )
    seconds, events = done.stdout.split()
    return int(events) / float(seconds)


def _peer_rate(program: str, words: list[str], directory: str, events: int) -> float:
    return events / perf_seconds(words, directory, program)


if __name__ == "__main__":
    print_rates("speed of reading each format", formats)
