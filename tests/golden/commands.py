"""Part `commands`: exit code, text and files of each command line that needs no root or browser."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from pagealloc_model.cli.main import main
from tests.golden.digests import CHECKOUT, hash_of_bytes, hash_of_table, normal_text
from tests.golden.replays import shipped_names

SMALL = "mixed_6.1"
SNAPSHOT = "data/kbuild/snapshots/00000009726473758541"
MADE_ANEW = ["model", "version", "seconds", "finished", "key"]
"""Columns of a sweep's table that say who made a row and when."""
FILE_HASH = re.compile(r"\b[0-9a-f]{64}\b")
COMMANDS = (
    *("--help", "no_such_command", "info no_such_recording"),
    *(f"{command} --help" for command in ("replay", "validate", "compare", "sweep", "post")),
    *(f"{command} --help" for command in ("locks", "stacks", "fleet", "synth", "trim", "judge")),
    *(f"{command} --help" for command in ("experiment", "record", "snapshot", "attach", "bench")),
    *(f"{command} --help" for command in ("import", "export", "info", "explore", "notebook")),
    *(f"{command} --help" for command in ("doctor", "lab", "explain", "stalls")),
    "explain defrag_7.3 --order 9",
    "explain highatomic_stock --order 9 --gfp GFP_ATOMIC --json",
    f"replay {SMALL}",
    f"replay {SMALL} --json",
    f"replay {SMALL} --reclaim literal",
    "compare highatomic_stock --patch highatomic_gate_order=3 --reclaim literal",
    "compare kbuild xfree --patch pcp_batch=127 --reclaim literal --json",
    "post kbuild xfree --patch pcp_batch=127 --reclaim literal",
    "locks xfree --patch pcp_free_batched=true --reclaim literal",
    f"replay {SMALL} --set pcp_batch=127 -o out",
    "replay highatomic_stock --set highatomic_gate_order=3",
    "replay kbuild --set no_such_field=1",
    "replay kbuild --set pcp_batch=100000",
    "replay kbuild --rules 6.12 --json",
    "replay kbuild --rules evidence",
    "replay defrag_7.3 --set defrag_mode=1",
    f"validate {SMALL} --resync",
    "validate defrag_7.3 --resync",
    "validate highatomic_gate3 --resync --misses",
    "validate highatomic_gate3 --resync --json",
    f"validate {SMALL} --budget",
    "validate highatomic_gate3 --budget --json",
    "validate kbuild --brief",
    "validate xfree --rules evidence",
    "compare highatomic_stock --patch highatomic_gate_order=3",
    "compare highatomic_stock --patch highatomic_gate_order=3 --format mmtests",
    "compare highatomic_stock --patch highatomic_gate_order=3 --format csv",
    "compare highatomic_stock --patch highatomic_gate_order=3 --json",
    "compare kbuild xfree --patch pcp_batch=127",
    "compare kbuild --patch pcp_batch=15 --full",
    "info build_stacks --full",
    "compare kbuild xfree --patch pcp_free_batched=1 --format mmtests",
    "compare kbuild --patch pageblock_ownership=pcp_buddy --json",
    "compare defrag_7.3 --base defrag_mode=0 --patch defrag_mode=1",
    "post highatomic_stock --patch highatomic_gate_order=3",
    "post kbuild xfree --patch pcp_batch=127 --full --style mmtests",
    "post kbuild --patch pcp_batch=127 --format md --utf8",
    f"post {SMALL} --patch pcp_batch=127 --seeds 2 --no-validation",
    "post --reply highatomic",
    "post --reply defrag_mode",
    "post defrag_7.3 --patch defrag_mode=1 --no-validation",
    "post highatomic_stock --patch min_free_kbytes=90112",
    "post highatomic_stock --patch min_free_kbytes=90112 --full",
    "locks xfree",
    "locks xfree --patch pcp_free_batched=true",
    "locks xfree --patch pcp_free_batched=true --full",
    "locks xfree --patch pcp_free_batched=true --json",
    f"locks {SMALL} --csv",
    f"sweep {SMALL} --vary pcp_batch=15,63 --vary costly_order=1:3:2",
    f"sweep {SMALL} --vary highatomic_gate_order=none,3 --json -o out.parquet",
    f"sweep {SMALL} --vary pcp_batch=15,63 --vary costly_order=1,3 --one-at-a-time",
    f"sweep {SMALL} --vary pcp_batch=15:255:16 --points 3 --seeds 2",
    f"sweep {SMALL} --vary pcp_batch=15,63 --sensitivity refill_acquisitions",
    f"sweep {SMALL} --vary pcp_batch=15,63 --pareto refill_acquisitions,drain_acquisitions",
    "fleet --base-hosts kbuild xfree --patch-hosts kbuild xfree --patch pcp_batch=127",
    "synth exit -o out --cpus 2 --gib 1 --number pages=1024",
    "synth boot -o out --cpus 2 --gib 1",
    "synth purgers -o out --cpus 2 --gib 1",
    "synth churn -o out --cpus 2 --gib 1 --seed 3",
    "stacks kbuild",
    "stacks build_stacks --of holds --patch pcp_batch=127",
    "stacks build_stacks -o out.folded",
    f"export {SMALL} --to text -o out.txt",
    f"export {SMALL} --to parquet -o out",
    f"import {SMALL} -o out",
    f"trim {SMALL} out --most-events 20000 --anonymise",
    "trim kbuild out --start 1 --seconds 1",
    f"attach CHECKOUT/data/{SMALL}/perf.data -o out",
    f"attach CHECKOUT/data/kbuild/perf.data --snapshot CHECKOUT/{SNAPSHOT} -o out",
    f"attach CHECKOUT/data/kbuild/perf.data --zoneinfo CHECKOUT/{SNAPSHOT}/zoneinfo -o out",
    "experiment two_settings -o out --sides",
    "experiment matrix -o out --sides --json",
)
FOLLOWED = {
    "trim": "info out",
    "import": "replay out --json",
    "attach": "info out",
    "synth": "replay out --json",
}
"""What is called on the files of a command afterwards, by its first word."""
TEXT_FILES = (".csv", ".txt", ".md", ".json", ".toml", ".folded")


def cases(full: bool) -> Iterator[str]:
    """Command lines, words after `pagealloc`."""
    for name in shipped_names():
        yield f"info {name}"
        yield f"info {name} --json"
        yield f"validate {name}"
        yield f"validate {name} --json"
    yield from COMMANDS


QUICK_CASES = [
    f"info {SMALL}",
    f"validate {SMALL}",
    f"validate {SMALL} --json",
    "compare highatomic_stock --patch highatomic_gate_order=3",
    "compare highatomic_stock --patch highatomic_gate_order=3 --json",
]
"""The texts that `make test` looks at."""


def run(case: str) -> dict[str, str]:
    """The exit code, what was printed, and a text or hash for each file that was written."""
    with tempfile.TemporaryDirectory(prefix="golden-") as made, contextlib.chdir(made):
        folder = Path(made)
        found = _called(case, folder)
        follower = FOLLOWED.get(case.split(" ")[0])
        if follower and "--help" not in case:
            after = _called(follower, folder)
            found |= {
                f"then {follower}: {name}": FILE_HASH.sub("SHA256", text)
                for name, text in after.items()
            }
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                found[f"file {path.relative_to(folder)}"] = _file(path, folder)
        return found


def _called(line: str, folder: Path) -> dict[str, str]:
    printed, complained = io.StringIO(), io.StringIO()
    words = shlex.split(line.replace("CHECKOUT", str(CHECKOUT)))
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(complained):
        try:
            code = main(words)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
    texts = {"text": printed.getvalue(), "stderr": complained.getvalue()}
    return {"exit": str(code)} | {
        name: normal_text(text, folder) for name, text in texts.items() if text
    }


def _file(path: Path, folder: Path) -> str:
    if path.suffix == ".parquet":
        return hash_of_table(pd.read_parquet(path).drop(columns=MADE_ANEW, errors="ignore"))
    if path.suffix in TEXT_FILES:
        return hash_of_bytes(normal_text(path.read_text(), folder).encode())
    return "written"
