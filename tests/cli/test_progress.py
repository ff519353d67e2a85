"""What is said on the way where there is no terminal, and the order of the help."""

import time

import pytest

from t2iprobe.cli.main import main
from t2iprobe.runs import progress


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.strip().splitlines()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The present, in seconds, as the bar sees it; pytest's stderr is no terminal."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress, "console", progress.Console(stderr=True))
    return now


def test_without_a_terminal_a_line_comes_every_half_minute_and_at_the_end(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    """10 of 30 were there before: 12 more in 40 s are 0.3 a second, and the last 8 take 27 s."""
    with progress.bar("generate", 30, "images", done=10) as shown:
        clock[0] += 20
        shown.advance(6)
        clock[0] += 20
        shown.advance(6)
        clock[0] += 10
        shown.advance(8)
    assert said(capsys) == [
        "generate: 22 of 30 images, 0.3 images/s, about 27 s left",
        "generate: 30 of 30 images, 50 s",
    ]


def test_what_ends_with_an_error_or_did_nothing_says_no_end(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match="broken"), progress.bar("score", 3, "images"):
        raise ValueError("broken")
    with progress.bar("score", 3, "images", done=2):
        pass
    assert said(capsys) == []


def test_a_long_wait_is_said_and_a_short_one_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "console", progress.Console(stderr=True))
    with progress.waiting("loading x"):
        pass
    assert said(capsys) == []
    monkeypatch.setattr(progress, "EVERY", 0.02)
    with progress.waiting("loading [x]"):
        time.sleep(0.3)
    lines = said(capsys)
    assert lines
    assert set(lines) == {"loading [x]: 0 s so far"}
    time.sleep(0.1)
    assert said(capsys) == []


def test_help_begins_with_what_is_used_most(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    text = capsys.readouterr().out
    order = [
        "--model",
        "--family",
        "--tasks",
        "--seeds",
        "--out",
        "--budget",
        "--sites",
        "--steps",
        "--vae-tiling",
    ]
    examples, _, options = text.partition(" options ")
    places = [
        options.index(f" {option} ") if option != order[-1] else options.index(option)
        for option in order
    ]
    assert places == sorted(places)
    assert "t2iprobe run --tasks 64" in examples
