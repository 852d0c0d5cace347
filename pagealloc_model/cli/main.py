"""Entry of the `pagealloc` command: arguments, exit codes, and errors in one line."""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from typing import NoReturn

from pagealloc_model.base.errors import PageallocError, known_names
from pagealloc_model.base.text import CleanedStream
from pagealloc_model.base.version import __version__
from pagealloc_model.cli import (
    experiment,
    explain,
    pages,
    post,
    predictions,
    recordings,
    stalls,
    sweeps,
    validation,
)

UNUSABLE = 2
INTERRUPTED = 130
PIPE_CLOSED = 141
SELDOM = 200_000
"""Objects made since the last search for garbage, less those freed, before the next one."""

COMMANDS = (
    recordings.add_doctor,
    recordings.add_record,
    recordings.add_snapshot,
    recordings.add_attach,
    recordings.add_import,
    recordings.add_export,
    recordings.add_info,
    explain.add_explain,
    recordings.add_trim,
    recordings.add_synth,
    validation.add_validate,
    predictions.add_replay,
    predictions.add_compare,
    predictions.add_locks,
    predictions.add_stacks,
    stalls.add_stalls,
    validation.add_judge,
    sweeps.add_sweep,
    sweeps.add_fleet,
    experiment.add_experiment,
    post.add_post,
    pages.add_explore,
    pages.add_notebook,
    pages.add_lab,
    pages.add_bench,
)
"""What adds each command, in the order of `pagealloc --help`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line, by default the process's.

    Returns:
        The exit code: 0 done, 1 a check did not hold, 2 wrong usage or unusable input.
    """
    if arguments is None:
        signal.signal(signal.SIGTERM, _terminated)
    options = _parsed(sys.argv[1:] if arguments is None else arguments)
    gc.set_threshold(SELDOM, *gc.get_threshold()[1:])
    with ExitStack() as streams:
        # Names in a recording are a stranger's; nothing else prints.
        if sys.stdout is not None:
            streams.enter_context(redirect_stdout(CleanedStream(sys.stdout)))  # type: ignore[type-var]
        if sys.stderr is not None:
            shown = CleanedStream(sys.stderr, carriage_return=True)
            streams.enter_context(redirect_stderr(shown))  # type: ignore[type-var]
        return _run(options)


def _terminated(number: int, _: object) -> NoReturn:
    """End as an error does, so that what is half written goes."""
    raise SystemExit(128 + number)


def _run(options: argparse.Namespace) -> int:
    """Run a command; every error that its input can cause is one line."""
    try:
        code = options.run(options)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except PageallocError as error:
        return _complain(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _complain("interrupted", INTERRUPTED)
    except (MemoryError, RecursionError) as error:
        what = "the input is nested too deep"
        if isinstance(error, MemoryError):
            what = "there is not enough memory; ask for less, or cut the recording (pagealloc trim)"
        return _complain(f"{options.parser.prog}: {what}", UNUSABLE)
    except UnicodeError as error:
        return _complain(f"a name or text that is not UTF-8: {error}", UNUSABLE)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _complain(f"{where}{error.strerror or error}", UNUSABLE)


def _parsed(words: Sequence[str]) -> argparse.Namespace:
    """Options of a command line; ends the process where a word is of no use."""
    parser = build_parser()
    first = next((word for word in words if not word.startswith("-")), None)
    if first is not None and first not in parser.commands:
        parser.error(f"no command {first!r}; {known_names(first, parser.commands, 'commands')}")
    options, unknown = parser.parse_known_args(words)
    if unknown:
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return options


class OneLineParser(argparse.ArgumentParser):
    """A parser that says what is wrong in one line, as all errors are said."""

    commands: tuple[str, ...] = ()

    def error(self, message: str) -> NoReturn:
        """End the process."""
        self.exit(UNUSABLE, f"{self.prog}: {message}; see {self.prog} --help\n")


def build_parser() -> OneLineParser:
    """The parser of all commands; nothing heavy is imported for it."""
    parser = OneLineParser(
        prog="pagealloc",
        description="A model of the Linux page allocator, driven and checked by recordings.",
        epilog="pagealloc COMMAND --help shows a command's options and an example.",
    )
    parser.add_argument("--version", action="version", version=f"pagealloc_model {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for add in COMMANDS:
        add(commands)
    parser.commands = tuple(commands.choices)
    return parser


def _complain(line: str, code: int) -> int:
    print(f"pagealloc: {' '.join(line.split())}", file=sys.stderr)
    return code
