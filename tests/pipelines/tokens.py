"""Pictures of discrete tokens, filled in from masked ones."""

from typing import Any

import diffusers
import torch
from tiny import SMALL, family

from pipelines import parts
from pipelines import tokenizers as tok
from pipelines.parts import moved


@family("amused", **SMALL)
def _amused() -> Any:
    """A masked token model: no noise, and no generator per image."""
    torch.manual_seed(0)
    transformer = diffusers.UVit2DModel(
        hidden_size=16,
        use_bias=False,
        hidden_dropout=0.0,
        cond_embed_dim=32,
        micro_cond_encode_dim=2,
        micro_cond_embed_dim=10,
        encoder_hidden_size=32,
        vocab_size=32,
        codebook_size=16,
        in_channels=16,
        block_out_channels=16,
        num_res_blocks=1,
        downsample=False,
        upsample=False,
        block_num_heads=2,
        num_hidden_layers=2,
        num_attention_heads=2,
        attention_dropout=0.0,
        intermediate_size=32,
        sample_size=16,
    )
    codec = diffusers.VQModel(
        act_fn="silu",
        block_out_channels=[8, 8],
        down_block_types=["DownEncoderBlock2D"] * 2,
        up_block_types=["UpDecoderBlock2D"] * 2,
        in_channels=3,
        out_channels=3,
        latent_channels=8,
        norm_num_groups=4,
        num_vq_embeddings=16,
        sample_size=16,
        mid_block_add_attention=False,
        lookup_from_codebook=True,
        layers_per_block=1,
    )
    return diffusers.AmusedPipeline(
        vqvae=codec,
        tokenizer=tok.clip_tokenizer(),
        text_encoder=parts.clip_text(32),
        transformer=transformer,
        scheduler=diffusers.AmusedScheduler(mask_token_id=31),
    )


@family("vq_diffusion", num_inference_steps=2)
def _vq_diffusion() -> Any:
    """A picture of tokens, from masked ones; its size is that of the transformer."""
    learned = moved("vq_diffusion").pipeline_vq_diffusion.LearnedClassifierFreeSamplingEmbeddings
    torch.manual_seed(0)
    codec = diffusers.VQModel(
        block_out_channels=(8, 8),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4,
        norm_num_groups=4,
        num_vq_embeddings=16,
        vq_embed_dim=4,
    )
    transformer = diffusers.Transformer2DModel(
        attention_bias=True,
        attention_head_dim=16,
        num_attention_heads=2,
        cross_attention_dim=32,
        num_layers=3,
        norm_type="ada_norm",
        activation_fn="geglu-approximate",
        num_embeds_ada_norm=100,
        num_vector_embeds=17,
        norm_num_groups=4,
        sample_size=16,
    )
    return diffusers.VQDiffusionPipeline(
        vqvae=codec,
        text_encoder=parts.clip_text(),
        tokenizer=tok.clip_tokenizer(),
        transformer=transformer,
        scheduler=diffusers.VQDiffusionScheduler(num_vec_classes=17),
        learned_classifier_free_sampling_embeddings=learned(
            learnable=True, hidden_size=32, length=77
        ),
    )
