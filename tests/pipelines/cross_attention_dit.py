"""Transformers of image tokens that look at the text by cross-attention."""

from typing import Any

import diffusers
import torch
import transformers
from tiny import FAMILIES, SMALL, family

from pipelines import parts
from pipelines import tokenizers as tok
from pipelines.parts import flow


@family("pixart_alpha", **SMALL, use_resolution_binning=False, clean_caption=False)
def _pixart_alpha() -> Any:
    torch.manual_seed(0)
    transformer = diffusers.PixArtTransformer2DModel(
        sample_size=16,
        num_layers=2,
        patch_size=2,
        attention_head_dim=8,
        num_attention_heads=4,
        caption_channels=32,
        in_channels=4,
        cross_attention_dim=32,
        out_channels=8,
        use_additional_conditions=False,
    )
    return diffusers.PixArtAlphaPipeline(
        tokenizer=tok.t5_tokenizer(),
        text_encoder=parts.t5_encoder(),
        vae=parts.vae(),
        transformer=transformer,
        scheduler=diffusers.DPMSolverMultistepScheduler(),
    )


@family("pixart_sigma", **SMALL, use_resolution_binning=False)
def _pixart() -> Any:
    torch.manual_seed(0)
    transformer = diffusers.PixArtTransformer2DModel(
        num_attention_heads=2,
        attention_head_dim=16,
        in_channels=4,
        out_channels=8,
        num_layers=3,
        norm_num_groups=4,
        cross_attention_dim=32,
        sample_size=16,
        patch_size=2,
        caption_channels=32,
        use_additional_conditions=False,
    )
    return diffusers.PixArtSigmaPipeline(
        tokenizer=tok.t5_tokenizer(),
        text_encoder=parts.t5_encoder(),
        vae=parts.vae(),
        transformer=transformer,
        scheduler=diffusers.DPMSolverMultistepScheduler(),
    )


@family("pixart_pag", **SMALL, use_resolution_binning=False, clean_caption=False, pag_scale=3.0)
def _pixart_pag() -> Any:
    given = dict(_pixart_alpha().components)
    return diffusers.PixArtSigmaPAGPipeline(**given, pag_applied_layers=["blocks.1"])


def sana_transformer(**changes: Any) -> Any:
    torch.manual_seed(0)
    settings: dict[str, Any] = {
        "patch_size": 1,
        "in_channels": 4,
        "out_channels": 4,
        "num_layers": 3,
        "num_attention_heads": 2,
        "attention_head_dim": 16,
        "num_cross_attention_heads": 2,
        "cross_attention_head_dim": 16,
        "cross_attention_dim": 32,
        "caption_channels": 32,
        "sample_size": 32,
    }
    return diffusers.SanaTransformer2DModel(**(settings | changes))


@family("sana", **SMALL, use_resolution_binning=False)
def _sana() -> Any:
    torch.manual_seed(0)
    codec = diffusers.AutoencoderDC(
        latent_channels=4,
        attention_head_dim=4,
        encoder_block_types=("ResBlock", "EfficientViTBlock"),
        decoder_block_types=("ResBlock", "EfficientViTBlock"),
        encoder_block_out_channels=(8, 8),
        decoder_block_out_channels=(8, 8),
        encoder_qkv_multiscales=((), (5,)),
        decoder_qkv_multiscales=((), (5,)),
        encoder_layers_per_block=(1, 1),
        decoder_layers_per_block=(1, 1),
        downsample_block_type="conv",
        upsample_block_type="interpolate",
    )
    return diffusers.SanaPipeline(
        tokenizer=tok.gemma_tokenizer(4096),
        text_encoder=parts.gemma2(),
        vae=codec,
        transformer=sana_transformer(),
        scheduler=flow(shift=3.0),
    )


@family("sana_pag", **SMALL, use_resolution_binning=False, pag_scale=3.0)
def _sana_pag() -> Any:
    given = FAMILIES["sana"].build().components
    return diffusers.SanaPAGPipeline(**given, pag_applied_layers=["transformer_blocks.1"])


@family("sana_sprint", **SMALL, use_resolution_binning=False)
def _sana_sprint() -> Any:
    """Distilled to two steps, guidance as an embedding."""
    given = dict(FAMILIES["sana"].build().components)
    given["transformer"] = sana_transformer(guidance_embeds=True, qk_norm="rms_norm_across_heads")
    given["scheduler"] = diffusers.SCMScheduler()
    return diffusers.SanaSprintPipeline(**given)


@family("hunyuandit", height=64, width=64, num_inference_steps=2, use_resolution_binning=False)
def _hunyuandit() -> Any:
    """Two text encoders, BERT and T5, and blocks with skips."""
    torch.manual_seed(0)
    bert = transformers.BertModel(
        transformers.BertConfig(
            vocab_size=tok.clip_size(),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
        )
    )
    transformer = diffusers.HunyuanDiT2DModel(
        num_attention_heads=2,
        attention_head_dim=16,
        in_channels=4,
        patch_size=2,
        sample_size=16,
        hidden_size=32,
        num_layers=4,
        mlp_ratio=2.0,
        cross_attention_dim=32,
        cross_attention_dim_t5=32,
        pooled_projection_dim=16,
        text_len=77,
        text_len_t5=256,
    )
    return diffusers.HunyuanDiTPipeline(
        vae=parts.vae(blocks=4),
        text_encoder=bert,
        tokenizer=tok.clip_tokenizer(),
        transformer=transformer,
        scheduler=diffusers.DDPMScheduler(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
        text_encoder_2=parts.t5_encoder(),
        tokenizer_2=tok.t5_tokenizer(),
    )


@family("hunyuandit_pag", height=64, width=64, num_inference_steps=2, use_resolution_binning=False)
def _hunyuandit_pag() -> Any:
    given = FAMILIES["hunyuandit"].build().components
    return diffusers.HunyuanDiTPAGPipeline(
        **given, requires_safety_checker=False, pag_applied_layers=["blocks.1"]
    )


@family("lumina", height=64, width=64, num_inference_steps=2, clean_caption=False)
def _lumina() -> Any:
    """The first Lumina: [conditional, unconditional]."""
    torch.manual_seed(0)
    transformer = diffusers.LuminaNextDiT2DModel(
        sample_size=8,
        patch_size=2,
        in_channels=4,
        hidden_size=32,
        num_layers=2,
        num_attention_heads=2,
        num_kv_heads=1,
        multiple_of=16,
        cross_attention_dim=32,
    )
    with torch.no_grad():  # made by torch.empty
        transformer.pad_token.normal_(std=0.02)
    return diffusers.LuminaPipeline(
        transformer=transformer,
        scheduler=flow(),
        vae=parts.vae(blocks=4),
        text_encoder=parts.gemma2(),
        tokenizer=tok.gemma_tokenizer(),
    )


@family("prx", **SMALL, use_resolution_binning=False)
def _prx() -> Any:
    """Blocks that see the text only as keys and values."""
    torch.manual_seed(0)
    transformer = diffusers.PRXTransformer2DModel(
        in_channels=4,
        patch_size=1,
        context_in_dim=32,
        hidden_size=16,
        mlp_ratio=2.0,
        num_heads=2,
        depth=2,
        axes_dim=[4, 4],
    )
    return diffusers.PRXPipeline(
        transformer=transformer,
        scheduler=flow(),
        text_encoder=parts.gemma2(),
        tokenizer=tok.gemma_tokenizer(64),
        vae=parts.vae(shift=0.1),
        default_sample_size=32,
    )


@family("prx_pixel", **SMALL, use_resolution_binning=False)
def _prx_pixel() -> Any:
    """Pixels, and no codec."""
    torch.manual_seed(0)
    transformer = diffusers.PRXTransformer2DModel(
        in_channels=3,
        patch_size=4,
        context_in_dim=32,
        hidden_size=16,
        mlp_ratio=2.0,
        num_heads=2,
        depth=2,
        axes_dim=[4, 4],
        bottleneck_size=8,
        resolution_embeds=True,
    )
    return diffusers.PRXPixelPipeline(
        transformer=transformer,
        scheduler=flow(),
        text_encoder=parts.gemma2(),
        tokenizer=tok.gemma_tokenizer(64),
        default_sample_size=32,
        prompt_max_tokens=64,
    )


@family("kandinsky5", num_inference_steps=2)
def _kandinsky5() -> Any:
    """Feature maps with the channels last; one of seven sizes of about 128 x 128 latents, here pixels."""
    tokenizer = tok.qwen_tokenizer()
    torch.manual_seed(0)
    transformer = diffusers.Kandinsky5Transformer3DModel(
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
    return diffusers.Kandinsky5T2IPipeline(
        transformer=transformer,
        vae=parts.vae(blocks=1, attends=False),
        text_encoder=parts.qwen25_vl(),
        tokenizer=transformers.Qwen2_5_VLProcessor(
            transformers.Qwen2VLImageProcessor(patch_size=4),
            tokenizer,
            transformers.Qwen2VLVideoProcessor(patch_size=4),
            chat_template=tokenizer.chat_template,
        ),
        text_encoder_2=parts.clip_text(),
        tokenizer_2=tok.clip_tokenizer(),
        scheduler=flow(shift=5.0),
    )


class NoGuard:
    """Cosmos' guardrail, which lets everything pass."""

    def to(self, _device: Any) -> None: ...

    def check_text_safety(self, _prompt: str) -> bool:
        return True

    def check_video_safety(self, frames: Any) -> Any:
        return frames


@family("cosmos2", **SMALL)
def _cosmos2() -> Any:
    """A video transformer that draws one frame; two calls a step."""
    from diffusers.pipelines.cosmos import pipeline_cosmos2_text2image

    pipeline_cosmos2_text2image.CosmosSafetyChecker = NoGuard  # it is no part of a checkpoint
    torch.manual_seed(0)
    transformer = diffusers.CosmosTransformer3DModel(
        in_channels=4,
        out_channels=4,
        num_attention_heads=2,
        attention_head_dim=16,
        num_layers=3,
        mlp_ratio=2,
        text_embed_dim=32,
        adaln_lora_dim=4,
        max_size=(4, 32, 32),
        patch_size=(1, 2, 2),
        extra_pos_embed_type=None,
    )
    pipe = diffusers.Cosmos2TextToImagePipeline(
        text_encoder=parts.t5_encoder(),
        tokenizer=tok.t5_tokenizer(),
        transformer=transformer,
        vae=parts.wan_vae(),
        scheduler=flow(use_karras_sigmas=True),
    )
    pipe.register_modules(safety_checker=None)
    return pipe


@family("labels", num_inference_steps=2)
def _labels() -> Any:
    """Pictures of a class number."""
    torch.manual_seed(0)
    transformer = diffusers.DiTTransformer2DModel(
        sample_size=16,
        num_layers=2,
        patch_size=4,
        attention_head_dim=8,
        num_attention_heads=2,
        in_channels=4,
        out_channels=8,
        num_embeds_ada_norm=1000,
    )
    return diffusers.DiTPipeline(
        transformer=transformer,
        vae=parts.vae(),
        scheduler=diffusers.DDIMScheduler(),
        id2label={"0": "circle"},
    )


@family("video", **SMALL)
def _video() -> Any:
    torch.manual_seed(0)
    transformer = diffusers.WanTransformer3DModel(
        patch_size=(1, 2, 2),
        num_attention_heads=2,
        attention_head_dim=12,
        in_channels=4,
        out_channels=4,
        text_dim=32,
        freq_dim=16,
        ffn_dim=32,
        num_layers=1,
        rope_max_seq_len=32,
    )
    codec = diffusers.AutoencoderKLWan(
        base_dim=4, z_dim=4, dim_mult=[1, 1], num_res_blocks=1, temperal_downsample=[False]
    )
    return diffusers.WanPipeline(
        tokenizer=tok.t5_tokenizer(),
        text_encoder=parts.umt5_encoder(),
        vae=codec,
        scheduler=flow(),
        transformer=transformer,
    )
