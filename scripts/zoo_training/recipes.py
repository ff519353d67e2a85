"""The models of the zoo: what each is trained on, and for how long."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from zoo_training import data, mmdit, unet
from zoo_training.data import Weights
from zoo_training.loop import Schedule


@dataclass(frozen=True)
class Recipe:
    """How one training run of the zoo is made.

    Attributes:
        name: of the run, and of the folder of its last weights.
        description: one line for people.
        sampling: "long-tail", "uniform" or "disconnected".
        weights: seed -> (scenes,) chance of each scene.
        checkpoints: steps of earlier weights that become models of their own.
        build: makes the untrained model from (tokenizer, vae, seed).
        schedule: steps and learning rate.
        call: the pipeline's arguments.
        pipeline: class of the pipeline.
        compiles: whether compiling its loss pays off.
    """

    name: str
    description: str
    sampling: str
    weights: Callable[[int], Weights]
    checkpoints: tuple[int, ...] = ()
    build: Callable[..., Any] = mmdit.MMDiT
    schedule: Schedule = mmdit.SCHEDULE
    call: dict[str, Any] = field(default_factory=lambda: dict(mmdit.CALL))
    pipeline: str = "StableDiffusion3Pipeline"
    compiles: bool = True

    def folder(self, step: int) -> str:
        """Name of the model with the weights of a step."""
        return self.name if step == self.schedule.steps else f"{self.name}-step{step:04d}"

    @property
    def folders(self) -> dict[str, int]:
        """Folder name -> step, earliest first."""
        return {self.folder(step): step for step in (*self.checkpoints, self.schedule.steps)}


FEW_SCENES = (600, 80, 50, 30)

RECIPES = (
    Recipe(
        "shapes-mmdit-uniform",
        "MMDiT that sees 70% of the scenes, all equally often",
        "uniform",
        data.uniform,
    ),
    Recipe(
        "shapes-mmdit",
        "MMDiT, the default: values and scenes have a long tail; 30% of the scenes are held out",
        "long-tail",
        data.long_tail,
        checkpoints=(300, 400, 500, 600, 800),
    ),
    *(
        Recipe(
            f"shapes-mmdit-scenes{count}",
            f"MMDiT that sees only {count} of the 6480 scenes, all equally often",
            "uniform",
            partial(data.few, count=count),
        )
        for count in FEW_SCENES
    ),
    Recipe(
        "shapes-mmdit-disconnected",
        "MMDiT that sees two groups of colours and shapes which never meet in a scene",
        "disconnected",
        data.disconnected,
    ),
    Recipe(
        "shapes-unet",
        "UNet with cross-attention; values and scenes have the same long tail as for shapes-mmdit",
        "long-tail",
        data.long_tail,
        build=unet.UNet,
        schedule=unet.SCHEDULE,
        call=dict(unet.CALL),
        pipeline="StableDiffusionPipeline",
        compiles=False,
    ),
)
