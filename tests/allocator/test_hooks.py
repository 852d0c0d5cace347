"""Functions of one's own in place of the model's decisions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from pagealloc_model.notebooks.studies.others.replay_agreement import hooks_and_policy_text

import pagealloc_model as pm
from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.events import advance
from pagealloc_model.allocator.hooks import are_compiled
from tests.small_recordings import shipped_recording, write_recording

PROGRAM = """
import sys
from pathlib import Path
import numpy as np
import pagealloc_model as pm
from pagealloc_model.allocator.events import advance
from pagealloc_model.allocator.hooks import advance_with

recording = pm.open(Path(sys.argv[1]))
unchanged = pm.Hooks(
    refill=lambda objects, order, count, high, batch: objects,
    drain=lambda pages, order, count, high, batch: pages,
    reserve=lambda order, reserved, managed: True,
    fallback=lambda type, order, migratetype: type,
)
single = pm.Hooks(refill=lambda objects, order, count, high, batch: 1)
for reclaim in ("elastic", "literal"):
    own = pm.Assumptions(reclaim=reclaim)
    plain, same, singly = (
        pm.replay(recording, assumptions=own, hooks=hooks) for hooks in (None, unchanged, single)
    )
    assert np.array_equal(same.places, plain.places) and np.array_equal(same.log, plain.log)
    assert same.vmstat.equals(plain.vmstat)
    assert same.hooks == ("reserve", "refill", "drain", "fallback")
    refills = singly.log[singly.log["kind"] == 0]
    assert len(refills) and (refills["objects"] <= 1).all(), refills
assert "hooks: none -> refill" in pm.compare(plain, singly).to_text(width=200)
again = pm.replay(recording)
assert np.array_equal(again.log, plain.log), "the model's own kernels are as they were"
import pagealloc_model.allocator.events
assert pagealloc_model.allocator.events.advance is advance
most = 1
limited = pm.Hooks(refill=lambda objects, order, count, high, batch: most)
first = advance_with(limited)
assert advance_with(limited) is first
most = 2
assert advance_with(limited) is not first, "numba compiles values of globals in"
"""


def test_hooks_decide_and_leave_the_model_s_kernels_alone(tmp_path: Path) -> None:
    """Uncompiled, as numba runs it too: compiling with hooks takes a minute."""
    recording = write_recording(tmp_path / "small")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(recording)],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_kernel_build_takes_no_hooks(tmp_path: Path) -> None:
    (tmp_path / "mm").mkdir()
    (tmp_path / "mm" / "page_alloc.c").write_text("")
    recording = pm.open(write_recording(tmp_path / "small"))
    with pytest.raises(pm.UsageError, match="change its source"):
        pm.replay(recording, pm.KernelBuild(tmp_path), hooks=pm.Hooks())


def test_hooks_that_were_never_compiled_are_left_out_where_that_takes_too_long(
    tmp_path: Path,
) -> None:
    hooks = pm.Hooks(reserve=lambda order, reserved, managed: order * 7919 > reserved)
    assert not are_compiled(hooks)
    recording = pm.open(write_recording(tmp_path / "small"))
    said = hooks_and_policy_text(recording, hooks, pm.Policy(), compiles=False)
    assert said.startswith("skipped: not compiled yet")


@pytest.mark.long
@pytest.mark.parametrize("reclaim", ["literal", "elastic"])
def test_the_order_gate_as_a_hook_is_the_policy_of_that_name(reclaim: str) -> None:
    recording = shipped_recording("highatomic_stock")
    own = pm.Assumptions(reclaim=reclaim)
    gate = pm.replay(recording, pm.Policy(highatomic_gate_order=3), assumptions=own)
    hooks = pm.Hooks(reserve=lambda order, reserved, managed: order > 3)
    hooked = pm.replay(recording, hooks=hooks, assumptions=own)
    assert np.array_equal(hooked.places, gate.places)
    assert np.array_equal(hooked.log, gate.log)
    assert not (gate.log["kind"] == at.SITE_RESERVE).any()
    assert callable(advance)
    assert reclaim == "elastic" or are_compiled(hooks), "the next process need not compile"
