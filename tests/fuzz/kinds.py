"""Damage every kind of input that a command accepts, and let the command have it.

Usage: python -m tests.fuzz.kinds [--kind KIND] [--inputs N] [--seconds S] [--seed N] [--checked]

Each kind runs in a process of its own, of bounded memory: an exit code of 0, 1 or 2 and one line
are all that may come of an input. What fails is kept in the directory that --keep names.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import json
import lzma
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import zstandard

from pagealloc_model.cli.main import main as pagealloc
from pagealloc_model.recording.state_file import read_state, write_state
from pagealloc_model.recording.state_instant import STATE_DIRECTORY, STATE_SUFFIX
from tests.fuzz.mutation import cut, damaged
from tests.fuzz.run import CHECKOUT, REAL, bounds_checked
from tests.fuzz.seeds import all_seeds
from tests.recording.test_state_file import small_state
from tests.small_recordings import write_recording

MEMORY = 3 << 30
"""Address space for all that a process does, libraries included."""
LONGEST_S = 20
"""Of the processor; ten times as long on the clock."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
SAMPLES = CHECKOUT / "tests/recording/trace/samples"
REPORTS = CHECKOUT / "tests/recording/reports"
_READS = (("info", "{}"),)
_RECORDING = (
    *(_READS * 12),
    *(("info", "{}", "--full"), ("replay", "{}"), ("validate", "{}")),
    *(("replay", "{}", "--reclaim", "elastic"), ("trim", "{}", "{out}", "--anonymise")),
    *(("export", "{}", "--to", to, "-o", "{out}") for to in ("text", "parquet")),
)


@dataclass(frozen=True)
class Kind:
    """One kind of input.

    Attributes:
        seeds: makes the intact inputs below a directory: files, or recordings' directories.
        damages: pattern of the file in a recording that is damaged; "" for the input itself.
        commands: one of them takes an input; {} stands for it, {out} for a free place.
    """

    seeds: Callable[[Path], list[Path]]
    damages: str = ""
    commands: tuple[tuple[str, ...], ...] = _READS


def _perf(*names: str) -> Callable[[Path], list[Path]]:
    """Seeds of the fuzzer of event files, by name."""

    def make(directory: Path) -> list[Path]:
        contents = all_seeds(directory, REAL)
        return [_file(directory / f"{n} {name}", contents[name]) for n, name in enumerate(names)]

    return make


def _file(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def _samples(pattern: str) -> Callable[[Path], list[Path]]:
    return lambda _: sorted(SAMPLES.glob(pattern))


def _text(directory: Path) -> list[Path]:
    text = gzip.decompress((SAMPLES / "small.trace.txt.gz").read_bytes())
    return [_file(directory / "trace.txt", text)]


def _packed(directory: Path) -> list[Path]:
    dat, text = (SAMPLES / "small.dat").read_bytes(), _text(directory)[0].read_bytes()
    return [
        _file(directory / "a.xz", lzma.compress(dat)),
        _file(directory / "b.zst", zstandard.ZstdCompressor().compress(dat)),
        _file(directory / "c.gz", gzip.compress(dat)),
        _file(directory / "d.xz", lzma.compress(text)),
    ]


def _recording(directory: Path) -> list[Path]:
    return [write_recording(directory / "small")]


def _columns(directory: Path) -> list[Path]:
    made = []
    for more in ((), ("--uncompressed",)):
        target = directory / f"columns{len(more)}"
        (directory / f"of{len(more)}").mkdir()
        (recording,) = _recording(directory / f"of{len(more)}")
        _quietly(("import", str(recording), "-o", str(target), *more))
        made.append(target)
    return made


def _with_state(directory: Path) -> list[Path]:
    (recording,) = _recording(directory)
    (recording / STATE_DIRECTORY).mkdir()
    write_state(recording / STATE_DIRECTORY / f"0{STATE_SUFFIX}", small_state())
    read_state(recording / STATE_DIRECTORY / f"0{STATE_SUFFIX}")
    return [recording]


def _of_snapshot(name: str) -> Kind:
    return Kind(_recording, f"snapshots/*/{name}", _RECORDING)


KINDS = {
    "perf.data": Kind(_perf("file", "real file")),
    "piped perf.data": Kind(_perf("pipe", "real pipe")),
    "compressed perf.data": Kind(
        _perf("file, compressed", "real file, compressed", "pipe, compressed True")
    ),
    "perf script text": Kind(_perf("text")),
    "trace.dat": Kind(_samples("*.dat")),
    "trace text": Kind(_text),
    "gz, xz, zst": Kind(_packed),
    "columns": Kind(_columns, "events.arrow", _RECORDING),
    "zoneinfo": _of_snapshot("zoneinfo"),
    "pagetypeinfo": _of_snapshot("pagetypeinfo"),
    "buddyinfo": _of_snapshot("buddyinfo"),
    "vmstat": _of_snapshot("vmstat"),
    "meta.json": Kind(_recording, "meta.json", _RECORDING),
    "kpageflags": Kind(_recording, "kpageflags.u64.gz", _RECORDING),
    "state file": Kind(_with_state, f"{STATE_DIRECTORY}/*", _RECORDING),
    "kernel log": Kind(lambda _: sorted(REPORTS.glob("*.txt")), "", (("explain", "{}"),)),
}


class Hung(BaseException):
    """An input took too long; no handler of the package's may catch it."""


def _hung(_signal: int, _frame: FrameType | None) -> None:
    raise Hung


def _quietly(words: tuple[str, ...]) -> tuple[int, str, str]:
    """A command's exit code and what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = pagealloc(list(words))
        except SystemExit as ended:
            code = int(ended.code or 0)
    return code, out.getvalue(), err.getvalue()


def wrong_with(words: tuple[str, ...]) -> tuple[str, str]:
    """What came of a command, and what is wrong with that; "" if nothing is."""
    signal.setitimer(signal.ITIMER_PROF, LONGEST_S)
    signal.alarm(10 * LONGEST_S)
    try:
        code, out, err = _quietly(words)
    except Hung:
        return "hung", f"longer than {LONGEST_S} s"
    except MemoryError:
        return "memory", "".join(traceback.format_exc().splitlines(keepends=True)[-6:])
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(last.filename).name}:{last.lineno} {type(error).__name__}"
        return place, "".join(traceback.format_exception(error)[-6:])
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
    if code not in (0, 1, 2):
        return f"exit code {code}", err[-2000:]
    if found := _CONTROL.search(out + err):
        return "control character", repr((out + err)[max(found.start() - 200, 0) :][:300])
    lines = [line for line in err.splitlines() if line]
    if code == 2 and not (lines and lines[-1].startswith("pagealloc: ")):
        return "no line", err[-2000:]
    return f"exit code {code}", ""


def fuzz_kind(
    name: str, *, inputs: int, seconds: float, seed: int, keep: Path
) -> dict[str, object]:
    """Damage so many inputs of a kind, for so long at most; the counts of what came of them."""
    kind, dice = KINDS[name], random.Random(f"{seed} {name}")
    directory = Path(tempfile.mkdtemp(prefix="work-", dir=keep))
    (directory / "seeds").mkdir()
    seeds = kind.seeds(directory / "seeds")
    for words in kind.commands:  # libraries are loaded before memory is bounded
        _quietly(_filled(words, seeds[0], directory / "out"))
        _remove(directory / "out")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    came: Counter[str] = Counter()
    failures: dict[str, str] = {}
    begun, done = time.monotonic(), 0
    while done < inputs and time.monotonic() - begun < seconds:
        sound, place = dice.choice(seeds), directory / "input"
        _remove(place)
        if sound.is_dir():
            shutil.copytree(sound, place)
        else:
            shutil.copy(sound, place)
        file = dice.choice(sorted(place.glob(kind.damages))) if kind.damages else place
        content = file.read_bytes()
        is_cut = dice.random() < 0.1
        file.chmod(0o600)
        file.write_bytes(cut(content, dice) if is_cut else damaged(content, [content], dice))
        words = _filled(dice.choice(kind.commands), place, directory / "out")
        what, wrong = wrong_with(words)
        _remove(directory / "out")
        came[what] += 1
        done += 1
        if wrong and what not in failures:
            failures[what] = f"{' '.join(words)}\n{wrong}"
            kept = keep / f"{name} {len(failures)}".replace(" ", "-")
            _remove(kept)
            shutil.move(place, kept)
    shutil.rmtree(directory)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return {
        "kind": name,
        "inputs": done,
        "seconds": round(time.monotonic() - begun, 1),
        "peak_mib": peak,
        "came": dict(came.most_common()),
        "failures": failures,
    }


def _filled(words: tuple[str, ...], path: Path, out: Path) -> tuple[str, ...]:
    return tuple(word.replace("{out}", str(out)).replace("{}", str(path)) for word in words)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)


def in_processes(
    kinds: list[str], *, inputs: int, seconds: float, seed: int, keep: Path, checked: bool
) -> list[dict[str, object]]:
    """The reports of all kinds, each from a process of its own."""
    reports = []
    for name in kinds:
        command = [sys.executable, "-m", "tests.fuzz.kinds", "--here", "--kind", name]
        command += ["--inputs", str(inputs), "--seconds", str(seconds), "--seed", str(seed)]
        done = subprocess.run(
            [*command, "--keep", str(keep)],
            env={**os.environ, **(bounds_checked() if checked else {})},
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            died = f"exit code {done.returncode} on {keep}/work-*/input: {done.stderr[-2000:]}"
            reports.append({"kind": name, "inputs": 0, "came": {}, "failures": {"died": died}})
        else:
            reports.append(json.loads(done.stdout.splitlines()[-1]))
    return reports


def main() -> None:
    parser = argparse.ArgumentParser(description="damage every kind of input")
    parser.add_argument("--kind", choices=list(KINDS), help="only this one")
    parser.add_argument("--inputs", type=int, default=1000, help="of each kind, at most")
    parser.add_argument("--seconds", type=float, default=3600, help="for each kind, at most")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--checked", action="store_true", help="kernels check every index")
    parser.add_argument("--keep", type=Path, help="directory for inputs that fail")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    keep = options.keep or Path(tempfile.mkdtemp(prefix="pagealloc-fuzz-"))
    keep.mkdir(exist_ok=True)
    limits = {"inputs": options.inputs, "seconds": options.seconds, "seed": options.seed}
    if options.here:
        for timer in (signal.SIGALRM, signal.SIGPROF):
            signal.signal(timer, _hung)
        warnings.simplefilter("ignore")
        print("\n" + json.dumps(fuzz_kind(options.kind, **limits, keep=keep)))
        return
    print(f"seed {options.seed}, what fails is kept in {keep}", flush=True)
    failed = False
    for name in [options.kind] if options.kind else KINDS:
        (report,) = in_processes([name], **limits, keep=keep, checked=options.checked)
        print(json.dumps(report, indent=2), flush=True)
        failed |= bool(report["failures"])
    sys.exit(failed)


if __name__ == "__main__":
    main()
