"""Commands that make, describe, copy and convert recordings."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pagealloc_model.base.progress_bar import progress
from pagealloc_model.base.text import count_of
from pagealloc_model.cli.arguments import JSON, RECORDING, Command, json_text, option

RECORDING_IMPOSSIBLE = 1


def run_doctor(options: argparse.Namespace) -> int:
    """Print one line for each check."""
    from dataclasses import asdict

    from pagealloc_model.recording.record.doctor import examine
    from pagealloc_model.recording.record.host import Host
    from pagealloc_model.show.post import doctor_text
    from pagealloc_model.studies.experiments.guest import guest_checks
    from pagealloc_model.studies.experiments.runs import here_check

    checks = [
        *examine(Host(), Path.cwd()),
        *guest_checks(tuple(options.kernel)),
        here_check(),
    ]
    possible = not any(check.blocks for check in checks)
    if options.json:
        described = [asdict(check) for check in checks]
        print(json_text({"recording_possible": possible, "checks": described}))
    else:
        print(doctor_text(checks))
    return 0 if possible else RECORDING_IMPOSSIBLE


COMMAND_FAILED = 1

_MORE = """\
Ends with the command, after --seconds, or on Ctrl-C, and leaves a usable recording in
each case. DIR appears when it is complete.

Where the kernel permits it, kprobes named pa:* mark where the allocator takes and
drops its locks; they are removed at the end, also after an error. --no-probes sets
none, --probes ends with an error where they cannot be set.

Exit code 1 if the command failed, 2 if the recording did or was cut short."""


def run_record(options: argparse.Namespace) -> int:
    """Record and say what came of it."""
    if options.python:
        return _record_with_module(options)
    import os

    from pagealloc_model.recording.record.host import Host
    from pagealloc_model.recording.record.perf import RecordOptions, parse_size
    from pagealloc_model.recording.record.session import (
        calling_user,
        read_back,
        record,
        summary_lines,
    )

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def note(line: str) -> None:
        if sys.stderr.isatty():
            say(f"{line} ...")

    host = Host()
    recorded = record(
        RecordOptions(
            destination=options.output,
            command=tuple(options.command),
            seconds=options.seconds,
            events=tuple(filter(None, options.events.split(","))),
            locks=options.locks,
            call_chains=options.call_chains,
            probes=options.probes,
            profile=options.profile,
            anonymise=options.anonymise,
            live_s=options.live,
            interval_s=options.interval,
            buffer_bytes=parse_size(options.buffer) if options.buffer else None,
        ),
        host,
        say,
        note,
    )
    note("reading it back")
    content = read_back(recorded.path, calling_user(os.environ, host.user))
    print("\n".join(summary_lines(recorded, content)))
    if recorded.command_code and not recorded.ended_by.startswith("SIG"):
        return COMMAND_FAILED
    return 0


def _record_with_module(options: argparse.Namespace) -> int:
    from pagealloc_model.base.files import new_directory
    from pagealloc_model.recording.event_files import STORE_FILE
    from pagealloc_model.recording.record.perf import parse_size
    from pagealloc_model.recording.record.perf_python import live
    from pagealloc_model.recording.trace.store import write_store

    buffer_bytes = parse_size(options.buffer) if options.buffer else None
    with new_directory(options.output) as partial:
        trace = live(options.seconds or 5.0, buffer_bytes=buffer_bytes)
        write_store(trace, partial / STORE_FILE, source=None)
    print(f"{options.output}: {count_of(len(trace), 'event')}, {trace.losses.total} lost")
    return 0


_SNAPSHOT_MORE = """\
Call it just before tracing, and again (or with --seconds) while and after it: a directory
that exists gets further snapshots. pagealloc attach joins it with the trace. Needs no perf;
without root there is no pagetypeinfo and no kpageflags."""


def run_snapshot(options: argparse.Namespace) -> int:
    """Take the snapshots and say what could not be read."""
    from pagealloc_model.recording.record.host import Host
    from pagealloc_model.recording.record.snapshots import copy_state

    count, unreadable, has_flags = copy_state(
        options.directory, Host(), seconds=options.seconds, interval_s=options.interval
    )
    flags = "with" if has_flags else "without"
    print(f"{options.directory}: {count_of(count, 'snapshot')}, {flags} kpageflags")
    if unreadable:
        print(f"unreadable {', '.join(unreadable)}; root may read them")
    return 0


_FILES = ("zoneinfo", "buddyinfo", "pagetypeinfo", "vmstat")
_ATTACH_MORE = """\
TRACE is any that can be read: perf.data, trace.dat, raw pages or text of ftrace, perf script
text. The recording says what it lacks and what each lack costs. With a zoneinfo alone, a
replay begins at an estimated start, and says so."""


def run_attach(options: argparse.Namespace) -> int:
    """Attach and say what is missing."""
    from pagealloc_model.recording.event_files import size_of
    from pagealloc_model.recording.importing import attach_state
    from pagealloc_model.recording.recording import open_recording

    recording = open_recording(options.trace)
    copies = {name: path for name in _FILES if (path := getattr(options, name)) is not None}
    with progress(f"reading {recording.name}", size_of(recording.event_file), "B") as report:
        made = attach_state(
            options.trace,
            options.output,
            snapshots=options.snapshot,
            files=copies,
            read=options.read,
            release=options.release,
            progress=report,
        )
    events, snapshots = count_of(made.events, "event"), count_of(made.snapshots, "snapshot")
    print(f"{options.output}: {events}, {snapshots}")
    for line in made.lacks:
        print(f"lacks      {line}")
    return 0


_IMPORT_EVENTS_MORE = """\
DIR becomes a recording like any other, with events.arrow instead of perf.data; a name
that ends in .arrow becomes the events alone. Recordings larger than memory can be
imported: working files lie beside the destination until the end."""


def run_import_events(options: argparse.Namespace) -> int:
    """Import and say what came of it."""
    from pagealloc_model.recording.event_files import size_of
    from pagealloc_model.recording.importing import import_recording
    from pagealloc_model.recording.recording import open_recording

    recording = open_recording(options.path)
    size = size_of(recording.event_file)
    with progress(f"importing {recording.name}", size, "B") as report:
        made = import_recording(
            recording.path,
            options.output,
            compress=options.compress,
            reader=options.reader,
            progress=report,
        )
    print(
        f"{made.event_file}: {count_of(made.events, 'event')}, {count_of(made.size, 'byte')}, "
        f"{made.size / max(made.events, 1):.1f} an event; "
        f"{recording.event_file.name} had {made.source_size}"
    )
    for name in made.left_out:
        print(f"left out   {name}, which only a directory has room for")
    return 0


_EXPORT_MORE = """\
parquet: DIR with events.parquet, one table for each other tracepoint, and losses.parquet,
which DuckDB, Polars and pandas open. text: FILE as perf script --ns prints it, which
pagealloc reads again."""


def run_export(options: argparse.Namespace) -> int:
    """Export and say what was written."""
    from pagealloc_model.recording.exporting import export_recording
    from pagealloc_model.recording.recording import open_recording

    made = export_recording(open_recording(options.path), options.output, options.to)
    for name, rows in made.rows.items():
        print(f"{made.path}: {name} {rows}")
    return 0


def run_info(options: argparse.Namespace) -> int:
    """Print the description."""
    from pagealloc_model.recording.recording import open_recording
    from pagealloc_model.show.recording_text import describe_recording, recording_text

    recording = open_recording(options.path)
    print(json_text(describe_recording(recording)) if options.json else recording_text(recording))
    return 0


def run_trim(options: argparse.Namespace) -> int:
    """Write the copy and say what is in it."""
    from pagealloc_model.recording.recording import open_recording
    from pagealloc_model.recording.trim import trim_recording

    trimmed = trim_recording(
        open_recording(options.path).path,
        options.destination,
        start_s=options.start,
        seconds=options.seconds,
        events=options.events,
        anonymise=options.anonymise,
        keep_names=tuple(options.keep_name),
        keep_functions=options.keep_functions,
    )
    seconds = (trimmed.window.end_ns - trimmed.window.begin_ns) / 1e9
    print(
        f"{trimmed.path}: {count_of(trimmed.window.events, 'event')} in {seconds:.3f} s, "
        f"{count_of(trimmed.snapshots, 'snapshot')}, {count_of(trimmed.size, 'byte')}"
    )
    for phrase in trimmed.removed:
        print(f"removed    {phrase}")
    return 0


SCENARIO_NAMES = ("exit", "boot", "purgers", "churn")


def run_synth(options: argparse.Namespace) -> int:
    """Run the scenario, write it, and say how long zone->lock is held."""
    from pagealloc_model.base.text import paragraph
    from pagealloc_model.policy.kernel_rules import preset_names
    from pagealloc_model.predicted.lock_times import with_spread
    from pagealloc_model.show.post.tables import (
        longest_hold_table,
        spread_table,
        trylock_line,
    )
    from pagealloc_model.studies.synthetic.recording import write_synthetic_recording
    from pagealloc_model.studies.synthetic.run import run as run_demand
    from pagealloc_model.studies.synthetic.scenarios import scenario

    rules = options.rules or preset_names()[-1]
    demand = scenario(
        options.scenario,
        gib=options.gib,
        nr_cpus=options.cpus,
        nodes=options.nodes,
        rules=rules,
        seed=options.seed,
        **_numbers(options.set),
    )
    done = run_demand(demand, rules=rules)
    write_synthetic_recording(done, options.output)
    print(
        f"{options.output}: {count_of(demand.count, 'event')} on "
        f"{count_of(demand.machine.nr_cpus, 'CPU')}"
    )
    for line in demand.lines:
        print(f"scenario   {line}")
    times = done.lock_times()
    print("\nBy assumed costs, and for costs that are tenfold apart:\n")
    print(longest_hold_table(times))
    print(spread_table(with_spread(times.log, times.machine, times.model, times.visits)))
    print(paragraph(trylock_line(times)))
    return 0


def _numbers(words: list[str]) -> dict[str, int]:
    from pagealloc_model.base.errors import UsageError

    numbers = [word.partition("=")[::2] for word in words]
    try:
        return {name: int(value) for name, value in numbers}
    except ValueError:
        raise UsageError(f"--set {' '.join(words)}: write NUMBER=VALUE, whole numbers") from None


_DIRECTORY = option(
    "-o", "--output", metavar="DIR", type=Path, required=True, help="directory to create"
)
COMMANDS = (
    Command(
        "doctor",
        run_doctor,
        "say what this machine has for recording and guests, and what each lack costs",
        "pagealloc doctor",
        (
            option(
                "--kernel",
                metavar="PATH",
                action="append",
                default=[],
                type=Path,
                help="a bzImage: say whether it serves as a guest; may be repeated",
            ),
            JSON,
        ),
        more="Exit code 0 if a recording is possible here and now, 1 if not.",
    ),
    Command(
        "record",
        run_record,
        "record this machine (needs root and perf)",
        "pagealloc record -o mine -- make -j8",
        (
            _DIRECTORY,
            option("--seconds", metavar="N", type=float, help="end after this time"),
            option(
                "--python",
                action="store_true",
                help="sample the page allocator's events through perf's Python module, for "
                "--seconds (5): events alone, some 100,000 a second",
            ),
            option(
                "--events",
                metavar="LIST",
                default="default",
                help="names and patterns, such as 'kmem:mm_page_*,vmscan:*', separated by "
                "commas, instead of the usual set, which is called 'default'; page "
                "allocations and frees always come too",
            ),
            option(
                "--no-lock", dest="locks", action="store_false", help="record no lock contention"
            ),
            option(
                "-g",
                "--call-graph",
                dest="call_chains",
                action="store_true",
                help="record the kernel's call chain with each event of kmem, for pagealloc "
                "stacks; an event then takes 211 bytes of the buffer, not 96, and 2.4 us more",
            ),
            option(
                "--probes",
                action=argparse.BooleanOptionalAction,
                help="set kprobes at the allocator's transactions (default: where permitted)",
            ),
            option(
                "--profile",
                action="store_true",
                help="afterwards run the command once more, or wait as long, with nothing "
                "traced: a profile from which what holding zone->lock costs is fitted",
            ),
            option(
                "--anonymise",
                action="store_true",
                help="remove what names the machine or its programs",
            ),
            option(
                "--live",
                metavar="N",
                type=float,
                help="print rates every N seconds while recording",
            ),
            option(
                "--interval",
                metavar="S",
                type=float,
                default=1.0,
                help="seconds between snapshots (1)",
            ),
            option(
                "--buffer",
                metavar="SIZE",
                help="ring buffer of each CPU, such as 64M (default: 64M, less where "
                "those of all CPUs would take over 3%% of memory)",
            ),
            option("command", metavar="CMD", nargs="*", help="command to run and record"),
        ),
        more=_MORE,
    ),
    Command(
        "snapshot",
        run_snapshot,
        "copy the machine's state files, for a trace made with another tool",
        "pagealloc snapshot state",
        (
            option("directory", metavar="DIR", type=Path, help="new, or of an earlier call"),
            option(
                "--seconds",
                metavar="N",
                type=float,
                default=0.0,
                help="take snapshots for this long",
            ),
            option(
                "--interval", metavar="S", type=float, default=1.0, help="seconds between two (1)"
            ),
        ),
        more=_SNAPSHOT_MORE,
    ),
    Command(
        "attach",
        run_attach,
        "make a recording of a bare trace and copies of /proc",
        "pagealloc attach trace.dat --snapshot state -o recording",
        (
            option("trace", metavar="TRACE", help="the events"),
            option(
                "--snapshot",
                metavar="DIR",
                type=Path,
                help="made by pagealloc snapshot, or a directory with copies of the files below",
            ),
            *(
                option(f"--{name}", metavar="FILE", type=Path, help=f"a copy of /proc/{name}")
                for name in _FILES
            ),
            option(
                "--read",
                choices=("before", "behind"),
                default="before",
                help="when single copies were made: before the trace (default) or behind it",
            ),
            option(
                "--release",
                default="",
                help="the kernel's, where the trace does not name it (uname -r)",
            ),
            _DIRECTORY,
        ),
        more=_ATTACH_MORE,
    ),
    Command(
        "import",
        run_import_events,
        "write a recording in columnar form, which opens at once",
        "pagealloc import recording -o recording_columns",
        (
            RECORDING,
            option(
                "-o",
                "--output",
                metavar="DIR_OR_FILE",
                type=Path,
                required=True,
                help="directory to create, or FILE.arrow for the events alone",
            ),
            option(
                "--uncompressed",
                dest="compress",
                action="store_false",
                help="30 bytes an event, which are used where they lie in the file, "
                "without unpacking: for recordings larger than memory, and for many "
                "short looks at a long one",
            ),
            option(
                "--reader",
                choices=("own", "perf-script", "perf-session"),
                default="own",
                help="read a perf.data through perf's Python: perf script -s, or its module's "
                "perf.session, to check the package's own reader",
            ),
        ),
        more=_IMPORT_EVENTS_MORE,
    ),
    Command(
        "export",
        run_export,
        "write a recording's events for other tools",
        "pagealloc export kbuild --to parquet -o events",
        (
            RECORDING,
            option("--to", choices=("parquet", "text"), required=True, help="the format"),
            option(
                "-o",
                "--output",
                metavar="DIR_OR_FILE",
                type=Path,
                required=True,
                help="directory (parquet) or file (text) to create",
            ),
        ),
        more=_EXPORT_MORE,
    ),
    Command(
        "info",
        run_info,
        "say what a recording holds, what it lost and what cannot be compared",
        "pagealloc info kbuild",
        (
            RECORDING,
            JSON,
        ),
    ),
    Command(
        "trim",
        run_trim,
        "copy part of a recording, to keep or to send",
        "pagealloc trim recording short --seconds 5 --anonymise",
        (
            RECORDING,
            option("destination", metavar="DST", type=Path, help="directory to create"),
            option(
                "--start", metavar="S", type=float, help="seconds after the first event to start at"
            ),
            option("--seconds", metavar="S", type=float, help="seconds to keep"),
            option("--events", metavar="N", type=int, help="events to keep at most"),
            option(
                "--anonymise",
                action="store_true",
                help="remove what names the machine or its programs",
            ),
            option(
                "--keep-name",
                metavar="NAME",
                action="append",
                default=[],
                help="with --anonymise, leave this command name as it is; may be repeated",
            ),
            option(
                "--keep-functions",
                action="store_true",
                help="with --anonymise, leave the kernel's functions in call chains their names",
            ),
        ),
    ),
    Command(
        "synth",
        run_synth,
        "make up a load on a machine of any size",
        "pagealloc synth exit -o avalanche --cpus 64 --gib 128 --set pages=4096",
        (
            option("scenario", metavar="SCENARIO", choices=SCENARIO_NAMES),
            option("-o", "--output", metavar="DIR", type=Path, required=True),
            option("--cpus", metavar="N", type=int, default=4, help="CPUs (default 4)"),
            option("--gib", metavar="N", type=float, default=4, help="memory (default 4)"),
            option("--nodes", metavar="N", type=int, default=1, help="NUMA nodes (default 1)"),
            option("--seed", metavar="N", type=int, default=0, help="of random choices"),
            option("--rules", metavar="SERIES", help="kernel series (default: the newest)"),
            option(
                "--set",
                metavar="NUMBER=VALUE",
                action="append",
                default=[],
                help="a number of the scenario, such as pages=4096; may be repeated",
            ),
        ),
        more="Scenarios: exit (a process per CPU, all exit at once), boot (many short processes), "
        "purgers (many CPUs allocate, few free), churn (workers map, touch and unmap).",
    ),
)
"""The commands of this file."""
