"""Pipelines with another UNet than Stable Diffusion's."""

from typing import Any

import diffusers
import torch
import transformers
from tiny import FAMILIES, SMALL, family

from pipelines import denoisers as nets
from pipelines import parts
from pipelines import tokenizers as tok
from pipelines.parts import ddim, flow, moved, qwen3_vl, qwen3_vl_processor


@family("ldm", height=64, width=64, num_inference_steps=2, guidance_scale=5.0)
def _ldm() -> Any:
    """The first latent diffusion model, its text encoder a class of diffusers, the negative pass first."""
    from diffusers.pipelines.latent_diffusion.pipeline_latent_diffusion import (
        LDMBertConfig,
        LDMBertModel,
    )

    torch.manual_seed(0)
    bert = LDMBertModel(
        LDMBertConfig(
            vocab_size=tok.clip_size(),
            encoder_layers=2,
            encoder_ffn_dim=64,
            encoder_attention_heads=4,
            head_dim=8,
            d_model=32,
            max_position_embeddings=77,
        )
    )
    return diffusers.LDMTextToImagePipeline(
        vqvae=parts.vae(blocks=4),
        bert=bert,
        tokenizer=tok.clip_tokenizer(),
        unet=nets.unet(sample_size=8),
        scheduler=ddim(),
    )


@family("versatile", **SMALL)
def _versatile() -> Any:
    """A UNet that lends its attention to that of another one."""
    torch.manual_seed(0)
    text_unet = moved("versatile_diffusion.modeling_text_unet").UNetFlatConditionModel(
        sample_size=16,
        layers_per_block=1,
        block_out_channels=(16, 32),
        down_block_types=("CrossAttnDownBlockFlat", "DownBlockFlat"),
        up_block_types=("UpBlockFlat", "CrossAttnUpBlockFlat"),
        cross_attention_dim=32,
        attention_head_dim=4,
        norm_num_groups=4,
    )
    return diffusers.VersatileDiffusionTextToImagePipeline(
        tokenizer=tok.clip_tokenizer(),
        text_encoder=parts.clip_text(32),
        image_unet=nets.unet(),
        text_unet=text_unet,
        vae=parts.vae(),
        scheduler=ddim(),
    )


@family("deepfloyd_if", **SMALL, clean_caption=False)
def _deepfloyd() -> Any:
    unet = nets.simple_cross_unet(
        sample_size=32,
        in_channels=3,
        out_channels=6,
        attention_head_dim=8,
        addition_embed_type="text",
        addition_embed_type_num_heads=2,
        cross_attention_norm="group_norm",
        act_fn="gelu",
    )
    return diffusers.IFPipeline(
        tokenizer=tok.t5_tokenizer(),
        text_encoder=parts.t5_encoder(),
        unet=unet,
        scheduler=diffusers.DDPMScheduler(
            beta_schedule="squaredcos_cap_v2", variance_type="learned_range"
        ),
        safety_checker=None,
        feature_extractor=None,
        watermarker=None,
        requires_safety_checker=False,
    )


@family("super_resolution", height=32, width=32, num_inference_steps=2)
def _super_resolution() -> Any:
    """DeepFloyd's second stage alone."""
    given = dict(FAMILIES["deepfloyd_if"].build().components)
    return diffusers.IFSuperResolutionPipeline(
        **given, image_noising_scheduler=diffusers.DDPMScheduler(), requires_safety_checker=False
    )


@family("kandinsky3", **SMALL)
def _kandinsky3() -> Any:
    torch.manual_seed(0)
    unet = diffusers.Kandinsky3UNet(
        in_channels=4,
        time_embedding_dim=4,
        groups=2,
        attention_head_dim=4,
        layers_per_block=3,
        block_out_channels=(32, 64),
        cross_attention_dim=4,
        encoder_hid_dim=32,
    )
    return diffusers.Kandinsky3Pipeline(
        tokenizer=tok.t5_tokenizer(),
        text_encoder=parts.t5_encoder(),
        unet=unet,
        scheduler=diffusers.DDPMScheduler(),
        movq=parts.movq(),
    )


def _dreamlite(kind: str) -> Any:
    torch.manual_seed(0)
    unet = diffusers.DreamLiteUNetModel(
        sample_size=16,
        layers_per_block=1,
        block_out_channels=(16, 32),
        down_block_types=(
            "DreamLiteCrossAttnNoSelfAttnDownBlock2D",
            "DreamLiteCrossAttnDownBlock2D",
        ),
        up_block_types=("DreamLiteCrossAttnUpBlock2D", "DreamLiteCrossAttnNoSelfAttnUpBlock2D"),
        cross_attention_dim=32,
        attention_head_dim=2,
        norm_num_groups=4,
        encoder_hid_dim=32,
        encoder_hid_dim_type="text_proj_rms",
        addition_embed_type="time",
        addition_time_embed_dim=8,
        projection_class_embeddings_input_dim=16,
    )
    torch.manual_seed(0)
    codec = diffusers.AutoencoderTiny(
        encoder_block_out_channels=(8, 8),
        decoder_block_out_channels=(8, 8),
        num_encoder_blocks=(1, 1),
        num_decoder_blocks=(1, 1),
    )
    return getattr(diffusers, kind)(
        text_encoder=qwen3_vl(generates=True),
        tokenizer=tok.qwen_tokenizer(),
        processor=qwen3_vl_processor(),
        vae=codec,
        unet=unet,
        scheduler=flow(use_dynamic_shifting=True),
    )


@family("dreamlite", **SMALL)
def _dreamlite_guided() -> Any:
    """One prompt a call; the picture in the making has a blank one beside it."""
    return _dreamlite("DreamLitePipeline")


@family("dreamlite_mobile", **SMALL)
def _dreamlite_mobile() -> Any:
    return _dreamlite("DreamLiteMobilePipeline")


@family("unconditional")
def _unconditional() -> Any:
    torch.manual_seed(0)
    unet = diffusers.UNet2DModel(
        sample_size=16,
        layers_per_block=1,
        block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=4,
    )
    return diffusers.DDPMPipeline(unet=unet, scheduler=diffusers.DDPMScheduler())


@family("audio", num_inference_steps=2, audio_length_in_s=0.1)
def _audio() -> Any:
    """Sounds from a text."""
    torch.manual_seed(0)
    encoder = transformers.ClapTextModelWithProjection(
        transformers.ClapTextConfig(
            vocab_size=tok.clip_size(),
            hidden_size=32,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            projection_dim=32,
        )
    )
    vocoder = transformers.SpeechT5HifiGan(
        transformers.SpeechT5HifiGanConfig(
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
    return diffusers.AudioLDMPipeline(
        vae=parts.vae(channels=1),
        text_encoder=encoder,
        tokenizer=tok.clip_tokenizer(),
        unet=unet,
        scheduler=ddim(),
        vocoder=vocoder,
    )
