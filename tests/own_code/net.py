"""A denoiser of no library: two streams, argument names of its own."""

import torch
from diffusers import ConfigMixin, ModelMixin
from diffusers.configuration_utils import register_to_config
from torch import Tensor, nn


class Room(nn.Module):
    """One block: attention over both streams, then a layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.look = nn.MultiheadAttention(width, 2, batch_first=True)
        self.think = nn.Linear(width, width)

    def forward(self, scene: Tensor, story: Tensor) -> tuple[Tensor, Tensor]:
        both = torch.cat([story, scene], 1)
        both = both + self.look(both, both, both)[0]
        both = both + torch.tanh(self.think(both))
        return both[:, story.shape[1] :], both[:, : story.shape[1]]


class House(ModelMixin, ConfigMixin):
    """The denoiser: patches of 4 pixels, three rooms."""

    @register_to_config
    def __init__(self, width: int = 16, depth: int = 3, words: int = 32) -> None:
        super().__init__()
        self.enter = nn.Linear(3 * 16, width)
        self.read = nn.Linear(words, width)
        self.clock = nn.Linear(1, width)
        self.rooms = nn.ModuleList([Room(width) for _ in range(depth)])
        self.leave = nn.Linear(width, 3 * 16)

    def forward(self, canvas: Tensor, story: Tensor, time: Tensor) -> Tensor:
        patches = nn.functional.unfold(canvas, 4, stride=4).transpose(1, 2)
        scene = self.enter(patches) + self.clock(time.reshape(-1, 1))[:, None]
        told = self.read(story)
        for room in self.rooms:
            scene, told = room(scene, told)
        painted = self.leave(scene).transpose(1, 2)
        return nn.functional.fold(painted, canvas.shape[-2:], 4, stride=4)
