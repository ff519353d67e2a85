"""`t2iprobe inspect MODEL`."""

from dataclasses import dataclass

from t2iprobe.commands.parsing import parse
from t2iprobe.config import OneModel
from t2iprobe.models.names import local_folder

DESCRIPTION = """\
Say what can be read in a model: its text encoders and denoisers, every site, and with --trial (a few calls of the
pipeline) the stream and shape of each site, the form of guidance, prompt limits and the bytes a run would take.

  t2iprobe inspect shapes-mmdit                     from the configs alone; no weight is loaded
  t2iprobe inspect shapes-mmdit --trial
  t2iprobe inspect ./my-checkpoint --trial --json"""


@dataclass(frozen=True)
class InspectConfig(OneModel):
    """Which model to look at, and how it is loaded."""

    trial: bool = False
    """Load the weights and make a few calls, which tells streams, shapes and guidance."""
    json: bool = False
    """Print JSON."""
    images: int = 768
    """Images of the planned run whose bytes are told."""


def main(arguments: list[str]) -> int:
    """Print what is known of a model."""
    config = parse(InspectConfig, arguments, "inspect", DESCRIPTION)
    local_folder(config.model)  # a mistyped name is told before the heavy libraries are loaded
    import json

    from t2iprobe.models.inspect import inspect_checkpoint
    from t2iprobe.report.inspection import print_inspection

    found = inspect_checkpoint(config.model, config, config.trial, 5, config.images)
    if config.json:
        print(json.dumps(found.as_dict(), indent=1))
    else:
        print_inspection(found)
    return 0
