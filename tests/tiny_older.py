"""Classes that diffusers keeps for older checkpoints: other guidance, other text encoders, pictures of tokens."""

from typing import Any

import tiny_denoisers as nets
import tiny_parts as parts
import tiny_tokenizers as tok
import torch
from tiny import FAMILIES, SMALL, ddim, family, moved, sd


@family("safe", **SMALL)
def _safe() -> Any:
    """Three rows: without a prompt, with it, and with a text of what the picture must not show."""
    return sd("StableDiffusionPipelineSafe", image_encoder=None)


@family("paradigms", height=32, width=32, num_inference_steps=2, parallel=2)
def _paradigms() -> Any:
    """Steps are solved side by side: one call holds several."""
    from diffusers import DDIMParallelScheduler

    return sd("StableDiffusionParadigmsPipeline", scheduler=DDIMParallelScheduler())


@family("model_editing", **SMALL)
def _model_editing() -> Any:
    return sd("StableDiffusionModelEditingPipeline")


@family("gligen", **SMALL, gligen_phrases='["ball"]', gligen_boxes="[[0.1, 0.5, 0.4, 0.9]]")
def _gligen() -> Any:
    """A thing in a box beside the prompt."""
    return sd("StableDiffusionGLIGENPipeline", unet=nets.unet(attention_type="gated"))


@family("alt_diffusion", **SMALL)
def _alt_diffusion() -> Any:
    """XLM-RoBERTa with a projection in the place of CLIP."""
    roberta = moved("alt_diffusion.modeling_roberta_series")
    torch.manual_seed(0)
    encoder = roberta.RobertaSeriesModelWithTransformation(
        roberta.RobertaSeriesConfig(
            vocab_size=tok.clip_size(),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=80,
            project_dim=32,
            initializer_range=0.2,
        )
    )
    return sd("AltDiffusionPipeline", text_encoder=encoder, image_encoder=None)


@family("versatile", **SMALL)
def _versatile() -> Any:
    """A UNet that lends its attention to that of another one."""
    from diffusers import VersatileDiffusionTextToImagePipeline

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
    return VersatileDiffusionTextToImagePipeline(
        tokenizer=tok.clip_tokenizer(),
        text_encoder=parts.clip_text(32),
        image_unet=nets.unet(),
        text_unet=text_unet,
        vae=parts.vae(),
        scheduler=ddim(),
    )


@family("vq_diffusion", num_inference_steps=2)
def _vq_diffusion() -> Any:
    """A picture of tokens, from masked ones; its size is that of the transformer."""
    from diffusers import (
        Transformer2DModel,
        VQDiffusionPipeline,
        VQDiffusionScheduler,
        VQModel,
    )

    learned = moved("vq_diffusion").pipeline_vq_diffusion.LearnedClassifierFreeSamplingEmbeddings
    torch.manual_seed(0)
    codec = VQModel(
        block_out_channels=(8, 8),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4,
        norm_num_groups=4,
        num_vq_embeddings=16,
        vq_embed_dim=4,
    )
    transformer = Transformer2DModel(
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
    return VQDiffusionPipeline(
        vqvae=codec,
        text_encoder=parts.clip_text(),
        tokenizer=tok.clip_tokenizer(),
        transformer=transformer,
        scheduler=VQDiffusionScheduler(num_vec_classes=17),
        learned_classifier_free_sampling_embeddings=learned(
            learnable=True, hidden_size=32, length=77
        ),
    )


@family("stable_unclip", **SMALL, prior_num_inference_steps=2)
def _stable_unclip() -> Any:
    """A prior and a UNet, each with a text encoder of its own."""
    from diffusers import DDPMScheduler, StableUnCLIPPipeline
    from diffusers.pipelines.stable_diffusion.stable_unclip_image_normalizer import (
        StableUnCLIPImageNormalizer,
    )

    return StableUnCLIPPipeline(
        prior_tokenizer=tok.clip_tokenizer(),
        prior_text_encoder=parts.clip_text(32, seed=1),
        prior=nets.prior(2),
        prior_scheduler=DDPMScheduler(
            variance_type="fixed_small_log", prediction_type="sample", clip_sample=True
        ),
        image_normalizer=StableUnCLIPImageNormalizer(embedding_dim=32),
        image_noising_scheduler=DDPMScheduler(beta_schedule="squaredcos_cap_v2"),
        tokenizer=tok.clip_tokenizer(),
        text_encoder=parts.clip_text(seed=2),
        unet=nets.unet(class_embed_type="projection", projection_class_embeddings_input_dim=64),
        scheduler=ddim(),
        vae=parts.vae(),
    )


@family("unidiffuser", **SMALL, guidance_scale=1.0)
def _unidiffuser() -> Any:
    """One stream of text, a CLIP vector and patches; no text is told by noise in its place."""
    from diffusers import UniDiffuserModel, UniDiffuserPipeline, UniDiffuserTextDecoder

    torch.manual_seed(0)
    unet = UniDiffuserModel(
        text_dim=32,
        clip_img_dim=32,
        num_text_tokens=77,
        num_attention_heads=2,
        attention_head_dim=16,
        in_channels=4,
        out_channels=4,
        num_layers=2,
        sample_size=16,
        patch_size=2,
        activation_fn="gelu",
        norm_num_groups=4,
        num_embeds_ada_norm=1000,
        norm_type="layer_norm",
        block_type="unidiffuser",
    )
    decoder = UniDiffuserTextDecoder(
        prefix_length=77,
        prefix_inner_dim=32,
        vocab_size=tok.clip_size(),
        n_positions=128,
        n_embd=32,
        n_layer=1,
        n_head=2,
    )
    head = decoder.transformer.lm_head  # a tied weight cannot be saved as safetensors
    head.weight = torch.nn.Parameter(head.weight.detach().clone())
    return UniDiffuserPipeline(
        vae=parts.vae(),
        text_encoder=parts.clip_text(),
        image_encoder=parts.clip_vision(),
        clip_image_processor=parts.image_processor(),
        clip_tokenizer=tok.clip_tokenizer(),
        text_decoder=decoder,
        text_tokenizer=tok.clip_tokenizer(),
        unet=unet,
        scheduler=ddim(),
    )


@family("wuerstchen_prior", height=128, width=128, num_inference_steps=2)
def _wuerstchen_prior() -> Any:
    """The first stage alone."""
    from diffusers import DDPMWuerstchenScheduler, WuerstchenPriorPipeline

    return WuerstchenPriorPipeline(
        tokenizer=tok.clip_tokenizer(),
        text_encoder=parts.clip_text(seed=2),
        prior=moved("wuerstchen").WuerstchenPrior(c_in=2, c=8, depth=2, c_cond=32, c_r=8, nhead=2),
        scheduler=DDPMWuerstchenScheduler(),
    )


@family("super_resolution", height=32, width=32, num_inference_steps=2)
def _super_resolution() -> Any:
    """DeepFloyd's second stage alone."""
    from diffusers import DDPMScheduler, IFSuperResolutionPipeline

    given = dict(FAMILIES["deepfloyd_if"].build().components)
    return IFSuperResolutionPipeline(
        **given, image_noising_scheduler=DDPMScheduler(), requires_safety_checker=False
    )
