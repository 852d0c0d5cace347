"""The quick part of the golden results: `make golden` compares all of them."""

from __future__ import annotations

import pytest

from tests.golden.__main__ import main
from tests.golden.expected_results import differences
from tests.golden.parts import alone, outcomes


def test_quick_results_are_as_committed(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--quick", "-j", "1"])
    assert code == 0, capsys.readouterr().out


def test_a_case_knows_nothing_of_those_before_it() -> None:
    case = "sweep mixed_6.1 --vary pcp_batch=15,63 --reclaim literal"
    with alone():
        (first,) = outcomes("commands", [case]).values()
        assert outcomes("commands", [case])[case] == first
    assert first["text"].startswith("2 points, 0 of them known, 0 failed")


def test_a_difference_is_named() -> None:
    expected = {"log": "00ff", "text": "free 1\nused 2\n"}
    assert list(differences(expected, expected)) == []
    found = list(differences(expected, {"log": "00fe", "text": "free 1\nused 3\n"}))
    assert found[0] == "log differs: 00ff expected, 00fe found"
    assert found[1] == "text differs" and "    +used 3" in found
    assert list(differences(expected, {"text": expected["text"]})) == ["log: is gone"]
    assert len(list(differences(None, expected))) == 1
