"""Families whose text states, stages or tokenizers are like no other's."""

from typing import Any

import tiny_denoisers as nets
import tiny_parts as parts
import tiny_tokenizers as tok
import torch
from tiny import SMALL, family, flow


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


@family("krea2", **SMALL, negative_prompt="bad")
def _krea2() -> Any:
    """Text states of several layers per token, pads in the middle of the template."""
    from diffusers import Krea2Pipeline, Krea2Transformer2DModel

    torch.manual_seed(0)
    transformer = Krea2Transformer2DModel(
        in_channels=16,
        num_layers=2,
        attention_head_dim=16,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=32,
        timestep_embed_dim=16,
        text_hidden_dim=32,
        num_text_layers=2,
        text_num_attention_heads=2,
        text_num_key_value_heads=2,
        text_intermediate_size=32,
        num_layerwise_text_blocks=1,
        num_refiner_text_blocks=1,
        axes_dims_rope=(4, 6, 6),
    )
    return Krea2Pipeline(
        scheduler=flow(use_dynamic_shifting=True),
        vae=parts.qwen_image_vae(),
        text_encoder=qwen3_vl(),
        tokenizer=tok.qwen_tokenizer(),
        transformer=transformer,
        text_encoder_select_layers=(1, 2),
    )


@family("prx", **SMALL, use_resolution_binning=False)
def _prx() -> Any:
    """Blocks that see the text only as keys and values."""
    from diffusers import PRXPipeline, PRXTransformer2DModel

    torch.manual_seed(0)
    transformer = PRXTransformer2DModel(
        in_channels=4,
        patch_size=1,
        context_in_dim=32,
        hidden_size=16,
        mlp_ratio=2.0,
        num_heads=2,
        depth=2,
        axes_dim=[4, 4],
    )
    return PRXPipeline(
        transformer=transformer,
        scheduler=flow(),
        text_encoder=parts.gemma2(),
        tokenizer=tok.gemma_tokenizer(64),
        vae=parts.vae(shift=0.1),
        default_sample_size=32,
    )


@family("kandinsky21", height=64, width=64, num_inference_steps=2, prior_num_inference_steps=2)
def _kandinsky21() -> Any:
    """A prior with a CLIP, a UNet with a multilingual text encoder of its own."""
    from diffusers import (
        DDIMScheduler,
        KandinskyCombinedPipeline,
        UnCLIPScheduler,
    )
    from diffusers.pipelines.kandinsky.text_encoder import MCLIPConfig, MultilingualCLIP

    encoder = MultilingualCLIP(
        MCLIPConfig(
            numDims=32,
            transformerDimensions=32,
            hidden_size=32,
            intermediate_size=64,
            num_attention_heads=4,
            num_hidden_layers=2,
            vocab_size=tok.clip_size(),
            max_position_embeddings=128,
        )
    )
    unet = nets.simple_cross_unet(
        out_channels=8,
        addition_embed_type="text_image",
        addition_embed_type_num_heads=2,
        encoder_hid_dim_type="text_image_proj",
        encoder_hid_dim=32,
    )
    return KandinskyCombinedPipeline(
        text_encoder=encoder,
        tokenizer=tok.clip_tokenizer(),
        unet=unet,
        scheduler=DDIMScheduler(clip_sample=False),
        movq=parts.movq(),
        prior_prior=nets.prior(2),
        prior_image_encoder=parts.clip_vision(),
        prior_text_encoder=parts.clip_text(32),
        prior_tokenizer=tok.clip_tokenizer(),
        prior_scheduler=UnCLIPScheduler(variance_type="fixed_small_log", prediction_type="sample"),
        prior_image_processor=parts.image_processor(),
    )


@family("ldm3d", **SMALL)
def _ldm3d() -> Any:
    """Gives a picture and a depth map."""
    from tiny import sd

    return sd("StableDiffusionLDM3DPipeline", image_encoder=None)


@family("sag", **SMALL, sag_scale=1.0)
def _sag() -> Any:
    """Self-attention guidance: the denoiser is called once more, on a blurred picture."""
    from tiny import sd

    return sd("StableDiffusionSAGPipeline", image_encoder=None)


@family("panorama", height=32, width=64, num_inference_steps=2)
def _panorama() -> Any:
    """One picture from overlapping views."""
    from tiny import sd

    return sd("StableDiffusionPanoramaPipeline")


@family("semantic", **SMALL)
def _semantic() -> Any:
    from tiny import sd

    return sd("SemanticStableDiffusionPipeline")


@family("inpaint", **SMALL)
def _inpaint() -> Any:
    from tiny import sd

    return sd("StableDiffusionInpaintPipeline", unet=nets.unet(in_channels=9))


@family("controlnet", **SMALL)
def _controlnet() -> Any:
    from diffusers import ControlNetModel
    from tiny import sd

    unet = nets.unet()
    return sd(
        "StableDiffusionControlNetPipeline", unet=unet, controlnet=ControlNetModel.from_unet(unet)
    )


@family("labels", num_inference_steps=2)
def _labels() -> Any:
    """Pictures of a class number."""
    from diffusers import DDIMScheduler, DiTPipeline, DiTTransformer2DModel

    torch.manual_seed(0)
    transformer = DiTTransformer2DModel(
        sample_size=16,
        num_layers=2,
        patch_size=4,
        attention_head_dim=8,
        num_attention_heads=2,
        in_channels=4,
        out_channels=8,
        num_embeds_ada_norm=1000,
    )
    return DiTPipeline(
        transformer=transformer,
        vae=parts.vae(),
        scheduler=DDIMScheduler(),
        id2label={"0": "circle"},
    )


@family("audio", num_inference_steps=2, audio_length_in_s=0.1)
def _audio() -> Any:
    """Sounds from a text."""
    from diffusers import AudioLDMPipeline
    from tiny import ddim
    from transformers import (
        ClapTextConfig,
        ClapTextModelWithProjection,
        SpeechT5HifiGan,
        SpeechT5HifiGanConfig,
    )

    torch.manual_seed(0)
    encoder = ClapTextModelWithProjection(
        ClapTextConfig(
            vocab_size=tok.clip_size(),
            hidden_size=32,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            projection_dim=32,
        )
    )
    vocoder = SpeechT5HifiGan(
        SpeechT5HifiGanConfig(
            model_in_dim=8,
            sampling_rate=16000,
            upsample_initial_channel=16,
            upsample_rates=[2, 2],
            upsample_kernel_sizes=[4, 4],
            resblock_kernel_sizes=[3, 7],
            resblock_dilation_sizes=[[1, 3, 5], [1, 3, 5]],
            normalize_before=False,
        )
    )
    unet = nets.unet(
        class_embed_type="simple_projection",
        projection_class_embeddings_input_dim=32,
        class_embeddings_concat=True,
        down_block_types=("DownBlock2D", "DownBlock2D"),
        mid_block_type=None,
        up_block_types=("UpBlock2D", "UpBlock2D"),
    )
    return AudioLDMPipeline(
        vae=parts.vae(channels=1),
        text_encoder=encoder,
        tokenizer=tok.clip_tokenizer(),
        unet=unet,
        scheduler=ddim(),
        vocoder=vocoder,
    )
