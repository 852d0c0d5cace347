"""Commands that make, describe, copy and convert recordings."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.files import new_directory
from pagealloc_model.base.progress_bar import progress
from pagealloc_model.base.text import as_path, count_of, paragraph
from pagealloc_model.cli.arguments import (
    Commands,
    add_command,
    add_json,
    add_recording,
    json_text,
    opened,
    refuse,
)
from pagealloc_model.recording.record.kswapd_sleep import LONGEST_S

RECORDING_IMPOSSIBLE = COMMAND_FAILED = 1


def add_doctor(commands: Commands) -> None:
    """Add `pagealloc doctor`."""
    parser = add_command(
        commands,
        "doctor",
        run_doctor,
        "check whether this machine can record and boot guests, and what each lack costs",
        example="pagealloc doctor",
        more="Exit code 0 if a recording is possible here and now, 1 if not.",
    )
    parser.add_argument(
        "--kernel",
        action="append",
        type=Path,
        metavar="PATH",
        default=[],
        help="a bzImage to check as a guest's kernel; may be repeated",
    )
    add_json(parser)


def run_doctor(options: argparse.Namespace) -> int:
    """Print one line for each check."""
    from dataclasses import asdict

    from pagealloc_model.guests.guest import guest_checks
    from pagealloc_model.guests.runs import here_check
    from pagealloc_model.recording.record.doctor import examine
    from pagealloc_model.recording.record.host import Host
    from pagealloc_model.show.post import doctor_text

    checks = [*examine(Host(), Path.cwd()), *guest_checks(tuple(options.kernel)), here_check()]
    possible = not any(check.blocks for check in checks)
    if options.json:
        described = [asdict(check) for check in checks]
        print(json_text({"recording_possible": possible, "checks": described}))
    else:
        print(doctor_text(checks))
    return 0 if possible else RECORDING_IMPOSSIBLE


def add_record(commands: Commands) -> None:
    """Add `pagealloc record`."""
    parser = add_command(
        commands,
        "record",
        run_record,
        "record this machine (needs root and perf)",
        example="pagealloc record -o mine -- make -j8",
        more="""
        Ends with the command, after --seconds, or on Ctrl-C, and leaves a usable recording in
        each case. DIR appears when it is complete.

        Where the kernel permits it, kprobes named pa:* mark where the allocator takes and
        drops its locks; they are removed at the end, also after an error. --no-probes sets
        none, --probes ends with an error where they cannot be set.

        Exit code 1 if the command failed, 2 if the recording did or was cut short.
        """,
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR", required=True, help="directory to create"
    )
    parser.add_argument("--seconds", type=float, metavar="S", help="end after this time")
    parser.add_argument(
        "--python",
        action="store_true",
        help="sample the page allocator's events through perf's Python module, for "
        "--seconds (5): events alone, some 100,000 a second",
    )
    parser.add_argument(
        "--events",
        metavar="LIST",
        default="default",
        help="tracepoints to record: names and patterns separated by commas, such as "
        "'kmem:mm_page_*,vmscan:*'; 'default' is the usual set. Page allocations and "
        "frees are always recorded. 'default,sched:sched_switch' adds who runs, for "
        "full memory pressure, at 0.3 us a switch",
    )
    parser.add_argument(
        "--no-lock", dest="locks", action="store_false", help="record no lock contention"
    )
    parser.add_argument(
        "-g",
        "--call-graph",
        dest="call_chains",
        action="store_true",
        help="record the kernel's call chain with each event of kmem, for pagealloc "
        "stacks; an event then takes 211 bytes of the buffer, not 96, and 2.4 us more",
    )
    parser.add_argument(
        "--probes",
        action=argparse.BooleanOptionalAction,
        help="set kprobes at the allocator's transactions (default: where permitted)",
    )
    parser.add_argument(
        "--no-state",
        dest="state",
        action="store_false",
        help="do not read the machine's state through /proc/kcore",
    )
    parser.add_argument(
        "--profile",
        action="store_true",
        help="afterwards run the command once more, or wait as long, untraced under "
        "perf's profiler: the costs of holding zone->lock are fitted to this profile",
    )
    parser.add_argument(
        "--anonymise", action="store_true", help="remove what names the machine or its programs"
    )
    parser.add_argument(
        "--live", type=float, metavar="N", help="print rates every N seconds while recording"
    )
    parser.add_argument(
        "--interval", type=float, metavar="S", default=1.0, help="seconds between snapshots (1)"
    )
    parser.add_argument(
        "--settle",
        type=float,
        metavar="S",
        default=LONGEST_S,
        help="before the first event, wait until kswapd sleeps, so that settings have had "
        f"their effect, for S seconds at most ({LONGEST_S:g}); 0: do not wait",
    )
    parser.add_argument(
        "--buffer",
        metavar="SIZE",
        help="ring buffer of each CPU, such as 64M (default: 64M, or less, so that all "
        "buffers take at most 3%% of memory)",
    )
    parser.add_argument("command", nargs="*", metavar="CMD", help="command to run and record")


def run_record(options: argparse.Namespace) -> int:
    """Record and say what came of it."""
    from pagealloc_model.recording.record.host import Host
    from pagealloc_model.recording.record.live_state import LiveState
    from pagealloc_model.recording.record.ownership import calling_user
    from pagealloc_model.recording.record.perf import RecordOptions, parse_size
    from pagealloc_model.recording.record.session import (
        read_back,
        record,
        summary_lines,
    )

    buffer_bytes = parse_size(options.buffer) if options.buffer else None
    if options.python:
        from pagealloc_model.recording.event_files import STORE_FILE
        from pagealloc_model.recording.record.perf_python import live
        from pagealloc_model.recording.trace.store import write_store

        with new_directory(options.output) as unfinished:
            trace = live(options.seconds or 5.0, buffer_bytes=buffer_bytes)
            write_store(trace, unfinished / STORE_FILE, source=None)
        print(f"{options.output}: {count_of(len(trace), 'event')}, {trace.losses.total} lost")
        return 0

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
            buffer_bytes=buffer_bytes,
            settle_s=options.settle,
            read_state=LiveState(host) if options.state else None,
        ),
        host,
        say,
        note,
    )
    note("reading it back")
    content = read_back(recorded.path, calling_user(os.environ, host.user))
    print("\n".join(summary_lines(recorded, content)))
    failed = recorded.command_code and not recorded.ended_by.startswith("SIG")
    return COMMAND_FAILED if failed else 0


def add_snapshot(commands: Commands) -> None:
    """Add `pagealloc snapshot`."""
    parser = add_command(
        commands,
        "snapshot",
        run_snapshot,
        "copy the machine's /proc files only, for a trace made with another tool",
        example="pagealloc snapshot state",
        more="""
        Call it just before tracing, and again (or with --seconds) while and after it: a directory
        that exists gets further snapshots. pagealloc attach joins it with the trace. Needs no perf;
        without root there is no pagetypeinfo and no kpageflags.
        """,
    )
    parser.add_argument("directory", type=Path, metavar="DIR", help="new, or of an earlier call")
    parser.add_argument(
        "--seconds", type=float, metavar="S", default=0.0, help="take snapshots for this long"
    )
    parser.add_argument(
        "--interval", type=float, metavar="S", default=1.0, help="seconds between two (1)"
    )


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


STATE_FILES = ("zoneinfo", "buddyinfo", "pagetypeinfo", "vmstat")


def add_attach(commands: Commands) -> None:
    """Add `pagealloc attach`."""
    parser = add_command(
        commands,
        "attach",
        run_attach,
        "make a recording from a trace and copies of /proc files",
        example="pagealloc attach trace.dat --snapshot state -o recording",
        more="TRACE is any that can be read: perf.data, trace.dat, raw pages or text of ftrace, "
        "perf script\ntext. The recording says what it lacks and what each lack costs. With a "
        "zoneinfo alone, a\nreplay begins at an estimated start, and says so.",
    )
    parser.add_argument("trace", metavar="TRACE", help="the events")
    parser.add_argument(
        "--snapshot",
        type=Path,
        metavar="DIR",
        help="made by pagealloc snapshot, or a directory with copies of the files below",
    )
    parser.add_argument("--zoneinfo", type=Path, metavar="FILE", help="a copy of /proc/zoneinfo")
    parser.add_argument("--buddyinfo", type=Path, metavar="FILE", help="a copy of /proc/buddyinfo")
    parser.add_argument(
        "--pagetypeinfo", type=Path, metavar="FILE", help="a copy of /proc/pagetypeinfo"
    )
    parser.add_argument("--vmstat", type=Path, metavar="FILE", help="a copy of /proc/vmstat")
    parser.add_argument(
        "--read",
        choices=("before", "behind"),
        default="before",
        help="when single copies were made: before the trace (default) or behind it",
    )
    parser.add_argument(
        "--release",
        metavar="RELEASE",
        default="",
        help="the kernel's, where the trace does not name it (uname -r)",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR", required=True, help="directory to create"
    )


def run_attach(options: argparse.Namespace) -> int:
    """Attach and say what is missing."""
    from pagealloc_model.recording.event_files import size_of
    from pagealloc_model.recording.importing import attach_state

    recording = opened(options.trace)
    copies = {name: path for name in STATE_FILES if (path := getattr(options, name)) is not None}
    with progress(f"reading {recording.name}", size_of(recording.event_file), "B") as report:
        done = attach_state(
            options.trace,
            options.output,
            snapshots=options.snapshot,
            files=copies,
            read=options.read,
            release=options.release,
            progress=report,
        )
    events, snapshots = count_of(done.events, "event"), count_of(done.snapshots, "snapshot")
    print(f"{options.output}: {events}, {snapshots}")
    for line in done.lacks:
        print(f"lacks      {line}")
    return 0


def add_import(commands: Commands) -> None:
    """Add `pagealloc import`."""
    parser = add_command(
        commands,
        "import",
        run_import,
        "write a recording as columns, which open at once",
        example="pagealloc import recording -o recording_columns",
        more="""
        DIR becomes a recording like any other, with events.arrow instead of perf.data; a name
        that ends in .arrow becomes the events alone. Recordings larger than memory can be
        imported: working files lie beside the destination until the end.
        """,
    )
    add_recording(parser)
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIR_OR_FILE",
        required=True,
        help="directory to create, or FILE.arrow for the events alone",
    )
    parser.add_argument(
        "--uncompressed",
        dest="compress",
        action="store_false",
        help="write 30 bytes an event, mapped from the file and not unpacked: for "
        "recordings larger than memory, and for many short looks at a long one",
    )
    parser.add_argument(
        "--reader",
        choices=("own", "perf-script", "perf-session"),
        default="own",
        help="read a perf.data through perf's Python: perf script -s, or its module's "
        "perf.session, to check the package's own reader",
    )


def run_import(options: argparse.Namespace) -> int:
    """Import and say what came of it."""
    from pagealloc_model.recording.event_files import size_of
    from pagealloc_model.recording.importing import import_recording

    recording = opened(options.path)
    size = size_of(recording.event_file)
    with progress(f"importing {recording.name}", size, "B") as report:
        done = import_recording(
            recording.path,
            options.output,
            compress=options.compress,
            reader=options.reader,
            progress=report,
        )
    print(
        f"{done.event_file}: {count_of(done.events, 'event')}, {count_of(done.size, 'byte')}, "
        f"{done.size / max(done.events, 1):.1f} an event; "
        f"{recording.event_file.name} had {done.source_size}"
    )
    for name in done.left_out:
        print(f"left out   {name}, which only a directory has room for")
    return 0


def add_export(commands: Commands) -> None:
    """Add `pagealloc export`."""
    parser = add_command(
        commands,
        "export",
        run_export,
        "write a recording's events for other tools",
        example="pagealloc export kbuild --to parquet -o events",
        more="""
        parquet: DIR with events.parquet, one table for each other tracepoint, and losses.parquet,
        which DuckDB, Polars and pandas open. text: FILE as perf script --ns prints it, which
        pagealloc reads again.
        """,
    )
    add_recording(parser)
    parser.add_argument("--to", choices=("parquet", "text"), required=True, help="the format")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIR_OR_FILE",
        required=True,
        help="directory (parquet) or file (text) to create",
    )


def run_export(options: argparse.Namespace) -> int:
    """Export and say what was written."""
    from pagealloc_model.recording.exporting import export_recording

    done = export_recording(opened(options.path), options.output, options.to)
    for name, rows in done.rows.items():
        print(f"{done.path}: {name} {rows}")
    return 0


def add_info(commands: Commands) -> None:
    """Add `pagealloc info`."""
    parser = add_command(
        commands,
        "info",
        run_info,
        "say whether a recording is usable, what it holds and what it lost",
        example="pagealloc info kbuild",
    )
    add_recording(parser)
    parser.add_argument(
        "--full", action="store_true", help="print every check, count of events and rule"
    )
    add_json(parser)


def run_info(options: argparse.Namespace) -> int:
    """Print the description."""
    from pagealloc_model.show.recording_text import describe_recording, recording_text

    recording = opened(options.path)
    if options.json:
        print(json_text(describe_recording(recording)))
        return 0
    print(recording_text(recording, full=options.full))
    if not options.full:
        name = shlex.quote(as_path(options.path))
        print(
            f"\nNext: pagealloc validate {name} says how near the model comes.\n"
            f"pagealloc info {name} --full prints every check, count and rule."
        )
    return 0


def add_trim(commands: Commands) -> None:
    """Add `pagealloc trim`."""
    parser = add_command(
        commands,
        "trim",
        run_trim,
        "copy part of a recording, to keep or to send",
        example="pagealloc trim recording short --seconds 5 --anonymise",
    )
    add_recording(parser)
    parser.add_argument("destination", type=Path, metavar="DST", help="directory to create")
    parser.add_argument(
        "--start", type=float, metavar="S", help="seconds after the first event to start at"
    )
    parser.add_argument("--seconds", type=float, metavar="S", help="seconds to keep")
    parser.add_argument("--most-events", type=int, metavar="N", help="events to keep at most")
    refuse(parser, "--events", "use --most-events N")
    parser.add_argument(
        "--anonymise", action="store_true", help="remove what names the machine or its programs"
    )
    parser.add_argument(
        "--keep-name",
        action="append",
        metavar="NAME",
        default=[],
        help="with --anonymise, leave this command name as it is; may be repeated",
    )
    parser.add_argument(
        "--keep-functions",
        action="store_true",
        help="with --anonymise, keep the names of the kernel's functions in call chains",
    )


def run_trim(options: argparse.Namespace) -> int:
    """Write the copy and say what is in it."""
    from pagealloc_model.recording.trim import trim_recording

    trimmed = trim_recording(
        opened(options.path).path,
        options.destination,
        start_s=options.start,
        seconds=options.seconds,
        events=options.most_events,
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


def add_synth(commands: Commands) -> None:
    """Add `pagealloc synth`."""
    parser = add_command(
        commands,
        "synth",
        run_synth,
        "make up a load on a machine of any size",
        example="pagealloc synth exit -o avalanche --cpus 64 --gib 128 --number pages=4096",
        more="Scenarios: exit (a process per CPU, all exit at once), boot (many short "
        "processes), purgers (many CPUs allocate, few free), churn (workers map, touch "
        "and unmap).",
    )
    parser.add_argument(
        "scenario", choices=("exit", "boot", "purgers", "churn"), metavar="SCENARIO"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", required=True)
    parser.add_argument("--cpus", type=int, metavar="N", default=4, help="CPUs (default 4)")
    parser.add_argument("--gib", type=float, metavar="N", default=4, help="memory (default 4)")
    parser.add_argument("--nodes", type=int, metavar="N", default=1, help="NUMA nodes (default 1)")
    parser.add_argument("--seed", type=int, metavar="N", default=0, help="of random choices")
    parser.add_argument("--rules", metavar="SERIES", help="kernel series (default: the newest)")
    parser.add_argument(
        "--number",
        dest="numbers",
        action="append",
        metavar="NUMBER=VALUE",
        default=[],
        help="a number of the scenario, such as pages=4096; may be repeated",
    )
    refuse(parser, "--set", "use --number NUMBER=VALUE")


def run_synth(options: argparse.Namespace) -> int:
    """Run the scenario, write it, and say how long zone->lock is held."""
    from pagealloc_model.loads.run import run as run_demand
    from pagealloc_model.loads.scenarios import scenario, write_synthetic_recording
    from pagealloc_model.numbers.locks import with_spread
    from pagealloc_model.policy.kernel_rules import preset_names
    from pagealloc_model.show.post.tables import longest_hold_table, spread_table, trylock_line

    rules = options.rules or preset_names()[-1]
    words = [word.partition("=")[::2] for word in options.numbers]
    try:
        numbers = {name: int(value) for name, value in words}
    except ValueError:
        wrong = " ".join(options.numbers)
        raise UsageError(f"--set {wrong}: write NUMBER=VALUE, whole numbers") from None
    demand = scenario(
        options.scenario,
        gib=options.gib,
        nr_cpus=options.cpus,
        nodes=options.nodes,
        rules=rules,
        seed=options.seed,
        **numbers,
    )
    done = run_demand(demand, rules=rules)
    write_synthetic_recording(done, options.output)
    cpus = count_of(demand.machine.nr_cpus, "CPU")
    print(f"{options.output}: {count_of(demand.count, 'event')} on {cpus}")
    for line in demand.lines:
        print(f"scenario   {line}")
    times = done.lock_times()
    print("\nWith the assumed costs; low and high: costs divided and multiplied by 3.16:\n")
    print(longest_hold_table(times))
    print(spread_table(with_spread(times)))
    print(paragraph(trylock_line(times)))
    return 0
