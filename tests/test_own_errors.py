"""A mistake of ours inside a call of a pipeline shows itself; it never becomes a fault of the user's checkpoint."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from t2iprobe.cli.main import main
from t2iprobe.errors import SiteError
from t2iprobe.models.foreign import ForeignError, foreign
from t2iprobe.models.hooks import HookSet, StopCall


def broken(*_: Any, **__: Any) -> Any:
    return no_such_name  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize("command", ["inspect", "doctor", "run"])
@pytest.mark.parametrize(
    "function",
    ["t2iprobe.calibration.observe.fingerprint", "t2iprobe.calibration.calibrate.rehearse"],
)
def test_a_name_error_of_ours_is_a_name_error(
    tiny_folder: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    function: str,
) -> None:
    monkeypatch.setattr(function, broken)
    arguments = {
        "inspect": ["inspect", str(tiny_folder("sd15")), "--trial"],
        "doctor": ["doctor", str(tiny_folder("sd15"))],
        "run": ["run", "--model", str(tiny_folder("sd15")), "--out", str(tmp_path / "run")],
    }
    with pytest.raises(NameError, match="no_such_name"):
        main(arguments[command])


def test_a_name_error_in_a_hook_of_a_run(
    tiny_folder: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("t2iprobe.activations.denoiser_watch.pick", broken)
    run = ["run", "--model", str(tiny_folder("sd15")), "--family", "shapes-single", "--tasks", "48"]
    with pytest.raises(NameError, match="no_such_name"):
        main([*run, "--out", str(tmp_path / "run")])


def test_an_error_of_a_hook_outlives_the_error_that_it_leads_to() -> None:
    import torch

    module = torch.nn.Linear(2, 2)
    with pytest.raises(NameError), HookSet() as hooks:
        hooks.before(module, broken)
        with foreign("Linear(...)"):
            module(torch.zeros(3, 3))


def test_foreign_code_that_fails_is_named_with_its_first_line() -> None:
    with (
        pytest.raises(ForeignError, match=r"^pipe\(...\) failed: no such layer$") as caught,
        foreign("pipe(...)"),
    ):
        raise ValueError("no such layer.\nmore")
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize("error", [SiteError("ours"), StopCall(), KeyboardInterrupt()])
def test_what_is_no_foreign_error_passes(error: BaseException) -> None:
    with pytest.raises(type(error)), foreign("pipe(...)"):
        raise error
