"""What training and saving need of a model of the zoo."""

from abc import ABC, abstractmethod

import torch
from diffusers import AutoencoderKL, DiffusionPipeline
from torch import Tensor, nn
from transformers import CLIPTokenizer


class Denoiser(nn.Module, ABC):
    """Everything of a pipeline that is trained: the denoiser and its text encoders."""

    @abstractmethod
    def loss(self, latents: Tensor, ids: Tensor, noise: torch.Generator) -> Tensor:
        """The loss of a batch.

        Args:
            latents: (b, 4, 16, 16), standardised.
            ids: (b, 16) token ids; empty prompts teach the unconditional half of guidance.
            noise: source of the noise and the times.
        """

    @abstractmethod
    def pipeline(self, vae: AutoencoderKL, words: CLIPTokenizer) -> DiffusionPipeline:
        """The stock pipeline around these weights."""
