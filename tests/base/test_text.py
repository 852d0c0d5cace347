"""Texts are only read: no recording moves a terminal's cursor or title, and nouns agree."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from pagealloc_model.base.text import CleanedStream, cleaned, count_of, number, percent, times
from pagealloc_model.cli.main import main
from tests.small_recordings import write_recording


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("a\tb\nc", "a\tb\nc"),
        ("\x1b]0;title\x07", "?]0;title?"),
        ("\x9b31m", "?31m"),
        ("a\rb", "a?b"),
        ("\u202egpj.exe", "?gpj.exe"),
        ("\ud800", "?"),
        ("é→ü", "é→ü"),
    ],
)
def test_a_text_is_only_read(text: str, shown: str) -> None:
    assert cleaned(text) == shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (count_of(0, "event"), "0 events"),
        (count_of(1, "event"), "1 event"),
        (count_of(12345, "event"), "12,345 events"),
        (count_of(1, "miss", "misses"), "1 miss"),
        (count_of(2, "event was", "events were"), "2 events were"),
        (number(26968.5), "26968"),
        (number(269.685), "269.69"),
        (percent(-0.25), "-25.0%"),
        (percent(6575.435), "6,576 x"),
        (times(3.54), "3.5 x"),
    ],
)
def test_nouns_agree_with_their_counts(words: str, said: str) -> None:
    assert words == said


def test_a_bar_of_progress_may_return() -> None:
    stream = io.StringIO()
    CleanedStream(stream, carriage_return=True).write("\r50%\x1b[A")
    assert stream.getvalue() == "\r50%?[A"


def test_a_name_with_escapes_is_printed_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = write_recording(tmp_path / "\x1b[31mred")
    assert main(["info", str(recording)]) == 0
    printed = capsys.readouterr()
    assert "\x1b" not in printed.out + printed.err
    assert "red" in printed.out


@pytest.mark.parametrize("error", [MemoryError(), RecursionError(), UnicodeError("x")])
def test_what_no_reader_expects_is_one_line(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("pagealloc_model.recording.recording.open_recording", fail)
    assert main(["info", "kbuild"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("pagealloc: ")
    assert said.count("\n") == 1


def test_a_closed_output_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    recording = write_recording(tmp_path / "small")
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["info", str(recording)]) == 0
