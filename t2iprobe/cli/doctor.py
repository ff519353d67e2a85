"""`t2iprobe doctor MODEL`."""

from dataclasses import dataclass

from t2iprobe.cli.parsing import parse
from t2iprobe.runs.config import OneModel

DESCRIPTION = """\
Check that a model is read rightly: images equal with and without capture, batches equal to singles, one seed giving
one image, conditional rows identified, no NaN or black frames, nothing left behind. Exit code 1 when a check fails.

  t2iprobe doctor shapes-mmdit
  t2iprobe doctor stabilityai/stable-diffusion-3.5-medium --dtype bf16"""


@dataclass(frozen=True)
class DoctorConfig(OneModel):
    """Which model to check, and how it is loaded."""


def main(arguments: list[str]) -> int:
    """Print each check as it is done."""
    config = parse(DoctorConfig, arguments, "doctor", DESCRIPTION)
    from rich.console import Console
    from rich.markup import escape

    from t2iprobe.activations.plan import calibrated
    from t2iprobe.checks.doctor import diagnose
    from t2iprobe.checks.ignored_settings import ignored_settings
    from t2iprobe.models.loading import load_model

    console = Console(highlight=False)
    failed = 0
    model = load_model(config.model, config)
    for check in diagnose(model):
        failed += not check.ok
        mark = "[green]pass[/]" if check.ok else "[red]FAIL[/]"
        console.print(f"{mark}  {escape(check.name)}: {escape(check.sentence)}", soft_wrap=True)
    found = calibrated(model)
    for note in (*found.notes, *ignored_settings(model, found)):
        console.print(f"note  {escape(note)}", soft_wrap=True)
    return 1 if failed else 0
