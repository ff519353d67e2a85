"""`t2iprobe models`."""

from dataclasses import dataclass

from t2iprobe.cli.parsing import parse


@dataclass(frozen=True)
class ModelsConfig:
    """Nothing to set."""


def main(arguments: list[str]) -> int:
    """Print the models of the embedded zoo with what their cards say."""
    parse(ModelsConfig, arguments, "models", "List the models of the embedded zoo.")
    from t2iprobe.report.models import print_models

    print_models()
    return 0
