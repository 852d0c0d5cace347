"""pagealloc validate in brief."""

from __future__ import annotations

import pytest

from pagealloc_model.cli import main


def test_validate_in_brief_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "highatomic_gate3", "--brief"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert printed.startswith("highatomic_gate3 (mean of 5 seeds): errors (null model's): ")
    assert " by the null model (no change" in printed
    assert main(["validate", "highatomic_gate3", "--brief", "--json"]) == 2
