"""FLUX and its kin: blocks with two streams, then blocks with one."""

from typing import Any

import diffusers
import torch
import transformers
from tiny import SMALL, family

from pipelines import denoisers as nets
from pipelines import parts
from pipelines import tokenizers as tok
from pipelines.parts import flow


def _flux() -> Any:
    transformer = nets.flux_like(
        "FluxTransformer2DModel", pooled_projection_dim=32, guidance_embeds=True
    )
    return diffusers.FluxPipeline(
        scheduler=flow(use_dynamic_shifting=True),
        vae=parts.vae(4, quant=False, shift=0.1),
        text_encoder=parts.clip_text(seed=1),
        tokenizer=tok.clip_tokenizer(),
        text_encoder_2=parts.t5_encoder(),
        tokenizer_2=tok.t5_tokenizer(),
        transformer=transformer,
    )


@family("flux", **SMALL, guidance_scale=3.5)
def _flux_embedded() -> Any:
    return _flux()


@family("flux_true_cfg", **SMALL, true_cfg_scale=4.0, negative_prompt="blurry")
def _flux_true() -> Any:
    return _flux()


@family("flux_schnell", **SMALL, guidance_scale=0.0, max_sequence_length=256)
def _flux_schnell() -> Any:
    """No guidance embedding and no guidance."""
    pipe = _flux()
    settings = dict(pipe.transformer.config) | {"guidance_embeds": False}
    torch.manual_seed(0)
    pipe.transformer = type(pipe.transformer).from_config(settings)
    return pipe


@family("flux_kontext", **SMALL, max_area=1024)
def _flux_kontext() -> Any:
    """An editing pipeline that also draws from a text alone."""
    return diffusers.FluxKontextPipeline(**_flux().components)


@family("chroma", **SMALL)
def _chroma() -> Any:
    """FLUX without CLIP, guidance by two calls a step."""
    torch.manual_seed(0)
    transformer = diffusers.ChromaTransformer2DModel(
        in_channels=16,
        num_layers=2,
        num_single_layers=2,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        axes_dims_rope=(4, 4, 8),
        approximator_num_channels=16,
        approximator_hidden_dim=16,
        approximator_layers=1,
    )
    return diffusers.ChromaPipeline(
        scheduler=flow(),
        vae=parts.vae(quant=False, shift=0.1),
        text_encoder=parts.t5_encoder(),
        tokenizer=tok.t5_tokenizer(),
        transformer=transformer,
    )


@family("flux2", **SMALL, text_encoder_out_layers="[1, 2, 3]")
def _flux2() -> Any:
    """Three layers of a Mistral side by side as text states, behind a system prompt."""
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
    encoder = transformers.Mistral3ForConditionalGeneration(
        transformers.Mistral3Config(
            text_config=text, vision_config=vision, image_token_index=2, spatial_merge_size=1
        )
    )
    return diffusers.Flux2Pipeline(
        scheduler=flow(use_dynamic_shifting=True),
        vae=parts.flux2_vae(),
        text_encoder=encoder,
        tokenizer=tokenizer,
        transformer=nets.flux2_transformer(96, True),
    )


@family("flux2_klein", **SMALL, text_encoder_out_layers="[1, 2, 3]")
def _flux2_klein() -> Any:
    """FLUX.2 with a Qwen and classifier-free guidance by two calls."""
    return diffusers.Flux2KleinPipeline(
        scheduler=flow(use_dynamic_shifting=True),
        vae=parts.flux2_vae(),
        text_encoder=parts.qwen3(causal=True),
        tokenizer=tok.qwen_tokenizer(1024),
        transformer=nets.flux2_transformer(96, False),
    )


@family("flux2_klein_kv", **SMALL, text_encoder_out_layers="[1, 2, 3]")
def _flux2_klein_kv() -> Any:
    """FLUX.2 klein that keeps the keys of reference pictures, distilled: no guidance."""
    return diffusers.Flux2KleinKVPipeline(
        scheduler=flow(use_dynamic_shifting=True),
        vae=parts.flux2_vae(),
        text_encoder=parts.qwen3(causal=True),
        tokenizer=tok.qwen_tokenizer(1024),
        transformer=nets.flux2_transformer(96, False),
    )


@family("auraflow", **SMALL)
def _auraflow() -> Any:
    """Text before image in one stream, register tokens first."""
    torch.manual_seed(0)
    transformer = diffusers.AuraFlowTransformer2DModel(
        sample_size=16,
        num_mmdit_layers=2,
        num_single_dit_layers=2,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        caption_projection_dim=32,
        pos_embed_max_size=64,
    )
    return diffusers.AuraFlowPipeline(
        tokenizer=tok.t5_tokenizer(),
        text_encoder=parts.umt5_encoder(),
        vae=parts.vae(),
        transformer=transformer,
        scheduler=flow(),
    )


@family("hidream", num_inference_steps=2)
def _hidream() -> Any:
    """Four text encoders; every block is given a layer of Llama of its own.

    It draws 128 x 128 latents whatever it is asked for: here they are pixels, in large patches.
    """
    tokenizer = tok.mistral_tokenizer()
    tokenizer.padding_side = "right"
    torch.manual_seed(0)
    llama = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
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
    transformer = diffusers.HiDreamImageTransformer2DModel(
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
    return diffusers.HiDreamImagePipeline(
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


@family("hunyuanimage", height=64, width=64, num_inference_steps=2)
def _hunyuanimage() -> Any:
    """Two streams, a refiner for the text, and a second text encoder that most prompts leave silent."""
    from diffusers.guiders import AdaptiveProjectedMixGuidance

    torch.manual_seed(0)
    transformer = diffusers.HunyuanImageTransformer2DModel(
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
    codec = diffusers.AutoencoderKLHunyuanImage(
        in_channels=3,
        out_channels=3,
        latent_channels=4,
        block_out_channels=(32, 64, 64, 64),
        layers_per_block=1,
        scaling_factor=0.476986,
        spatial_compression_ratio=8,
        sample_size=64,
    )
    return diffusers.HunyuanImagePipeline(
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
    return diffusers.BriaPipeline(
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
    tokenizer = tok.qwen_tokenizer()
    torch.manual_seed(0)
    encoder = transformers.SmolLM3ForCausalLM(
        transformers.SmolLM3Config(
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
    codec = diffusers.AutoencoderKLWan(
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
    return diffusers.BriaFiboPipeline(
        transformer=transformer,
        scheduler=flow(),
        vae=codec,
        text_encoder=encoder,
        tokenizer=tokenizer,
    )


@family("ovis", **SMALL)
def _ovis() -> Any:
    return diffusers.OvisImagePipeline(
        scheduler=flow(use_dynamic_shifting=True),
        vae=parts.vae(4, quant=False, shift=0.1),
        text_encoder=parts.qwen3(),
        tokenizer=tok.qwen_tokenizer(1024),
        transformer=nets.flux_like("OvisImageTransformer2DModel", out_channels=16),
    )


@family("longcat", **SMALL)
def _longcat() -> Any:
    return diffusers.LongCatImagePipeline(
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
