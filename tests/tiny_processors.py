"""Families whose tokenizer is inside a processor for pictures and texts."""

from typing import Any

import tiny_parts as parts
import tiny_tokenizers as tok
import torch
from tiny import SMALL, family, flow
from tiny_latest import qwen3_vl


def qwen3_vl_processor() -> Any:
    from transformers import Qwen2VLImageProcessor, Qwen3VLProcessor, Qwen3VLVideoProcessor

    tokenizer = tok.qwen_tokenizer()
    return Qwen3VLProcessor(
        Qwen2VLImageProcessor(patch_size=4),
        tokenizer,
        Qwen3VLVideoProcessor(patch_size=4),
        chat_template=tokenizer.chat_template,
    )


@family(
    "qwenimage21",
    height=32,
    width=32,
    num_inference_steps=3,
    true_cfg_scale=4.0,
    negative_prompt="bad",
)
def _qwenimage21() -> Any:
    """Text states that the denoiser keeps in a cache after its first step."""
    from diffusers import (
        AutoencoderKLQwenImage21,
        QwenImage21Pipeline,
        QwenImage21Transformer2DModel,
    )

    torch.manual_seed(0)
    transformer = QwenImage21Transformer2DModel(
        patch_size=1,
        in_channels=4,
        out_channels=4,
        num_layers=2,
        attention_head_dim=16,
        num_attention_heads=2,
        context_in_dim=32,
        axes_dims_rope=(8, 4, 4),
    )
    codec = AutoencoderKLQwenImage21(
        base_dim=8,
        decoder_base_dim=8,
        z_dim=4,
        dim_mult=[1, 1, 1, 1, 1],
        num_res_blocks=1,
        temperal_downsample=[False, False, False, False],
        latents_mean=[0.0] * 4,
        latents_std=[1.0] * 4,
    )
    return QwenImage21Pipeline(
        scheduler=flow(use_dynamic_shifting=True),
        vae=codec,
        text_encoder=qwen3_vl(generates=True),
        processor=qwen3_vl_processor(),
        transformer=transformer,
    )


@family("nucleus", **SMALL, negative_prompt="bad", return_index=-2)
def _nucleus() -> Any:
    """Experts chosen token by token."""
    from diffusers import NucleusMoEImagePipeline, NucleusMoEImageTransformer2DModel

    torch.manual_seed(0)
    transformer = NucleusMoEImageTransformer2DModel(
        patch_size=2,
        in_channels=16,
        out_channels=4,
        num_layers=2,
        attention_head_dim=16,
        num_attention_heads=2,
        num_key_value_heads=1,
        joint_attention_dim=32,
        axes_dims_rope=(8, 4, 4),
        moe_enabled=False,
        capacity_factors=[8.0, 8.0],
    )
    return NucleusMoEImagePipeline(
        transformer=transformer,
        scheduler=flow(use_dynamic_shifting=True),
        vae=parts.qwen_image_vae(),
        text_encoder=qwen3_vl(generates=True),
        processor=qwen3_vl_processor(),
    )


@family("kandinsky5", num_inference_steps=2)
def _kandinsky5() -> Any:
    """Feature maps with the channels last; one of seven sizes of about 128 x 128 latents, here pixels."""
    from diffusers import Kandinsky5T2IPipeline, Kandinsky5Transformer3DModel
    from transformers import Qwen2_5_VLProcessor, Qwen2VLImageProcessor, Qwen2VLVideoProcessor

    tokenizer = tok.qwen_tokenizer()
    torch.manual_seed(0)
    transformer = Kandinsky5Transformer3DModel(
        in_visual_dim=4,
        in_text_dim=32,
        in_text_dim2=32,
        time_dim=16,
        out_visual_dim=4,
        patch_size=(1, 2, 2),
        model_dim=8,
        ff_dim=16,
        num_text_blocks=1,
        num_visual_blocks=2,
        axes_dims=(4, 2, 2),
    )
    return Kandinsky5T2IPipeline(
        transformer=transformer,
        vae=parts.vae(blocks=1, attends=False),
        text_encoder=parts.qwen25_vl(),
        tokenizer=Qwen2_5_VLProcessor(
            Qwen2VLImageProcessor(patch_size=4),
            tokenizer,
            Qwen2VLVideoProcessor(patch_size=4),
            chat_template=tokenizer.chat_template,
        ),
        text_encoder_2=parts.clip_text(),
        tokenizer_2=tok.clip_tokenizer(),
        scheduler=flow(shift=5.0),
    )
