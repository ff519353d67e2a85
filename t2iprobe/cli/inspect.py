"""`t2iprobe inspect MODEL`."""

from dataclasses import dataclass

from t2iprobe.cli.parsing import parse
from t2iprobe.errors import ConfigError
from t2iprobe.models.names import local_folder
from t2iprobe.runs.config import OneModel

DESCRIPTION = """\
Say what can be read in a model: its text encoders and which of their layers the denoiser is fed, its denoisers and the
form of guidance, prompt limits, every site with its stream and shape, and the bytes a run would take. The configs are
enough: no weight is downloaded or loaded, whatever the size.

  t2iprobe inspect shapes-mmdit
  t2iprobe inspect stabilityai/stable-diffusion-3.5-medium --json
  t2iprobe inspect ./my-checkpoint --trial          the same from calls with the weights of the checkpoint"""


@dataclass(frozen=True)
class InspectConfig(OneModel):
    """Which model to look at, and how it is loaded."""

    trial: bool = False
    """Load the weights and make the trial calls with them, instead of with stand-ins."""
    json: bool = False
    """Print JSON."""
    images: int = 768
    """Images of the planned run whose bytes are told."""

    def __post_init__(self) -> None:
        """Reject numbers that cannot be meant.

        Raises:
            ConfigError: a count is below its minimum.
        """
        super().__post_init__()
        if self.images < 1:
            raise ConfigError(f"--images {self.images}: must be 1 or more")


def main(arguments: list[str]) -> int:
    """Print what is known of a model; 1 where the sites of a denoiser could not be listed."""
    config = parse(InspectConfig, arguments, "inspect", DESCRIPTION)
    local_folder(config.model)  # a mistyped name is told before the heavy libraries are loaded
    import json

    from t2iprobe.checks.inspect import inspect_checkpoint
    from t2iprobe.report.inspection import print_inspection
    from t2iprobe.runs.memory import give_back_soon

    give_back_soon()
    found = inspect_checkpoint(config.model, config, config.trial, 5, config.images)
    if config.json:
        print(json.dumps(found.as_dict(), indent=1))
    else:
        print_inspection(found)
    return 0 if found.lists_denoisers else 1
