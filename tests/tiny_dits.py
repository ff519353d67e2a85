"""Diffusion transformers of later years, each with another text encoder, stream or padding."""

from typing import Any

import tiny_denoisers as nets
import tiny_parts as parts
import tiny_tokenizers as tok
import torch
from tiny import SMALL, family, flow


@family("flux2", **SMALL, text_encoder_out_layers="[1, 2, 3]")
def _flux2() -> Any:
    """Three layers of a Mistral side by side as text states, behind a system prompt."""
    from diffusers import Flux2Pipeline
    from transformers import Mistral3Config, Mistral3ForConditionalGeneration

    tokenizer = tok.mistral_tokenizer()
    tokenizer.chat_template = tok.CHAT
    text = {
        "model_type": "mistral",
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 1024,
        "initializer_range": 0.2,
        "sliding_window": None,
    }
    vision = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 16,
        "patch_size": 8,
    }
    torch.manual_seed(0)
    encoder = Mistral3ForConditionalGeneration(
        Mistral3Config(
            text_config=text, vision_config=vision, image_token_index=2, spatial_merge_size=1
        )
    )
    return Flux2Pipeline(
        scheduler=flow(use_dynamic_shifting=True),
        vae=parts.flux2_vae(),
        text_encoder=encoder,
        tokenizer=tokenizer,
        transformer=nets.flux2_transformer(96, True),
    )


@family("flux2_klein", **SMALL, text_encoder_out_layers="[1, 2, 3]")
def _flux2_klein() -> Any:
    """FLUX.2 with a Qwen and classifier-free guidance by two calls."""
    from diffusers import Flux2KleinPipeline

    return Flux2KleinPipeline(
        scheduler=flow(use_dynamic_shifting=True),
        vae=parts.flux2_vae(),
        text_encoder=parts.qwen3(causal=True),
        tokenizer=tok.qwen_tokenizer(1024),
        transformer=nets.flux2_transformer(96, False),
    )


@family("hidream", num_inference_steps=2)
def _hidream() -> Any:
    """Four text encoders; every block is given a layer of Llama of its own.

    It draws 128 x 128 latents whatever it is asked for: here they are pixels, in large patches.
    """
    from diffusers import HiDreamImagePipeline, HiDreamImageTransformer2DModel
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = tok.mistral_tokenizer()
    tokenizer.padding_side = "right"
    torch.manual_seed(0)
    llama = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=512,
            initializer_range=0.2,
            attn_implementation="eager",
        )
    )
    torch.manual_seed(0)
    transformer = HiDreamImageTransformer2DModel(
        patch_size=4,
        in_channels=4,
        out_channels=4,
        num_layers=2,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        caption_channels=[32, 32],
        text_emb_dim=64,
        num_routed_experts=2,
        num_activated_experts=1,
        axes_dims_rope=(4, 4, 8),
        max_resolution=(128, 128),
        llama_layers=[0, 1, 2],
        force_inference_output=True,
    )
    return HiDreamImagePipeline(
        scheduler=flow(),
        vae=parts.vae(shift=0.1, blocks=1, attends=False),
        text_encoder=parts.clip_text(32, seed=1, positions=248),
        tokenizer=tok.clip_tokenizer(max_length=248),
        text_encoder_2=parts.clip_text(32, seed=2, positions=248),
        tokenizer_2=tok.clip_tokenizer(max_length=248),
        text_encoder_3=parts.t5_encoder(),
        tokenizer_3=tok.t5_tokenizer(),
        text_encoder_4=llama,
        tokenizer_4=tokenizer,
        transformer=transformer,
    )


@family("omnigen", height=32, width=32, num_inference_steps=2, max_input_image_size=32)
def _omnigen() -> Any:
    """No text encoder: token ids go into the denoiser itself."""
    from diffusers import OmniGenPipeline, OmniGenTransformer2DModel

    tokenizer = tok.mistral_tokenizer()
    torch.manual_seed(0)
    transformer = OmniGenTransformer2DModel(
        in_channels=4,
        patch_size=2,
        hidden_size=32,
        num_attention_heads=4,
        num_key_value_heads=4,
        intermediate_size=32,
        num_layers=2,
        pad_token_id=tokenizer.pad_token_id,
        vocab_size=len(tokenizer) + 8,
        max_position_embeddings=1000,
        time_step_dim=32,
        rope_scaling={"long_factor": [1.0] * 4, "short_factor": [1.0] * 4},
        pos_embed_max_size=16,
    )
    return OmniGenPipeline(
        transformer=transformer,
        scheduler=flow(invert_sigmas=True, num_train_timesteps=1),
        vae=parts.vae(blocks=4),
        tokenizer=tokenizer,
    )


@family("lumina", height=64, width=64, num_inference_steps=2, clean_caption=False)
def _lumina() -> Any:
    """The first Lumina: [conditional, unconditional]."""
    from diffusers import LuminaNextDiT2DModel, LuminaPipeline

    torch.manual_seed(0)
    transformer = LuminaNextDiT2DModel(
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
    return LuminaPipeline(
        transformer=transformer,
        scheduler=flow(),
        vae=parts.vae(blocks=4),
        text_encoder=parts.gemma2(),
        tokenizer=tok.gemma_tokenizer(),
    )


@family("hunyuanimage", height=64, width=64, num_inference_steps=2)
def _hunyuanimage() -> Any:
    """Two streams, a refiner for the text, and a second text encoder that most prompts leave silent."""
    from diffusers import (
        AutoencoderKLHunyuanImage,
        HunyuanImagePipeline,
        HunyuanImageTransformer2DModel,
    )
    from diffusers.guiders import AdaptiveProjectedMixGuidance

    torch.manual_seed(0)
    transformer = HunyuanImageTransformer2DModel(
        in_channels=4,
        out_channels=4,
        num_attention_heads=4,
        attention_head_dim=8,
        num_layers=1,
        num_single_layers=1,
        num_refiner_layers=1,
        patch_size=(1, 1),
        guidance_embeds=False,
        text_embed_dim=32,
        text_embed_2_dim=32,
        rope_axes_dim=(4, 4),
    )
    codec = AutoencoderKLHunyuanImage(
        in_channels=3,
        out_channels=3,
        latent_channels=4,
        block_out_channels=(32, 64, 64, 64),
        layers_per_block=1,
        scaling_factor=0.476986,
        spatial_compression_ratio=8,
        sample_size=64,
    )
    return HunyuanImagePipeline(
        scheduler=flow(shift=7.0),
        vae=codec,
        text_encoder=parts.qwen25_vl(),
        tokenizer=tok.qwen_tokenizer(),
        text_encoder_2=parts.t5_encoder(),
        tokenizer_2=tok.t5_tokenizer(),
        transformer=transformer,
        guider=AdaptiveProjectedMixGuidance(adaptive_projected_guidance_start_step=1, enabled=True),
        ocr_guider=AdaptiveProjectedMixGuidance(
            adaptive_projected_guidance_start_step=1, enabled=True
        ),
    )


@family("bria", **SMALL, negative_prompt="bad")
def _bria() -> Any:
    from diffusers import BriaPipeline

    return BriaPipeline(
        transformer=nets.flux_like("BriaTransformer2DModel", axes_dims_rope=[4, 4, 8]),
        scheduler=flow(use_dynamic_shifting=True),
        vae=parts.vae(4, quant=False, shift=0.0),
        text_encoder=parts.t5_encoder(),
        tokenizer=tok.t5_tokenizer(),
    )


@family(
    "bria_fibo",
    height=64,
    width=64,
    num_inference_steps=2,
    negative_prompt="bad",
    max_sequence_length=300,
)
def _bria_fibo() -> Any:
    """Every block gets another layer of the text encoder."""
    from diffusers import AutoencoderKLWan, BriaFiboPipeline
    from transformers import SmolLM3Config, SmolLM3ForCausalLM

    tokenizer = tok.qwen_tokenizer()
    torch.manual_seed(0)
    encoder = SmolLM3ForCausalLM(
        SmolLM3Config(
            vocab_size=tok.qwen_size(),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
            eos_token_id=None,
            initializer_range=0.2,
        )
    )
    codec = AutoencoderKLWan(
        base_dim=16,
        decoder_base_dim=16,
        z_dim=16,
        dim_mult=[1, 1, 1, 1],
        num_res_blocks=1,
        temperal_downsample=[False, True, True],
        patch_size=2,
        in_channels=12,
        out_channels=12,
        is_residual=True,
    )
    transformer = nets.flux_like(
        "BriaFiboTransformer2DModel",
        joint_attention_dim=64,
        text_encoder_dim=32,
        pooled_projection_dim=None,
        axes_dims_rope=[4, 4, 8],
        in_channels=16,
    )
    return BriaFiboPipeline(
        transformer=transformer,
        scheduler=flow(),
        vae=codec,
        text_encoder=encoder,
        tokenizer=tokenizer,
    )


@family("ovis", **SMALL)
def _ovis() -> Any:
    from diffusers import OvisImagePipeline

    return OvisImagePipeline(
        scheduler=flow(use_dynamic_shifting=True),
        vae=parts.vae(4, quant=False, shift=0.1),
        text_encoder=parts.qwen3(),
        tokenizer=tok.qwen_tokenizer(1024),
        transformer=nets.flux_like("OvisImageTransformer2DModel", out_channels=16),
    )


@family("longcat", **SMALL)
def _longcat() -> Any:
    from diffusers import LongCatImagePipeline

    return LongCatImagePipeline(
        scheduler=flow(use_dynamic_shifting=True),
        vae=parts.vae(16, quant=False, shift=0.1),
        text_encoder=parts.qwen25_vl(),
        tokenizer=tok.qwen_tokenizer(),
        text_processor=None,
        transformer=nets.flux_like(
            "LongCatImageTransformer2DModel",
            in_channels=64,
            pooled_projection_dim=32,
            axes_dims_rope=[4, 4, 8],
        ),
    )


@family("ernie", **SMALL)
def _ernie() -> Any:
    """Blocks whose batch is the second axis, image before text of the batch's longest prompt."""
    from diffusers import ErnieImagePipeline, ErnieImageTransformer2DModel
    from transformers import Ministral3Config, Ministral3Model

    tokenizer = tok.mistral_tokenizer()
    torch.manual_seed(0)
    encoder = Ministral3Model(
        Ministral3Config(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            max_position_embeddings=512,
            initializer_range=0.2,
        )
    )
    transformer = ErnieImageTransformer2DModel(
        hidden_size=32,
        num_attention_heads=2,
        num_layers=2,
        ffn_hidden_size=64,
        in_channels=16,
        out_channels=16,
        patch_size=1,
        text_in_dim=32,
        rope_axes_dim=(8, 4, 4),
    )
    return ErnieImagePipeline(
        transformer=transformer,
        vae=parts.flux2_vae(),
        text_encoder=encoder,
        tokenizer=tokenizer,
        scheduler=flow(),
    )
