"""Settings that mean nothing for the checkpoint they are given with: refused, before anything is loaded."""

from pathlib import Path

from t2iprobe.errors import ConfigError
from t2iprobe.models import zoo
from t2iprobe.models.names import local_folder
from t2iprobe.models.settings import LoadSettings

WEIGHTS_ONLY = ("variant", "dtype", "device", "offload", "vae_tiling", "lora", "single_file")
"""What says which weights are loaded and how: nothing where none are."""


def check_meant(name: str, settings: LoadSettings) -> None:
    """Refuse what would be passed over.

    Raises:
        ConfigError: a revision of what is no hub repository, a variant of a zoo model, or two files of weights.
        ModelError: the name is no model's.
    """
    what = "a model of the embedded zoo" if name in zoo.names() else "on this machine"
    if settings.revision is not None and local_folder(name) is not None:
        raise ConfigError(
            f"--revision {settings.revision} names a state of a hub repository, and {name} is {what}; leave it out"
        )
    if settings.variant is not None and name in zoo.names():
        raise ConfigError(
            f"--variant {settings.variant}: {name} has one set of weights; leave it out"
        )
    if settings.single_file is not None and Path(name).expanduser().is_file():
        raise ConfigError(
            f"--single-file {settings.single_file} and --model {name} are both files of weights; give as --model the"
            " folder or hub id with the configuration"
        )


def weights_settings(settings: LoadSettings) -> list[str]:
    """The options among `WEIGHTS_ONLY` that differ from their defaults, as they are typed."""
    plain = LoadSettings()
    return [
        f"--{name.replace('_', '-')}"
        for name in WEIGHTS_ONLY
        if getattr(settings, name) != getattr(plain, name)
    ]
