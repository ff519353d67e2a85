"""Families of the last years whose text encoders, stages or guardrails are like no other's."""

import tempfile
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import tiny_denoisers as nets
import tiny_parts as parts
import tiny_tokenizers as tok
import torch
from tiny import FAMILIES, SMALL, ddim, family, flow
from tiny_latest import qwen3_vl
from tiny_processors import qwen3_vl_processor


@cache
def chatglm_words() -> tuple[tempfile.TemporaryDirectory[str], str]:
    """A folder with a sentencepiece model that knows the words of the shapes families, and the file's path."""
    import sentencepiece

    model, folder = BytesIO(), tempfile.TemporaryDirectory()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([" ".join(tok.WORDS)] * 4),
        model_writer=model,
        vocab_size=120,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    file = Path(folder.name) / "tokenizer.model"
    file.write_bytes(model.getvalue())
    return folder, str(file)


def chatglm() -> dict[str, Any]:
    """Kolors' language model and tokenizer: tokens before the batch, pads on the left, positions given."""
    from diffusers.pipelines.kolors import ChatGLMModel, ChatGLMTokenizer
    from diffusers.pipelines.kolors.text_encoder import ChatGLMConfig

    tokenizer = ChatGLMTokenizer(chatglm_words()[1])
    torch.manual_seed(0)
    encoder = ChatGLMModel(
        ChatGLMConfig(
            num_layers=3,
            padded_vocab_size=len(tokenizer) + 16,
            hidden_size=32,
            ffn_hidden_size=64,
            kv_channels=8,
            num_attention_heads=4,
            seq_length=256,
            add_qkv_bias=True,
            multi_query_attention=True,
            multi_query_group_num=2,
            original_rope=True,
        )
    )
    with torch.no_grad():  # its linear layers are made by torch.empty
        for weight in encoder.parameters():
            weight.normal_(1.0 if weight.ndim < 2 else 0.0, 0.1 if weight.ndim < 2 else 0.2)
    return {"text_encoder": encoder, "tokenizer": tokenizer}


def _kolors(kind: str, **more: Any) -> Any:
    import diffusers

    unet = nets.unet(
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        encoder_hid_dim=32,
        encoder_hid_dim_type="text_proj",
        addition_embed_type="text_time",
        addition_time_embed_dim=8,
        projection_class_embeddings_input_dim=32 + 6 * 8,
    )
    return getattr(diffusers, kind)(
        vae=parts.vae(), unet=unet, scheduler=ddim(), **chatglm(), **more
    )


@family("kolors", **SMALL)
def _kolors_plain() -> Any:
    return _kolors("KolorsPipeline")


@family("kolors_pag", **SMALL, pag_scale=3.0)
def _kolors_pag() -> Any:
    return _kolors("KolorsPAGPipeline", pag_applied_layers=["mid"])


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
    from diffusers import Cosmos2TextToImagePipeline, CosmosTransformer3DModel
    from diffusers.pipelines.cosmos import pipeline_cosmos2_text2image

    pipeline_cosmos2_text2image.CosmosSafetyChecker = NoGuard  # it is no part of a checkpoint
    torch.manual_seed(0)
    transformer = CosmosTransformer3DModel(
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
    pipe = Cosmos2TextToImagePipeline(
        text_encoder=parts.t5_encoder(),
        tokenizer=tok.t5_tokenizer(),
        transformer=transformer,
        vae=parts.wan_vae(),
        scheduler=flow(use_karras_sigmas=True),
    )
    pipe.register_modules(safety_checker=None)
    return pipe


@family("ideogram4", **SMALL, max_sequence_length=128, guidance_schedule="[5.0, 3.0]")
def _ideogram4() -> Any:
    """Guidance by a second transformer that is given no text; the text encoder's layers are called one by one."""
    from diffusers import Ideogram4Pipeline, Ideogram4Transformer2DModel

    def transformer(seed: int) -> Any:
        torch.manual_seed(seed)
        return Ideogram4Transformer2DModel(
            in_channels=16,
            num_layers=3,
            attention_head_dim=16,
            num_attention_heads=2,
            intermediate_size=32,
            adaln_dim=8,
            llm_features_dim=13 * 32,
            mrope_section=(4, 2, 2),
        )

    return Ideogram4Pipeline(
        scheduler=flow(),
        vae=parts.flux2_vae(),
        text_encoder=qwen3_vl(layers=36),
        tokenizer=tok.qwen_tokenizer(),
        transformer=transformer(0),
        unconditional_transformer=transformer(1),
    )


def _dreamlite(kind: str) -> Any:
    import diffusers

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


@family("bria_fibo2", **SMALL, negative_prompt="bad")
def _bria_fibo2() -> Any:
    """Text as a handful of gist tokens before the image, and once more inside some blocks."""
    from diffusers import BriaFibo2Pipeline, BriaFibo2Transformer2DModel

    torch.manual_seed(0)
    transformer = BriaFibo2Transformer2DModel(
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
    return BriaFibo2Pipeline(
        transformer=transformer,
        scheduler=flow(use_dynamic_shifting=True),
        vae=parts.flux2_vae(),
        text_encoder=qwen3_vl(generates=True, layers=36),
        processor=qwen3_vl_processor(),
    )


@family("zimage_omni", **SMALL, guidance_scale=4.0)
def _zimage_omni() -> Any:
    """Z-Image that can also be given pictures, with a vision encoder for them."""
    from diffusers import ZImageOmniPipeline
    from transformers import Siglip2ImageProcessor, Siglip2VisionConfig, Siglip2VisionModel

    given = dict(FAMILIES["zimage"].build().components)
    given["transformer"] = nets.zimage_transformer(siglip_feat_dim=16)
    torch.manual_seed(0)
    siglip = Siglip2VisionModel(
        Siglip2VisionConfig(
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_patches=16,
            patch_size=4,
        )
    )
    return ZImageOmniPipeline(
        **given, siglip=siglip, siglip_processor=Siglip2ImageProcessor(patch_size=4)
    )


@family("prx_pixel", **SMALL, use_resolution_binning=False)
def _prx_pixel() -> Any:
    """Pixels, and no codec."""
    from diffusers import PRXPixelPipeline, PRXTransformer2DModel

    torch.manual_seed(0)
    transformer = PRXTransformer2DModel(
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
    return PRXPixelPipeline(
        transformer=transformer,
        scheduler=flow(),
        text_encoder=parts.gemma2(),
        tokenizer=tok.gemma_tokenizer(64),
        default_sample_size=32,
        prompt_max_tokens=64,
    )


@family("flux2_klein_kv", **SMALL, text_encoder_out_layers="[1, 2, 3]")
def _flux2_klein_kv() -> Any:
    """FLUX.2 klein that keeps the keys of reference pictures, distilled: no guidance."""
    from diffusers import Flux2KleinKVPipeline

    return Flux2KleinKVPipeline(
        scheduler=flow(use_dynamic_shifting=True),
        vae=parts.flux2_vae(),
        text_encoder=parts.qwen3(causal=True),
        tokenizer=tok.qwen_tokenizer(1024),
        transformer=nets.flux2_transformer(96, False),
    )


def _glm_writer() -> dict[str, Any]:
    """The language model of GLM-Image that writes tokens of a picture, and its processor."""
    from transformers import (
        GlmImageConfig,
        GlmImageForConditionalGeneration,
        GlmImageImageProcessor,
        GlmImageProcessor,
    )

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
    writer = GlmImageForConditionalGeneration(
        GlmImageConfig(
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
        "processor": GlmImageProcessor(
            GlmImageImageProcessor(patch_size=16), tokenizer, chat_template=tok.CHAT
        ),
    }


@family("glm_image", height=64, width=64, num_inference_steps=2)
def _glm_image() -> Any:
    """A language model writes tokens that lie under those of the image; no tokens are told by a flag."""
    from diffusers import GlmImagePipeline, GlmImageTransformer2DModel
    from transformers import ByT5Tokenizer

    torch.manual_seed(0)
    transformer = GlmImageTransformer2DModel(
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
    return GlmImagePipeline(
        tokenizer=ByT5Tokenizer(),
        text_encoder=parts.t5_encoder(words=400),
        vae=codec,
        transformer=transformer,
        scheduler=flow(use_dynamic_shifting=True),
        **_glm_writer(),
    )


def _joyimage(kind: str, denoiser: str, factor: int) -> Any:
    import diffusers

    torch.manual_seed(0)
    transformer = getattr(diffusers, denoiser)(
        in_channels=4,
        hidden_size=32,
        num_attention_heads=2,
        text_dim=32,
        num_layers=2,
        rope_dim_list=[4, 6, 6],
    )
    return getattr(diffusers, kind)(
        scheduler=flow(),
        vae=parts.wan_vae(factor),
        text_encoder=qwen3_vl(generates=True),
        tokenizer=tok.qwen_tokenizer(),
        transformer=transformer,
        processor=qwen3_vl_processor(),
    )


@family("joyimage", num_inference_steps=2)
def _joyimage_edit() -> Any:
    """An editing pipeline that also draws from a text alone, as one item of a list of pictures.

    It draws about 1024 pixels whatever it is asked for, so its codec says that they are few latents.
    """
    return _joyimage("JoyImageEditPipeline", "JoyImageEditTransformer3DModel", 64)


@family("joyimage_plus", **SMALL)
def _joyimage_plus() -> Any:
    """The same for several pictures: patches are cut outside."""
    return _joyimage("JoyImageEditPlusPipeline", "JoyImageEditPlusTransformer3DModel", 2)
