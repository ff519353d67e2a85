"""The zoo's UNet: a stock Stable Diffusion pipeline, small, with its CLIP text encoder trained along."""

import torch
from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from torch import Tensor
from transformers import CLIPTokenizer

from zoo_training import text
from zoo_training.denoiser import Denoiser
from zoo_training.loop import Schedule

SCHEDULE = Schedule(steps=1500, learning_rate=2e-3, warmup=50, floor=0.02, ema=0.98)
CALL = {"num_inference_steps": 12, "guidance_scale": 2.0}
CHANNELS, HEADS, TEXT_WIDTH = (32, 64), 2, 64


class UNet(Denoiser):
    """Everything that is trained: the denoiser and its text encoder.

    This pipeline scales latents but does not shift them, unlike Stable Diffusion 3's; so the mean that was taken from
    the training latents is given back.

    Args:
        words: the tokenizer.
        vae: the codec, for its mean and scale.
        seed: of the weights.
    """

    def __init__(self, words: CLIPTokenizer, vae: AutoencoderKL, seed: int) -> None:
        super().__init__()
        self.latent_mean = vae.config.shift_factor * vae.config.scaling_factor
        torch.manual_seed(seed)
        self.text_encoder = text.build_encoder(words, TEXT_WIDTH)
        self.unet = UNet2DConditionModel(
            sample_size=16,
            in_channels=4,
            out_channels=4,
            block_out_channels=CHANNELS,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            mid_block_type="UNetMidBlock2DCrossAttn",
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
            layers_per_block=1,
            cross_attention_dim=TEXT_WIDTH,
            attention_head_dim=HEADS,
            norm_num_groups=8,
        )
        self.scheduler = DDIMScheduler(
            beta_schedule="scaled_linear",
            beta_start=0.00085,
            beta_end=0.012,
            prediction_type="v_prediction",
            clip_sample=False,
            set_alpha_to_one=True,
            timestep_spacing="trailing",
            rescale_betas_zero_snr=True,
        )

    def loss(self, latents: Tensor, ids: Tensor, noise: torch.Generator) -> Tensor:
        """Squared error of the velocity sqrt(a) noise - sqrt(1 - a) latents, uniform times.

        Args:
            latents: (b, 4, 16, 16), standardised.
            ids: (b, 16) token ids; empty prompts teach the unconditional half of guidance.
            noise: source of the noise and the times.
        """
        latents = latents + self.latent_mean
        times = torch.randint(0, 1000, (len(latents),), generator=noise)
        pure = torch.randn(latents.shape, generator=noise)
        mixed = self.scheduler.add_noise(latents, pure, times)
        hidden = self.text_encoder(ids).last_hidden_state
        (velocity,) = self.unet(mixed, times, hidden, return_dict=False)
        target = self.scheduler.get_velocity(latents, pure, times)
        loss: Tensor = (velocity - target).square().mean()
        return loss

    def pipeline(self, vae: AutoencoderKL, words: CLIPTokenizer) -> StableDiffusionPipeline:
        """The stock pipeline around these weights."""
        vae.register_to_config(shift_factor=None)
        return StableDiffusionPipeline(
            vae=vae,
            text_encoder=self.text_encoder,
            tokenizer=words,
            unet=self.unet,
            scheduler=self.scheduler,
            safety_checker=None,
            feature_extractor=None,
            requires_safety_checker=False,
        )
