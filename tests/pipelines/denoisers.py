"""Tiny random denoisers, with the structure of the real ones."""

from typing import Any

import torch


def unet(**changes: Any) -> Any:
    """The UNet of SD 1.x in small."""
    from diffusers import UNet2DConditionModel

    torch.manual_seed(0)
    settings: dict[str, Any] = {
        "sample_size": 16,
        "layers_per_block": 1,
        "block_out_channels": (16, 32),
        "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
        "cross_attention_dim": 32,
        "attention_head_dim": 4,
        "norm_num_groups": 4,
    }
    return UNet2DConditionModel(**(settings | changes))


def simple_cross_unet(**changes: Any) -> Any:
    """The UNet of DeepFloyd IF and of Kandinsky 2.2 in small."""
    settings: dict[str, Any] = {
        "down_block_types": ("ResnetDownsampleBlock2D", "SimpleCrossAttnDownBlock2D"),
        "mid_block_type": "UNetMidBlock2DSimpleCrossAttn",
        "up_block_types": ("SimpleCrossAttnUpBlock2D", "ResnetUpsampleBlock2D"),
        "encoder_hid_dim": 32,
        "resnet_time_scale_shift": "scale_shift",
    }
    return unet(**(settings | changes))


def prior(layers: int) -> Any:
    """The prior of unCLIP and the Kandinsky models: from a text to the vector of an image."""
    from diffusers import PriorTransformer

    torch.manual_seed(0)
    made = PriorTransformer(
        num_attention_heads=2, attention_head_dim=16, num_layers=layers, embedding_dim=32
    )
    with torch.no_grad():  # made by torch.empty
        made.clip_std.fill_(1.0)
        made.clip_mean.zero_()
    return made


def sd3_transformer(**changes: Any) -> Any:
    from diffusers import SD3Transformer2DModel

    torch.manual_seed(0)
    settings: dict[str, Any] = {
        "sample_size": 32,
        "patch_size": 2,
        "in_channels": 8,
        "out_channels": 8,
        "num_layers": 4,
        "attention_head_dim": 8,
        "num_attention_heads": 4,
        "joint_attention_dim": 64,
        "caption_projection_dim": 32,
        "pooled_projection_dim": 64,
        "pos_embed_max_size": 64,
    }
    return SD3Transformer2DModel(**(settings | changes))


def flux_like(kind: str, **settings: Any) -> Any:
    """One of the transformers made after FLUX.1: two streams, then one."""
    import diffusers

    torch.manual_seed(0)
    shared: dict[str, Any] = {
        "patch_size": 1,
        "in_channels": 16,
        "num_layers": 2,
        "num_single_layers": 2,
        "attention_head_dim": 16,
        "num_attention_heads": 2,
        "joint_attention_dim": 32,
        "axes_dims_rope": (4, 4, 8),
    }
    return getattr(diffusers, kind)(**(shared | settings))


def flux2_transformer(joint: int, guidance: bool) -> Any:
    from diffusers import Flux2Transformer2DModel

    torch.manual_seed(0)
    return Flux2Transformer2DModel(
        patch_size=1,
        in_channels=16,
        num_layers=2,
        num_single_layers=2,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=joint,
        timestep_guidance_channels=16,
        axes_dims_rope=(4, 4, 4, 4),
        **({} if guidance else {"guidance_embeds": False}),  # older releases have no other
    )


def zimage_transformer(**changes: Any) -> Any:
    from diffusers import ZImageTransformer2DModel

    torch.manual_seed(0)
    settings: dict[str, Any] = {
        "all_patch_size": (2,),
        "all_f_patch_size": (1,),
        "in_channels": 8,
        "dim": 32,
        "n_layers": 2,
        "n_refiner_layers": 1,
        "n_heads": 2,
        "n_kv_heads": 2,
        "cap_feat_dim": 32,
        "axes_dims": [8, 4, 4],
        "axes_lens": [256, 64, 64],
    }
    made = ZImageTransformer2DModel(**(settings | changes))
    with torch.no_grad():  # made by torch.empty
        made.x_pad_token.normal_(std=0.02)
        made.cap_pad_token.normal_(std=0.02)
    return made
