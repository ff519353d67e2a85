"""More families of tiny pipelines, whose streams, rows or padding differ from the first ones."""

from typing import Any

import tiny_denoisers as nets
import tiny_parts as parts
import tiny_tokenizers as tok
import torch
from tiny import SMALL, family, flow


@family("auraflow", **SMALL)
def _auraflow() -> Any:
    """Text before image in one stream, register tokens first."""
    from diffusers import AuraFlowPipeline, AuraFlowTransformer2DModel

    torch.manual_seed(0)
    transformer = AuraFlowTransformer2DModel(
        sample_size=16,
        num_mmdit_layers=2,
        num_single_dit_layers=2,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        caption_projection_dim=32,
        pos_embed_max_size=64,
    )
    return AuraFlowPipeline(
        tokenizer=tok.t5_tokenizer(),
        text_encoder=parts.umt5_encoder(),
        vae=parts.vae(),
        transformer=transformer,
        scheduler=flow(),
    )


@family("lumina2", **SMALL, system_prompt="very small")
def _lumina2() -> Any:
    """Text of each prompt's own length before the image, pads behind both."""
    from diffusers import Lumina2Pipeline, Lumina2Transformer2DModel

    torch.manual_seed(0)
    transformer = Lumina2Transformer2DModel(
        sample_size=16,
        in_channels=4,
        hidden_size=24,
        num_layers=2,
        num_refiner_layers=1,
        num_attention_heads=2,
        num_kv_heads=1,
        multiple_of=8,
        axes_dim_rope=(4, 4, 4),
        axes_lens=(300, 64, 64),
        cap_feat_dim=32,
    )
    return Lumina2Pipeline(
        transformer=transformer,
        scheduler=flow(),
        vae=parts.vae(shift=0.1),
        text_encoder=parts.gemma2(),
        tokenizer=tok.gemma_tokenizer(),
    )


@family("chroma", **SMALL)
def _chroma() -> Any:
    """FLUX without CLIP, guidance by two calls a step."""
    from diffusers import ChromaPipeline, ChromaTransformer2DModel

    torch.manual_seed(0)
    transformer = ChromaTransformer2DModel(
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
    return ChromaPipeline(
        scheduler=flow(),
        vae=parts.vae(quant=False, shift=0.1),
        text_encoder=parts.t5_encoder(),
        tokenizer=tok.t5_tokenizer(),
        transformer=transformer,
    )


@family("cogview4", **SMALL)
def _cogview4() -> Any:
    """A language model padded on the left to a multiple of 16."""
    from diffusers import CogView4Pipeline, CogView4Transformer2DModel
    from transformers import GlmConfig, GlmModel

    tokenizer = tok.mistral_tokenizer()
    torch.manual_seed(0)
    encoder = GlmModel(
        GlmConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            max_position_embeddings=2048,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            initializer_range=0.2,
        )
    )
    transformer = CogView4Transformer2DModel(
        in_channels=4,
        out_channels=4,
        num_layers=2,
        attention_head_dim=16,
        num_attention_heads=2,
        text_embed_dim=32,
        time_embed_dim=16,
        condition_dim=8,
        pos_embed_max_size=32,
        sample_size=16,
        rope_axes_dim=(32, 32),
    )
    return CogView4Pipeline(
        tokenizer=tokenizer,
        text_encoder=encoder,
        vae=parts.vae(),
        transformer=transformer,
        scheduler=flow(),
    )


@family("lcm", **SMALL)
def _lcm() -> Any:
    """Guidance as an embedding of the UNet: one half only."""
    from diffusers import LatentConsistencyModelPipeline, LCMScheduler

    return LatentConsistencyModelPipeline(
        vae=parts.vae(),
        text_encoder=parts.clip_text(),
        tokenizer=tok.clip_tokenizer(),
        unet=nets.unet(time_cond_proj_dim=16),
        scheduler=LCMScheduler(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


@family("hunyuandit", height=64, width=64, num_inference_steps=2, use_resolution_binning=False)
def _hunyuandit() -> Any:
    """Two text encoders, BERT and T5, and blocks with skips."""
    from diffusers import DDPMScheduler, HunyuanDiT2DModel, HunyuanDiTPipeline
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    bert = BertModel(
        BertConfig(
            vocab_size=tok.clip_size(),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
        )
    )
    transformer = HunyuanDiT2DModel(
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
    return HunyuanDiTPipeline(
        vae=parts.vae(blocks=4),
        text_encoder=bert,
        tokenizer=tok.clip_tokenizer(),
        transformer=transformer,
        scheduler=DDPMScheduler(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
        text_encoder_2=parts.t5_encoder(),
        tokenizer_2=tok.t5_tokenizer(),
    )
