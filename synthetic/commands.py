"""`t2iprobe synthetic train|sweep|list|report`."""

from typing import TYPE_CHECKING, Any

from t2iprobe.errors import ConfigError, unknown

if TYPE_CHECKING:
    from collections.abc import Callable

DESCRIPTIONS = {
    "train": "Train one student on a synthetic task family, score it on held-out combinations, probe its layers.",
    "sweep": "Run a named experiment, e.g. `t2iprobe synthetic sweep law --out runs/law`: many students, one table, one"
    " figure, one report.",
    "list": "Show every task family, encoding, support, student, recipe and sweep.",
    "report": "Write report.html of a finished run or sweep again, e.g. `t2iprobe synthetic report runs/law`.",
}

USAGE = """\
usage: t2iprobe synthetic COMMAND [options]

The paper's synthetic experiments: do networks compose what they learn, and can it be read from them?

commands:
{commands}

examples:
  t2iprobe synthetic train --modules 16 --hot 3 --recipe paper --steps 5000 --seed 1 --out runs/ht
  t2iprobe synthetic sweep encodings --size cpu --out runs/encodings

`t2iprobe synthetic COMMAND --help` explains a command."""


def main(argv: list[str]) -> int:
    """Run one synthetic command; its exit code.

    Raises:
        T2IProbeError: anything the user has to change; the caller prints it and exits with 2.
    """
    if not argv or argv[0] in ("-h", "--help", "help"):
        width = max(map(len, DESCRIPTIONS))
        print(
            USAGE.format(
                commands="\n".join(
                    f"  {name:<{width}}  {text}" for name, text in DESCRIPTIONS.items()
                )
            )
        )
        return 0
    commands: dict[str, Callable[[list[str]], int]] = {
        "train": _train,
        "sweep": _sweep,
        "list": _list,
        "report": _report,
    }
    if argv[0] not in commands:
        raise ConfigError(unknown("synthetic command", argv[0], commands))
    return commands[argv[0]](argv[1:])


def _parse(cls: type[Any], argv: list[str], name: str) -> Any:
    from t2iprobe.cli.parsing import parse

    return parse(cls, argv, f"synthetic {name}", DESCRIPTIONS[name])


def _train(argv: list[str]) -> int:
    from synthetic.settings import TrainSettings

    settings = _parse(TrainSettings, argv, "train")
    from synthetic.report import build_report, verdict
    from synthetic.runs import train

    summary = train(settings)
    page = build_report(settings.out)
    for split in ("test", "held_out"):
        names = [
            n
            for n in ("r2", "r2_pooled", "r2_median", "accuracy", "episode_accuracy")
            if n in summary[split]
        ]
        for who, scores in (
            ("student", summary[split]),
            *((b, s[split]) for b, s in summary["baselines"].items()),
        ):
            print(f"{split:>8}  {who:<9}", *(f"{name} {_short(scores[name])}" for name in names))
    print(verdict(summary["composes"]))
    print(page)
    return 0


def _sweep(argv: list[str]) -> int:
    from synthetic.settings import SweepSettings

    if argv and not argv[0].startswith("-"):  # `sweep encodings` is `sweep --preset encodings`
        argv = ["--preset", *argv]
    settings = _parse(SweepSettings, argv, "sweep")
    from synthetic.sweeps.runner import sweep

    rows = sweep(settings)
    from synthetic.report import TABLE

    print((settings.out / TABLE).read_text(encoding="utf-8"))
    impossible = sum(row["status"] == "impossible" for row in rows)
    print(
        f"{len(rows) - impossible} networks, {impossible} impossible places: {settings.out / 'report.html'}"
    )
    return 0


def _list(argv: list[str]) -> int:
    from synthetic.settings import CHOICES, ListSettings

    _parse(ListSettings, argv, "list")
    from synthetic.encodings import ENCODINGS
    from synthetic.supports import SUPPORTS
    from synthetic.sweeps.presets import SWEEPS

    for name, allowed in CHOICES.items():
        print(f"--{name.replace('_', '-'):<12} {', '.join(allowed)}")
    print(f"--{'encoding':<12} {', '.join(ENCODINGS)}")
    print(f"--{'support':<12} {', '.join(SUPPORTS)}")
    print("sweeps:")
    for name, preset in SWEEPS.items():
        print(f"  {name:<14} {preset.question}")
    return 0


def _report(argv: list[str]) -> int:
    from synthetic.settings import ReportSettings

    if argv and not argv[0].startswith("-"):  # `report runs/ht` is `report --folder runs/ht`
        argv = ["--folder", *argv]
    settings = _parse(ReportSettings, argv, "report")
    from synthetic.report import build_report

    print(build_report(settings.folder))
    return 0


def _short(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else "undefined"
