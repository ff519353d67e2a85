"""A pipeline of no library: the conditional half comes first, and there is no codec."""

from typing import Any

import torch
from diffusers import DiffusionPipeline
from diffusers.utils import BaseOutput


class Pictures(BaseOutput):
    """What a call gives."""

    images: Any


class HousePipeline(DiffusionPipeline):
    """Text to image."""

    def __init__(self, house: Any, text_encoder: Any, tokenizer: Any, scheduler: Any) -> None:
        super().__init__()
        self.register_modules(
            house=house, text_encoder=text_encoder, tokenizer=tokenizer, scheduler=scheduler
        )

    @torch.no_grad()
    def __call__(
        self,
        prompt: str | list[str],
        num_inference_steps: int = 4,
        guidance_scale: float = 3.0,
        height: int = 32,
        width: int = 32,
        generator: Any = None,
        output_type: str = "pil",
    ) -> Pictures:
        prompts = [prompt] if isinstance(prompt, str) else list(prompt)
        generators = generator if isinstance(generator, list) else [generator] * len(prompts)
        given = self.tokenizer(
            prompts + [""] * len(prompts), padding="max_length", max_length=24, return_tensors="pt"
        )
        story = self.text_encoder(given.input_ids)[0]
        drawn = [torch.randn(1, 3, height, width, generator=g) for g in generators]
        canvas = torch.cat(drawn)
        self.scheduler.set_timesteps(num_inference_steps)
        for t in self.scheduler.timesteps:
            level = (t / 1000).expand(2 * len(prompts))
            yes, no = self.house(torch.cat([canvas, canvas]), story, level).chunk(2)
            canvas = self.scheduler.step(no + guidance_scale * (yes - no), t, canvas).prev_sample
        pictures = torch.sigmoid(canvas).permute(0, 2, 3, 1).float().numpy()
        return Pictures(images=pictures if output_type == "np" else self.numpy_to_pil(pictures))
