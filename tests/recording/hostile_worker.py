"""Run every hostile input in one process of at most 2 GiB, and print what came of each as JSON."""

from __future__ import annotations

import contextlib
import io
import json
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from types import FrameType

from tests.recording.hostile_inputs import GIB, HOSTILE_INPUTS, Hostile
from tests.small_recordings import write_recording

MEMORY = 2 * GIB
"""Address space that everything this process does must fit into, libraries included."""
LONGEST_S = 300
"""Seconds after which an input counts as one that never ends, on a machine however loaded."""


class Hung(BaseException):
    """An input took too long; no handler of the package's may catch it."""


def _hung(_signal: int, _frame: FrameType | None) -> None:
    raise Hung


def _run(words: list[str]) -> int:
    from pagealloc_model.base.errors import PageallocError
    from pagealloc_model.cli.main import main

    if words[0] != "window":
        return main(words)
    import pagealloc_model as pm

    try:
        pm.replay(pm.open(words[1]), window=(float(words[2]), float(words[3])))
    except PageallocError as error:
        print(f"pagealloc: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def came_of(hostile: Hostile, sound: Path, directory: Path) -> dict[str, object]:
    """Exit code, what was printed, and the processor seconds that it took."""
    recording = directory / "recording"
    shutil.copytree(sound, recording)
    hostile.damage(recording)
    tmp = str(directory / "out")
    words = [w.replace("{tmp}", tmp).replace("{}", str(recording)) for w in hostile.command]
    out, err = io.StringIO(), io.StringIO()
    before = time.process_time()
    code: int | str = "traceback"
    signal.alarm(LONGEST_S)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = _run(words)
    except Hung:
        code = "hung"
    except SystemExit as ended:
        code = str(ended.code)
    except Exception:
        traceback.print_exc(file=err)
    finally:
        signal.alarm(0)
    seconds = time.process_time() - before
    printed = {"out": out.getvalue()[-4000:], "err": err.getvalue()[-4000:]}
    return {"name": hostile.name, "code": code, **printed, "seconds": seconds}


def main() -> None:
    """Take the inputs one after the other; each has a directory of its own."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, _hung)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="pagealloc-hostile-") as directory:
        sound = write_recording(Path(directory) / "small")
        _run(["replay", str(sound)])
        for number, hostile in enumerate(HOSTILE_INPUTS):
            place = Path(directory) / str(number)
            place.mkdir()
            print("\n" + json.dumps(came_of(hostile, sound, place)), flush=True)
            shutil.rmtree(place)


if __name__ == "__main__":
    main()
