"""Transformers with a stream for the text and one for the image, which attend together."""

from typing import Any

import diffusers
import torch
from tiny import SMALL, family

from pipelines import denoisers as nets
from pipelines import parts
from pipelines import tokenizers as tok
from pipelines.parts import flow, qwen3_vl, qwen3_vl_processor


def sd3_parts(third: bool = True) -> dict[str, Any]:
    """All of Stable Diffusion 3 but its transformer."""
    return {
        "scheduler": flow(shift=3.0),
        "vae": parts.vae(8, quant=False, shift=0.06),
        "text_encoder": parts.clip_text(32, seed=1),
        "tokenizer": tok.clip_tokenizer(),
        "text_encoder_2": parts.clip_text(32, seed=2),
        "tokenizer_2": tok.clip_tokenizer(pad="!"),
        "text_encoder_3": parts.t5_encoder(64) if third else None,
        "tokenizer_3": tok.t5_tokenizer() if third else None,
    }


def _sd3(third: bool) -> Any:
    return diffusers.StableDiffusion3Pipeline(
        transformer=nets.sd3_transformer(num_layers=3), **sd3_parts(third)
    )


@family("sd3", **SMALL)
def _sd3_whole() -> Any:
    return _sd3(True)


@family("sd3_no_t5", **SMALL)
def _sd3_no_t5() -> Any:
    return _sd3(False)


@family(
    "sd35",
    height=32,
    width=32,
    num_inference_steps=4,
    skip_guidance_layers="[1, 2]",
    skip_layer_guidance_start=0.0,
    skip_layer_guidance_stop=0.6,
)
def _sd35() -> Any:
    """SD 3.5 medium: dual attention, and skip-layer guidance, which calls the denoiser once more in some steps."""
    transformer = nets.sd3_transformer(dual_attention_layers=(0, 1), qk_norm="rms_norm")
    return diffusers.StableDiffusion3Pipeline(transformer=transformer, **sd3_parts())


@family("sd3_pag", **SMALL, pag_scale=3.0)
def _sd3_pag() -> Any:
    return diffusers.StableDiffusion3PAGPipeline(
        transformer=nets.sd3_transformer(), pag_applied_layers=["blocks.1"], **sd3_parts()
    )


@family("qwenimage", **SMALL, true_cfg_scale=4.0, negative_prompt="bad")
def _qwenimage() -> Any:
    torch.manual_seed(0)
    transformer = diffusers.QwenImageTransformer2DModel(
        patch_size=2,
        in_channels=16,
        out_channels=4,
        num_layers=3,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        axes_dims_rope=(8, 4, 4),
    )
    return diffusers.QwenImagePipeline(
        scheduler=flow(use_dynamic_shifting=True),
        vae=parts.qwen_image_vae(),
        text_encoder=parts.qwen25_vl(),
        tokenizer=tok.qwen_tokenizer(),
        transformer=transformer,
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
    torch.manual_seed(0)
    transformer = diffusers.QwenImage21Transformer2DModel(
        patch_size=1,
        in_channels=4,
        out_channels=4,
        num_layers=2,
        attention_head_dim=16,
        num_attention_heads=2,
        context_in_dim=32,
        axes_dims_rope=(8, 4, 4),
    )
    codec = diffusers.AutoencoderKLQwenImage21(
        base_dim=8,
        decoder_base_dim=8,
        z_dim=4,
        dim_mult=[1, 1, 1, 1, 1],
        num_res_blocks=1,
        temperal_downsample=[False, False, False, False],
        latents_mean=[0.0] * 4,
        latents_std=[1.0] * 4,
    )
    return diffusers.QwenImage21Pipeline(
        scheduler=flow(use_dynamic_shifting=True),
        vae=codec,
        text_encoder=qwen3_vl(generates=True),
        processor=qwen3_vl_processor(),
        transformer=transformer,
    )


@family("nucleus", **SMALL, negative_prompt="bad", return_index=-2)
def _nucleus() -> Any:
    """Experts chosen token by token."""
    torch.manual_seed(0)
    transformer = diffusers.NucleusMoEImageTransformer2DModel(
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
    return diffusers.NucleusMoEImagePipeline(
        transformer=transformer,
        scheduler=flow(use_dynamic_shifting=True),
        vae=parts.qwen_image_vae(),
        text_encoder=qwen3_vl(generates=True),
        processor=qwen3_vl_processor(),
    )


def _joyimage(kind: str, denoiser: str, factor: int) -> Any:
    torch.manual_seed(0)
    transformer = getattr(diffusers, denoiser)(
        in_channels=4,
        hidden_size=32,
        num_attention_heads=2,
        text_dim=32,
        num_layers=2,
        rope_dim_list=[4, 6, 6],
    )
    return getattr(diffusers, kind)(
        scheduler=flow(),
        vae=parts.wan_vae(factor),
        text_encoder=qwen3_vl(generates=True),
        tokenizer=tok.qwen_tokenizer(),
        transformer=transformer,
        processor=qwen3_vl_processor(),
    )


@family("joyimage", num_inference_steps=2)
def _joyimage_edit() -> Any:
    """An editing pipeline that also draws from a text alone, as one item of a list of pictures.

    It draws about 1024 pixels whatever it is asked for, so its codec says that they are few latents.
    """
    return _joyimage("JoyImageEditPipeline", "JoyImageEditTransformer3DModel", 64)


@family("joyimage_plus", **SMALL)
def _joyimage_plus() -> Any:
    """The same for several pictures: patches are cut outside."""
    return _joyimage("JoyImageEditPlusPipeline", "JoyImageEditPlusTransformer3DModel", 2)
