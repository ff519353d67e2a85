"""Tiny random text encoders, codecs and other parts, with the structure of the real ones."""

from importlib import import_module
from typing import Any

import torch
from torch import nn

from pipelines import tokenizers as tok


def clip_text(
    projection: int | None = None,
    layers: int = 3,
    seed: int = 0,
    positions: int = 77,
    width: int = 32,
) -> Any:
    """A CLIPTextModel, or with `projection` a CLIPTextModelWithProjection."""
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

    n = tok.clip_size()
    config = CLIPTextConfig(
        vocab_size=n,
        hidden_size=width,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        max_position_embeddings=positions,
        projection_dim=projection or 32,
        bos_token_id=n - 2,
        eos_token_id=n - 1,
        pad_token_id=n - 1,
        initializer_range=0.2,
    )
    torch.manual_seed(seed)
    return (CLIPTextModelWithProjection if projection else CLIPTextModel)(config)


def t5_encoder(width: int = 32, layers: int = 2, words: int | None = None) -> Any:
    from transformers import T5Config, T5EncoderModel

    torch.manual_seed(0)
    return T5EncoderModel(
        T5Config(
            vocab_size=words or tok.t5_size() + 8,
            d_model=width,
            d_kv=8,
            d_ff=64,
            num_layers=layers,
            num_heads=4,
            relative_attention_num_buckets=8,
            relative_attention_max_distance=32,
            dropout_rate=0.0,
            feed_forward_proj="gated-gelu",
            is_encoder_decoder=False,
            use_cache=False,
        )
    )


def umt5_encoder(width: int = 32) -> Any:
    from transformers import UMT5Config, UMT5EncoderModel

    torch.manual_seed(0)
    return UMT5EncoderModel(
        UMT5Config(
            vocab_size=tok.t5_size() + 8,
            d_model=width,
            d_kv=8,
            d_ff=32,
            num_layers=1,
            num_heads=4,
            is_encoder_decoder=False,
            use_cache=False,
        )
    )


def gemma2() -> Any:
    from transformers import Gemma2Config, Gemma2Model

    torch.manual_seed(0)
    return Gemma2Model(
        Gemma2Config(
            vocab_size=tok.gemma_size(),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            max_position_embeddings=4096,
            sliding_window=64,
            query_pre_attn_scalar=8,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=2,
            initializer_range=0.2,
        )
    )


def _qwen_ids() -> dict[str, int]:
    return {
        "bos_token_id": tok.qwen_id("<|endoftext|>"),
        "eos_token_id": tok.qwen_id("<|im_end|>"),
        "pad_token_id": tok.qwen_id("<|endoftext|>"),
    }


def qwen3(causal: bool = False) -> Any:
    from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3Model

    torch.manual_seed(0)
    return (Qwen3ForCausalLM if causal else Qwen3Model)(
        Qwen3Config(
            vocab_size=tok.qwen_size(),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            max_position_embeddings=2048,
            initializer_range=0.2,
            **_qwen_ids(),
        )
    )


def qwen25_vl() -> Any:
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    text = {
        "vocab_size": tok.qwen_size(),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 2048,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_section": [1, 1, 2],
        },
        "initializer_range": 0.2,
        **_qwen_ids(),
    }
    vision = {
        "depth": 1,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_heads": 2,
        "out_hidden_size": 32,
        "patch_size": 4,
        "window_size": 16,
        "fullatt_block_indexes": [0],
    }
    torch.manual_seed(0)
    return Qwen2_5_VLForConditionalGeneration(
        Qwen2_5_VLConfig(
            text_config=text,
            vision_config=vision,
            image_token_id=tok.qwen_id("<|image_pad|>"),
            video_token_id=tok.qwen_id("<|video_pad|>"),
            vision_start_token_id=tok.qwen_id("<|vision_start|>"),
            vision_end_token_id=tok.qwen_id("<|vision_end|>"),
            tie_word_embeddings=True,
        )
    )


def vae(
    latent: int = 4,
    quant: bool = True,
    shift: float | None = None,
    blocks: int = 2,
    channels: int = 3,
    attends: bool = True,
) -> Any:
    """A codec that makes images 2 ** (blocks - 1) times as large as its latents; large ones better not attend."""
    from diffusers import AutoencoderKL

    torch.manual_seed(0)
    return AutoencoderKL(
        in_channels=channels,
        out_channels=channels,
        latent_channels=latent,
        block_out_channels=(8,) * (blocks - 1) + (16,),
        layers_per_block=1,
        down_block_types=("DownEncoderBlock2D",) * blocks,
        up_block_types=("UpDecoderBlock2D",) * blocks,
        norm_num_groups=4,
        sample_size=32,
        shift_factor=shift,
        mid_block_add_attention=attends,
        use_quant_conv=quant,
        use_post_quant_conv=quant,
    )


def wan_vae(factor: int = 2) -> Any:
    """The codec of the Wan video models, which image models share: twice as large as its latents, whatever it says."""
    from diffusers import AutoencoderKLWan

    torch.manual_seed(0)
    return AutoencoderKLWan(
        base_dim=8,
        z_dim=4,
        dim_mult=[1, 1],
        num_res_blocks=1,
        temperal_downsample=[False],
        latents_mean=[0.0] * 4,
        latents_std=[1.0] * 4,
        scale_factor_spatial=factor,
        scale_factor_temporal=1,
    )


def qwen_image_vae() -> Any:
    """The codec of Qwen-Image, which other models share."""
    from diffusers import AutoencoderKLQwenImage

    torch.manual_seed(0)
    return AutoencoderKLQwenImage(
        base_dim=8,
        z_dim=4,
        dim_mult=[1, 2, 2],
        num_res_blocks=1,
        temperal_downsample=[False, True],
        latents_mean=[0.0] * 4,
        latents_std=[1.0] * 4,
    )


def flux2_vae() -> Any:
    from diffusers import AutoencoderKLFlux2

    torch.manual_seed(0)
    return AutoencoderKLFlux2(
        block_out_channels=(8, 16),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        layers_per_block=1,
        latent_channels=4,
        norm_num_groups=4,
        sample_size=32,
    )


def movq() -> Any:
    """The codec of the Kandinsky models."""
    from diffusers import VQModel

    torch.manual_seed(0)
    return VQModel(
        block_out_channels=[32, 32],  # the spatial norm has 32 groups whatever norm_num_groups says
        down_block_types=["DownEncoderBlock2D", "AttnDownEncoderBlock2D"],
        up_block_types=["AttnUpDecoderBlock2D", "UpDecoderBlock2D"],
        latent_channels=4,
        norm_num_groups=4,
        norm_type="spatial",
        num_vq_embeddings=12,
        vq_embed_dim=4,
    )


def safety_checker(flags: bool) -> Any:
    """A safety checker whose thresholds, which are weights, are set to flag everything or nothing."""
    from diffusers.pipelines.stable_diffusion.safety_checker import StableDiffusionSafetyChecker
    from transformers import CLIPConfig

    part = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    torch.manual_seed(0)
    checker = StableDiffusionSafetyChecker(
        CLIPConfig(
            text_config=part | {"vocab_size": 32},
            vision_config=part | {"image_size": 16, "patch_size": 8, "projection_dim": 16},
            projection_dim=16,
        )
    )
    with torch.no_grad():
        checker.concept_embeds.normal_()
        checker.special_care_embeds.normal_()
        checker.concept_embeds_weights.fill_(-2.0 if flags else 2.0)
        checker.special_care_embeds_weights.fill_(2.0)
    return checker


def image_processor() -> Any:
    from transformers import CLIPImageProcessor

    return CLIPImageProcessor(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16})


def clip_vision() -> Any:
    from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

    torch.manual_seed(0)
    return CLIPVisionModelWithProjection(
        CLIPVisionConfig(
            hidden_size=32,
            intermediate_size=32,
            projection_dim=32,
            num_hidden_layers=1,
            num_attention_heads=4,
            image_size=16,
            patch_size=8,
        )
    )


def wake(module: nn.Module) -> None:
    """Give weights that start at zero a small random value, as a trained model would have.

    Closed gates would keep text from ever reaching the image.
    """
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for weight in module.parameters():
            if weight.dim() >= 2 and weight.numel() and weight.abs().max() == 0:
                weight.copy_(
                    torch.randn(weight.shape, generator=generator) / weight.shape[-1] ** 0.5
                )


def ddim() -> Any:
    from diffusers import DDIMScheduler

    return DDIMScheduler(beta_schedule="scaled_linear", clip_sample=False, steps_offset=1)


def flow(**settings: Any) -> Any:
    from diffusers import FlowMatchEulerDiscreteScheduler

    return FlowMatchEulerDiscreteScheduler(**settings)


def moved(module: str) -> Any:
    """A module of diffusers.pipelines, which newer releases have under `deprecated`."""
    try:
        return import_module(f"diffusers.pipelines.deprecated.{module}")
    except ImportError:
        return import_module(f"diffusers.pipelines.{module}")


def qwen3_vl(generates: bool = False, layers: int = 3) -> Any:
    """Qwen3-VL, whose vision half stays silent."""
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration, Qwen3VLModel

    text = {
        "vocab_size": tok.qwen_size(),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 2048,
        "initializer_range": 0.2,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_section": [2, 1, 1],
            "mrope_interleaved": True,
        },
    }
    vision = {
        "depth": 1,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_heads": 2,
        "out_hidden_size": 32,
        "patch_size": 4,
        "num_position_embeddings": 16,
        "deepstack_visual_indexes": [0],
    }
    torch.manual_seed(0)
    return (Qwen3VLForConditionalGeneration if generates else Qwen3VLModel)(
        Qwen3VLConfig(
            text_config=text,
            vision_config=vision,
            image_token_id=tok.qwen_id("<|image_pad|>"),
            video_token_id=tok.qwen_id("<|video_pad|>"),
            vision_start_token_id=tok.qwen_id("<|vision_start|>"),
            vision_end_token_id=tok.qwen_id("<|vision_end|>"),
        )
    )


def qwen3_vl_processor() -> Any:
    from transformers import Qwen2VLImageProcessor, Qwen3VLProcessor, Qwen3VLVideoProcessor

    tokenizer = tok.qwen_tokenizer()
    return Qwen3VLProcessor(
        Qwen2VLImageProcessor(patch_size=4),
        tokenizer,
        Qwen3VLVideoProcessor(patch_size=4),
        chat_template=tokenizer.chat_template,
    )
