"""Transformers with text and image in one stream throughout."""

from typing import Any

import diffusers
import torch
import transformers
from tiny import FAMILIES, SMALL, family

from pipelines import denoisers as nets
from pipelines import parts
from pipelines import tokenizers as tok
from pipelines.parts import ddim, flow, qwen3_vl, qwen3_vl_processor


@family("lumina2", **SMALL, system_prompt="very small")
def _lumina2() -> Any:
    """Text of each prompt's own length before the image, pads behind both."""
    torch.manual_seed(0)
    transformer = diffusers.Lumina2Transformer2DModel(
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
    return diffusers.Lumina2Pipeline(
        transformer=transformer,
        scheduler=flow(),
        vae=parts.vae(shift=0.1),
        text_encoder=parts.gemma2(),
        tokenizer=tok.gemma_tokenizer(),
    )


@family("zimage", **SMALL, guidance_scale=4.0)
def _zimage() -> Any:
    return diffusers.ZImagePipeline(
        scheduler=flow(use_dynamic_shifting=True),
        vae=parts.vae(8, shift=0.1),
        text_encoder=parts.qwen3(),
        tokenizer=tok.qwen_tokenizer(1024),
        transformer=nets.zimage_transformer(),
    )


@family("zimage_omni", **SMALL, guidance_scale=4.0)
def _zimage_omni() -> Any:
    """Z-Image that can also be given pictures, with a vision encoder for them."""
    given = dict(FAMILIES["zimage"].build().components)
    given["transformer"] = nets.zimage_transformer(siglip_feat_dim=16)
    torch.manual_seed(0)
    siglip = transformers.Siglip2VisionModel(
        transformers.Siglip2VisionConfig(
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_patches=16,
            patch_size=4,
        )
    )
    return diffusers.ZImageOmniPipeline(
        **given, siglip=siglip, siglip_processor=transformers.Siglip2ImageProcessor(patch_size=4)
    )


@family("cogview3", height=32, width=32, num_inference_steps=2)
def _cogview3() -> Any:
    torch.manual_seed(0)
    transformer = diffusers.CogView3PlusTransformer2DModel(
        patch_size=2,
        in_channels=4,
        num_layers=2,
        attention_head_dim=8,
        num_attention_heads=4,
        out_channels=4,
        text_embed_dim=32,
        time_embed_dim=16,
        condition_dim=8,
        pos_embed_max_size=32,
        sample_size=16,
    )
    return diffusers.CogView3PlusPipeline(
        tokenizer=tok.t5_tokenizer(),
        text_encoder=parts.t5_encoder(),
        vae=parts.vae(),
        transformer=transformer,
        scheduler=diffusers.CogVideoXDDIMScheduler(),
    )


@family("cogview4", **SMALL)
def _cogview4() -> Any:
    """A language model padded on the left to a multiple of 16."""
    tokenizer = tok.mistral_tokenizer()
    torch.manual_seed(0)
    encoder = transformers.GlmModel(
        transformers.GlmConfig(
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
    transformer = diffusers.CogView4Transformer2DModel(
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
    return diffusers.CogView4Pipeline(
        tokenizer=tokenizer,
        text_encoder=encoder,
        vae=parts.vae(),
        transformer=transformer,
        scheduler=flow(),
    )


def _glm_writer() -> dict[str, Any]:
    """The language model of GLM-Image that writes tokens of a picture, and its processor."""
    tokenizer = tok.qwen_tokenizer(
        bos_token="<|vision_pad|>",
        extra_special_tokens={
            "image_token": "<|image_pad|>",
            "grid_bos_token": "<|vision_start|>",
            "grid_eos_token": "<|vision_end|>",
        },
    )
    text = {
        "vocab_size": tok.qwen_size(),
        "vision_vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": 1024,
        "initializer_range": 0.5,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 1.0,
            "mrope_section": [4, 2, 2],
        },
        "pad_token_id": tok.qwen_id("<|endoftext|>"),
        "eos_token_id": None,
    }
    vision = {
        "depth": 1,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_heads": 2,
        "image_size": 32,
        "patch_size": 16,
    }
    torch.manual_seed(0)
    writer = transformers.GlmImageForConditionalGeneration(
        transformers.GlmImageConfig(
            text_config=text,
            vision_config=vision,
            vq_config={"embed_dim": 8, "num_embeddings": 64, "latent_channels": 16},
            image_token_id=tok.qwen_id("<|image_pad|>"),
            image_start_token_id=tok.qwen_id("<|vision_pad|>"),
            image_end_token_id=tok.qwen_id("<|video_pad|>"),
        )
    )
    writer.generation_config.eos_token_id = None  # it writes as many tokens as the picture has
    return {
        "vision_language_encoder": writer,
        "processor": transformers.GlmImageProcessor(
            transformers.GlmImageImageProcessor(patch_size=16), tokenizer, chat_template=tok.CHAT
        ),
    }


@family("glm_image", height=64, width=64, num_inference_steps=2)
def _glm_image() -> Any:
    """A language model writes tokens that lie under those of the image; no tokens are told by a flag."""
    torch.manual_seed(0)
    transformer = diffusers.GlmImageTransformer2DModel(
        in_channels=4,
        out_channels=4,
        num_layers=2,
        attention_head_dim=8,
        num_attention_heads=2,
        text_embed_dim=32,
        time_embed_dim=16,
        condition_dim=8,
        prior_vq_quantizer_codebook_size=64,
    )
    codec = parts.vae(blocks=4)
    codec.register_to_config(latents_mean=[0.0] * 4, latents_std=[1.0] * 4)
    return diffusers.GlmImagePipeline(
        tokenizer=transformers.ByT5Tokenizer(),
        text_encoder=parts.t5_encoder(words=400),
        vae=codec,
        transformer=transformer,
        scheduler=flow(use_dynamic_shifting=True),
        **_glm_writer(),
    )


@family("omnigen", height=32, width=32, num_inference_steps=2, max_input_image_size=32)
def _omnigen() -> Any:
    """No text encoder: token ids go into the denoiser itself."""
    tokenizer = tok.mistral_tokenizer()
    torch.manual_seed(0)
    transformer = diffusers.OmniGenTransformer2DModel(
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
    return diffusers.OmniGenPipeline(
        transformer=transformer,
        scheduler=flow(invert_sigmas=True, num_train_timesteps=1),
        vae=parts.vae(blocks=4),
        tokenizer=tokenizer,
    )


@family("ernie", **SMALL)
def _ernie() -> Any:
    """Blocks whose batch is the second axis, image before text of the batch's longest prompt."""
    tokenizer = tok.mistral_tokenizer()
    torch.manual_seed(0)
    encoder = transformers.Ministral3Model(
        transformers.Ministral3Config(
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
    transformer = diffusers.ErnieImageTransformer2DModel(
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
    return diffusers.ErnieImagePipeline(
        transformer=transformer,
        vae=parts.flux2_vae(),
        text_encoder=encoder,
        tokenizer=tokenizer,
        scheduler=flow(),
    )


@family("krea2", **SMALL, negative_prompt="bad")
def _krea2() -> Any:
    """Text states of several layers per token, pads in the middle of the template."""
    torch.manual_seed(0)
    transformer = diffusers.Krea2Transformer2DModel(
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
    return diffusers.Krea2Pipeline(
        scheduler=flow(use_dynamic_shifting=True),
        vae=parts.qwen_image_vae(),
        text_encoder=qwen3_vl(),
        tokenizer=tok.qwen_tokenizer(),
        transformer=transformer,
        text_encoder_select_layers=(1, 2),
    )


@family("ideogram4", **SMALL, max_sequence_length=128, guidance_schedule="[5.0, 3.0]")
def _ideogram4() -> Any:
    """Guidance by a second transformer that is given no text; the text encoder's layers are called one by one."""

    def transformer(seed: int) -> Any:
        torch.manual_seed(seed)
        return diffusers.Ideogram4Transformer2DModel(
            in_channels=16,
            num_layers=3,
            attention_head_dim=16,
            num_attention_heads=2,
            intermediate_size=32,
            adaln_dim=8,
            llm_features_dim=13 * 32,
            mrope_section=(4, 2, 2),
        )

    return diffusers.Ideogram4Pipeline(
        scheduler=flow(),
        vae=parts.flux2_vae(),
        text_encoder=qwen3_vl(layers=36),
        tokenizer=tok.qwen_tokenizer(),
        transformer=transformer(0),
        unconditional_transformer=transformer(1),
    )


@family("bria_fibo2", **SMALL, negative_prompt="bad")
def _bria_fibo2() -> Any:
    """Text as a handful of gist tokens before the image, and once more inside some blocks."""
    torch.manual_seed(0)
    transformer = diffusers.BriaFibo2Transformer2DModel(
        in_channels=4,
        dim=32,
        n_layers=4,
        n_refiner_layers=1,
        n_heads=2,
        cap_feat_dim=96,
        injection_layer_ids=(0, 1, 2, 2, 3),
        perceiver_num_layers=1,
        min_num_gist_tokens=8,
        max_num_gist_tokens=16,
        gist_step=8,
        gist_min_text_len=8,
        gist_max_text_len=64,
        axes_dims=(8, 4, 4),
        axes_lens=(64, 32, 32),
    )
    return diffusers.BriaFibo2Pipeline(
        transformer=transformer,
        scheduler=flow(use_dynamic_shifting=True),
        vae=parts.flux2_vae(),
        text_encoder=qwen3_vl(generates=True, layers=36),
        processor=qwen3_vl_processor(),
    )


@family("unidiffuser", **SMALL, guidance_scale=1.0)
def _unidiffuser() -> Any:
    """One stream of text, a CLIP vector and patches; no text is told by noise in its place."""
    torch.manual_seed(0)
    unet = diffusers.UniDiffuserModel(
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
    decoder = diffusers.UniDiffuserTextDecoder(
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
    return diffusers.UniDiffuserPipeline(
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
