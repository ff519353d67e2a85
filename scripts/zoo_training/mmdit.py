"""The zoo's MMDiT: a stock Stable Diffusion 3 pipeline, small, with two CLIP text encoders trained along."""

import torch
from diffusers import (
    AutoencoderKL,
    FlowMatchEulerDiscreteScheduler,
    SD3Transformer2DModel,
    StableDiffusion3Pipeline,
)
from torch import Tensor
from transformers import CLIPTokenizer

from zoo_training import text, tokenizer
from zoo_training.denoiser import Denoiser
from zoo_training.loop import Schedule

SCHEDULE = Schedule(steps=1000, learning_rate=2e-3, warmup=50, floor=0.02, ema=0.98)
# No T5 is there, and max_sequence_length=0 asks for none of the zero tokens that would stand in for it.
CALL = {"num_inference_steps": 10, "guidance_scale": 2.0, "max_sequence_length": 0}
HEADS, HEAD_WIDTH, BLOCKS = 3, 32, 4
TEXT_WIDTH = 48  # of each of the two encoders


class MMDiT(Denoiser):
    """Everything that is trained: the denoiser and its two text encoders.

    Args:
        words: the tokenizer.
        vae: not needed; the pipeline itself shifts and scales latents.
        seed: of the weights.
    """

    def __init__(self, words: CLIPTokenizer, vae: AutoencoderKL, seed: int) -> None:  # noqa: ARG002
        super().__init__()
        torch.manual_seed(seed)
        self.text_encoder = text.build_encoder(words, TEXT_WIDTH, projection=TEXT_WIDTH)
        self.text_encoder_2 = text.build_encoder(words, TEXT_WIDTH, projection=TEXT_WIDTH)
        self.transformer = SD3Transformer2DModel(
            sample_size=16,
            patch_size=2,
            in_channels=4,
            out_channels=4,
            num_layers=BLOCKS,
            attention_head_dim=HEAD_WIDTH,
            num_attention_heads=HEADS,
            joint_attention_dim=2 * TEXT_WIDTH,
            caption_projection_dim=HEADS * HEAD_WIDTH,
            pooled_projection_dim=2 * TEXT_WIDTH,
            pos_embed_max_size=8,
            qk_norm="rms_norm",
        )

    def encode(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """What the pipeline's own `encode_prompt` gives: the last but one hidden states, and the pooled text.

        Args:
            ids: (b, 16) token ids.

        Returns:
            (b, 16, width) hidden states of both encoders side by side, and (b, width) pooled.
        """
        outputs = [
            encoder(ids, output_hidden_states=True)
            for encoder in (self.text_encoder, self.text_encoder_2)
        ]
        hidden = torch.cat([output.hidden_states[-2] for output in outputs], dim=-1)
        return hidden, torch.cat([output.text_embeds for output in outputs], dim=-1)

    def loss(self, latents: Tensor, ids: Tensor, noise: torch.Generator) -> Tensor:
        """Rectified flow: the squared error of the velocity (noise - latents), logit-normal times.

        Args:
            latents: (b, 4, 16, 16), standardised.
            ids: (b, 16) token ids; empty prompts teach the unconditional half of guidance.
            noise: source of the noise and the times.
        """
        sigma = torch.sigmoid(torch.randn(len(latents), generator=noise))
        pure = torch.randn(latents.shape, generator=noise)
        mixed = torch.lerp(latents, pure, sigma[:, None, None, None])
        hidden, pooled = self.encode(ids)
        (velocity,) = self.transformer(
            hidden_states=mixed,
            encoder_hidden_states=hidden,
            pooled_projections=pooled,
            timestep=1000 * sigma,
            return_dict=False,
        )
        loss: Tensor = (velocity - (pure - latents)).square().mean()
        return loss

    def pipeline(self, vae: AutoencoderKL, words: CLIPTokenizer) -> StableDiffusion3Pipeline:
        """The stock pipeline around these weights."""
        return StableDiffusion3Pipeline(
            transformer=self.transformer,
            scheduler=FlowMatchEulerDiscreteScheduler(shift=1.0),
            vae=vae,
            text_encoder=self.text_encoder,
            tokenizer=words,
            text_encoder_2=self.text_encoder_2,
            tokenizer_2=tokenizer.build(),
            text_encoder_3=None,
            tokenizer_3=None,
        )
