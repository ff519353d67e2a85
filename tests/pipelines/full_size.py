"""Folders with the configs of full-size public models and no weight.

SD 1.5, SDXL, SD3, FLUX.1, PixArt-Sigma, Qwen-Image, Z-Image.

The numbers are those of the public repositories; the tokenizers are the tests' own small ones.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipelines import tokenizers as tok

Config = dict[str, Any]


def clip(width: int, layers: int, heads: int, projection: int | None = None) -> Config:
    n = tok.clip_size()
    return {
        "dtype": "float16",
        "vocab_size": 49408,
        "hidden_size": width,
        "intermediate_size": 4 * width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "max_position_embeddings": 77,
        "hidden_act": "quick_gelu" if width == 768 else "gelu",
        "projection_dim": projection or width,
        "bos_token_id": n - 2,
        "eos_token_id": n - 1,
        "pad_token_id": n - 1,
    }


CLIP_L = clip(768, 12, 12, 768)
CLIP_G = clip(1280, 32, 20, 1280)
T5_XXL: Config = {
    "torch_dtype": "bfloat16",
    "vocab_size": 32128,
    "d_model": 4096,
    "d_kv": 64,
    "d_ff": 10240,
    "num_layers": 24,
    "num_heads": 64,
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
    "feed_forward_proj": "gated-gelu",
    "is_encoder_decoder": False,
    "use_cache": False,
}
VAE: Config = {
    "block_out_channels": [128, 256, 512, 512],
    "down_block_types": ["DownEncoderBlock2D"] * 4,
    "up_block_types": ["UpDecoderBlock2D"] * 4,
    "latent_channels": 4,
    "layers_per_block": 2,
    "sample_size": 512,
}
VAE_16: Config = VAE | {
    "latent_channels": 16,
    "shift_factor": 0.1159,
    "scaling_factor": 0.3611,
    "use_quant_conv": False,
    "use_post_quant_conv": False,
    "sample_size": 1024,
}


def clip_tokens(folder: Path) -> None:
    tok.clip_tokenizer().save_pretrained(folder)


def t5_tokens(folder: Path) -> None:
    tok.t5_tokenizer().save_pretrained(folder)


def qwen_tokens(folder: Path) -> None:
    tok.qwen_tokenizer(131072).save_pretrained(folder)


def ddim() -> Any:
    from diffusers import DDIMScheduler

    return DDIMScheduler(beta_schedule="scaled_linear", clip_sample=False, steps_offset=1)


def euler() -> Any:
    from diffusers import EulerDiscreteScheduler

    return EulerDiscreteScheduler(beta_schedule="scaled_linear", timestep_spacing="leading")


def dpm() -> Any:
    from diffusers import DPMSolverMultistepScheduler

    return DPMSolverMultistepScheduler()


def flow() -> Any:
    from diffusers import FlowMatchEulerDiscreteScheduler

    return FlowMatchEulerDiscreteScheduler(shift=3.0)


def dynamic_flow() -> Any:
    from diffusers import FlowMatchEulerDiscreteScheduler

    return FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True)


Part = tuple[str, str, Config | Callable[..., Any] | None]


def _sd15() -> dict[str, Part]:
    checker: Config = {
        "projection_dim": 768,
        "vision_config": {
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "patch_size": 14,
        },
    }

    def processor(folder: Path) -> None:
        from transformers import CLIPImageProcessor

        CLIPImageProcessor().save_pretrained(folder)

    return {
        "text_encoder": ("transformers", "CLIPTextModel", CLIP_L),
        "tokenizer": ("transformers", "CLIPTokenizer", clip_tokens),
        "vae": ("diffusers", "AutoencoderKL", VAE),
        "unet": (
            "diffusers",
            "UNet2DConditionModel",
            {"sample_size": 64, "cross_attention_dim": 768, "attention_head_dim": 8},
        ),
        "scheduler": ("diffusers", "DDIMScheduler", ddim),
        "safety_checker": ("stable_diffusion", "StableDiffusionSafetyChecker", checker),
        "feature_extractor": ("transformers", "CLIPImageProcessor", processor),
    }


def _sdxl() -> dict[str, Part]:
    unet: Config = {
        "sample_size": 128,
        "block_out_channels": [320, 640, 1280],
        "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
        "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
        "transformer_layers_per_block": [1, 2, 10],
        "attention_head_dim": [5, 10, 20],
        "cross_attention_dim": 2048,
        "use_linear_projection": True,
        "addition_embed_type": "text_time",
        "addition_time_embed_dim": 256,
        "projection_class_embeddings_input_dim": 2816,
    }
    return {
        "text_encoder": ("transformers", "CLIPTextModel", CLIP_L),
        "text_encoder_2": ("transformers", "CLIPTextModelWithProjection", CLIP_G),
        "tokenizer": ("transformers", "CLIPTokenizer", clip_tokens),
        "tokenizer_2": ("transformers", "CLIPTokenizer", clip_tokens),
        "vae": (
            "diffusers",
            "AutoencoderKL",
            VAE | {"scaling_factor": 0.13025, "sample_size": 1024},
        ),
        "unet": ("diffusers", "UNet2DConditionModel", unet),
        "scheduler": ("diffusers", "EulerDiscreteScheduler", euler),
    }


def _sd3() -> dict[str, Part]:
    transformer: Config = {
        "sample_size": 128,
        "patch_size": 2,
        "in_channels": 16,
        "out_channels": 16,
        "num_layers": 24,
        "attention_head_dim": 64,
        "num_attention_heads": 24,
        "joint_attention_dim": 4096,
        "caption_projection_dim": 1536,
        "pooled_projection_dim": 2048,
        "pos_embed_max_size": 192,
    }
    return {
        "text_encoder": ("transformers", "CLIPTextModelWithProjection", CLIP_L),
        "text_encoder_2": ("transformers", "CLIPTextModelWithProjection", CLIP_G),
        "text_encoder_3": ("transformers", "T5EncoderModel", T5_XXL),
        "tokenizer": ("transformers", "CLIPTokenizer", clip_tokens),
        "tokenizer_2": ("transformers", "CLIPTokenizer", clip_tokens),
        "tokenizer_3": ("transformers", "T5Tokenizer", t5_tokens),
        "vae": (
            "diffusers",
            "AutoencoderKL",
            VAE_16 | {"scaling_factor": 1.5305, "shift_factor": 0.0609},
        ),
        "transformer": ("diffusers", "SD3Transformer2DModel", transformer),
        "scheduler": ("diffusers", "FlowMatchEulerDiscreteScheduler", flow),
    }


def _flux() -> dict[str, Part]:
    transformer: Config = {
        "patch_size": 1,
        "in_channels": 64,
        "num_layers": 19,
        "num_single_layers": 38,
        "attention_head_dim": 128,
        "num_attention_heads": 24,
        "joint_attention_dim": 4096,
        "pooled_projection_dim": 768,
        "guidance_embeds": True,
    }
    return {
        "text_encoder": ("transformers", "CLIPTextModel", CLIP_L),
        "text_encoder_2": ("transformers", "T5EncoderModel", T5_XXL),
        "tokenizer": ("transformers", "CLIPTokenizer", clip_tokens),
        "tokenizer_2": ("transformers", "T5Tokenizer", t5_tokens),
        "vae": ("diffusers", "AutoencoderKL", VAE_16),
        "transformer": ("diffusers", "FluxTransformer2DModel", transformer),
        "scheduler": ("diffusers", "FlowMatchEulerDiscreteScheduler", dynamic_flow),
    }


def _pixart() -> dict[str, Part]:
    transformer: Config = {
        "num_attention_heads": 16,
        "attention_head_dim": 72,
        "in_channels": 4,
        "out_channels": 8,
        "num_layers": 28,
        "cross_attention_dim": 1152,
        "attention_bias": True,
        "sample_size": 128,
        "patch_size": 2,
        "activation_fn": "gelu-approximate",
        "norm_type": "ada_norm_single",
        "norm_elementwise_affine": False,
        "norm_eps": 1e-6,
        "interpolation_scale": 2,
        "use_additional_conditions": False,
        "caption_channels": 4096,
    }
    return {
        "text_encoder": ("transformers", "T5EncoderModel", T5_XXL),
        "tokenizer": ("transformers", "T5Tokenizer", t5_tokens),
        "vae": (
            "diffusers",
            "AutoencoderKL",
            VAE | {"scaling_factor": 0.13025, "sample_size": 1024},
        ),
        "transformer": ("diffusers", "PixArtTransformer2DModel", transformer),
        "scheduler": ("diffusers", "DPMSolverMultistepScheduler", dpm),
    }


def _qwenimage() -> dict[str, Part]:
    encoder: Config = {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "model_type": "qwen2_5_vl",
        "torch_dtype": "bfloat16",
        "image_token_id": tok.qwen_id("<|image_pad|>"),
        "video_token_id": tok.qwen_id("<|video_pad|>"),
        "vision_start_token_id": tok.qwen_id("<|vision_start|>"),
        "vision_end_token_id": tok.qwen_id("<|vision_end|>"),
        "tie_word_embeddings": False,
        "text_config": {
            "model_type": "qwen2_5_vl_text",
            "dtype": "bfloat16",
            "vocab_size": 152064,
            "hidden_size": 3584,
            "intermediate_size": 18944,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "max_position_embeddings": 128000,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1000000.0,
                "mrope_section": [16, 24, 24],
            },
        },
        "vision_config": {
            "model_type": "qwen2_5_vl_vision",
            "depth": 32,
            "hidden_size": 1280,
            "intermediate_size": 3420,
            "num_heads": 16,
            "out_hidden_size": 3584,
            "patch_size": 14,
            "fullatt_block_indexes": [7, 15, 23, 31],
        },
    }
    transformer: Config = {
        "patch_size": 2,
        "in_channels": 64,
        "out_channels": 16,
        "num_layers": 60,
        "attention_head_dim": 128,
        "num_attention_heads": 24,
        "joint_attention_dim": 3584,
        "guidance_embeds": False,
        "axes_dims_rope": [16, 56, 56],
    }
    codec: Config = {
        "base_dim": 96,
        "z_dim": 16,
        "dim_mult": [1, 2, 4, 4],
        "num_res_blocks": 2,
        "temperal_downsample": [False, True, True],
        "latents_mean": [0.0] * 16,
        "latents_std": [1.0] * 16,
    }
    return {
        "text_encoder": ("transformers", "Qwen2_5_VLForConditionalGeneration", encoder),
        "tokenizer": ("transformers", "Qwen2Tokenizer", qwen_tokens),
        "vae": ("diffusers", "AutoencoderKLQwenImage", codec),
        "transformer": ("diffusers", "QwenImageTransformer2DModel", transformer),
        "scheduler": ("diffusers", "FlowMatchEulerDiscreteScheduler", dynamic_flow),
    }


def _zimage() -> dict[str, Part]:
    encoder: Config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "torch_dtype": "bfloat16",
        "vocab_size": 151936,
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 40960,
        "tie_word_embeddings": True,
    }
    transformer: Config = {
        "all_patch_size": [2],
        "all_f_patch_size": [1],
        "in_channels": 16,
        "dim": 3840,
        "n_layers": 30,
        "n_refiner_layers": 2,
        "n_heads": 30,
        "n_kv_heads": 30,
        "norm_eps": 1e-5,
        "qk_norm": True,
        "cap_feat_dim": 2560,
        "rope_theta": 256.0,
        "t_scale": 1000.0,
        "axes_dims": [32, 48, 48],
        "axes_lens": [1536, 512, 512],
    }
    return {
        "text_encoder": ("transformers", "Qwen3Model", encoder),
        "tokenizer": ("transformers", "Qwen2Tokenizer", qwen_tokens),
        "vae": ("diffusers", "AutoencoderKL", VAE_16),
        "transformer": ("diffusers", "ZImageTransformer2DModel", transformer),
        "scheduler": ("diffusers", "FlowMatchEulerDiscreteScheduler", flow),
    }


# name -> (pipeline class, its parts, settings of model_index.json)
MODELS: dict[str, tuple[str, Callable[[], dict[str, Part]], Config]] = {
    "sd15": ("StableDiffusionPipeline", _sd15, {"requires_safety_checker": True}),
    "sdxl": ("StableDiffusionXLPipeline", _sdxl, {"force_zeros_for_empty_prompt": True}),
    "sd3": ("StableDiffusion3Pipeline", _sd3, {}),
    "flux": ("FluxPipeline", _flux, {}),
    "pixart_sigma": ("PixArtSigmaPipeline", _pixart, {}),
    "qwenimage": ("QwenImagePipeline", _qwenimage, {}),
    "zimage": ("ZImagePipeline", _zimage, {}),
}


def write(name: str, folder: Path) -> Path:
    """Write the configs of a model to folder/name."""
    kind, parts, settings = MODELS[name]
    index: Config = {"_class_name": kind, "_diffusers_version": "0.35.0", **settings}
    for part, (library, class_name, content) in parts().items():
        at = folder / name / part
        at.mkdir(parents=True)
        index[part] = [library, class_name]
        if isinstance(content, dict):
            file = at / "config.json"
            file.write_text(json.dumps({"_class_name": class_name, **content}, indent=1))
        elif part == "scheduler" and content is not None:
            content().save_pretrained(at)
        elif content is not None:
            content(at)
    (folder / name / "model_index.json").write_text(json.dumps(index, indent=1))
    return folder / name
