"""Relatives of the first families: other guidance, other prediction, other stages, older classes."""

from typing import Any

import tiny_denoisers as nets
import tiny_parts as parts
import tiny_tokenizers as tok
import torch
from tiny import SMALL, family, moved, sd, sd3_parts


@family("sd2", **SMALL)
def _sd2() -> Any:
    """v-prediction, linear projections."""
    from diffusers import DDIMScheduler

    return sd(
        unet=nets.unet(use_linear_projection=True, attention_head_dim=(2, 4)),
        scheduler=DDIMScheduler(
            prediction_type="v_prediction", rescale_betas_zero_snr=True, clip_sample=False
        ),
    )


@family("sdxl_pag", **SMALL, pag_scale=3.0)
def _sdxl_pag() -> Any:
    from diffusers import StableDiffusionXLPAGPipeline
    from tiny import FAMILIES

    given = dict(FAMILIES["sdxl"].build().components)
    return StableDiffusionXLPAGPipeline(**given, pag_applied_layers=["mid"])


@family(
    "sd35",
    height=32,
    width=32,
    num_inference_steps=4,
    skip_guidance_layers="[1, 2]",
    skip_layer_guidance_start=0.0,
    skip_layer_guidance_stop=0.6,
)
def _sd35() -> Any:
    """SD 3.5 medium: dual attention, and skip-layer guidance, which calls the denoiser once more in some steps."""
    from diffusers import StableDiffusion3Pipeline

    transformer = nets.sd3_transformer(dual_attention_layers=(0, 1), qk_norm="rms_norm")
    return StableDiffusion3Pipeline(transformer=transformer, **sd3_parts())


@family("sd3_pag", **SMALL, pag_scale=3.0)
def _sd3_pag() -> Any:
    from diffusers import StableDiffusion3PAGPipeline

    return StableDiffusion3PAGPipeline(
        transformer=nets.sd3_transformer(), pag_applied_layers=["blocks.1"], **sd3_parts()
    )


@family("flux_schnell", **SMALL, guidance_scale=0.0, max_sequence_length=256)
def _flux_schnell() -> Any:
    """No guidance embedding and no guidance."""
    from tiny import _flux

    pipe = _flux()
    settings = dict(pipe.transformer.config) | {"guidance_embeds": False}
    torch.manual_seed(0)
    pipe.transformer = type(pipe.transformer).from_config(settings)
    return pipe


@family("flux_kontext", **SMALL, max_area=1024)
def _flux_kontext() -> Any:
    """An editing pipeline that also draws from a text alone."""
    from diffusers import FluxKontextPipeline
    from tiny import _flux

    return FluxKontextPipeline(**_flux().components)


@family("pixart_alpha", **SMALL, use_resolution_binning=False, clean_caption=False)
def _pixart_alpha() -> Any:
    from diffusers import DPMSolverMultistepScheduler, PixArtAlphaPipeline, PixArtTransformer2DModel

    torch.manual_seed(0)
    transformer = PixArtTransformer2DModel(
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
    return PixArtAlphaPipeline(
        tokenizer=tok.t5_tokenizer(),
        text_encoder=parts.t5_encoder(),
        vae=parts.vae(),
        transformer=transformer,
        scheduler=DPMSolverMultistepScheduler(),
    )


@family("pixart_pag", **SMALL, use_resolution_binning=False, clean_caption=False, pag_scale=3.0)
def _pixart_pag() -> Any:
    from diffusers import PixArtSigmaPAGPipeline

    given = dict(_pixart_alpha().components)
    return PixArtSigmaPAGPipeline(**given, pag_applied_layers=["blocks.1"])


@family("hunyuandit_pag", height=64, width=64, num_inference_steps=2, use_resolution_binning=False)
def _hunyuandit_pag() -> Any:
    from diffusers import HunyuanDiTPAGPipeline
    from tiny import FAMILIES

    given = FAMILIES["hunyuandit"].build().components
    return HunyuanDiTPAGPipeline(
        **given, requires_safety_checker=False, pag_applied_layers=["blocks.1"]
    )


@family("sana_pag", **SMALL, use_resolution_binning=False, pag_scale=3.0)
def _sana_pag() -> Any:
    from diffusers import SanaPAGPipeline
    from tiny import FAMILIES

    given = FAMILIES["sana"].build().components
    return SanaPAGPipeline(**given, pag_applied_layers=["transformer_blocks.1"])


@family("sana_sprint", **SMALL, use_resolution_binning=False)
def _sana_sprint() -> Any:
    """Distilled to two steps, guidance as an embedding."""
    from diffusers import SanaSprintPipeline, SCMScheduler
    from tiny import FAMILIES, sana_transformer

    given = dict(FAMILIES["sana"].build().components)
    given["transformer"] = sana_transformer(guidance_embeds=True, qk_norm="rms_norm_across_heads")
    given["scheduler"] = SCMScheduler()
    return SanaSprintPipeline(**given)


@family("ldm", height=64, width=64, num_inference_steps=2, guidance_scale=5.0)
def _ldm() -> Any:
    """The first latent diffusion model, its text encoder a class of diffusers, the negative pass first."""
    from diffusers import LDMTextToImagePipeline
    from diffusers.pipelines.latent_diffusion.pipeline_latent_diffusion import (
        LDMBertConfig,
        LDMBertModel,
    )
    from tiny import ddim

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
    return LDMTextToImagePipeline(
        vqvae=parts.vae(blocks=4),
        bert=bert,
        tokenizer=tok.clip_tokenizer(),
        unet=nets.unet(sample_size=8),
        scheduler=ddim(),
    )


@family("amused", **SMALL)
def _amused() -> Any:
    """A masked token model: no noise, and no generator per image."""
    from diffusers import AmusedPipeline, AmusedScheduler, UVit2DModel, VQModel

    torch.manual_seed(0)
    transformer = UVit2DModel(
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
    codec = VQModel(
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
    return AmusedPipeline(
        vqvae=codec,
        tokenizer=tok.clip_tokenizer(),
        text_encoder=parts.clip_text(32),
        transformer=transformer,
        scheduler=AmusedScheduler(mask_token_id=31),
    )


@family("cogview3", height=32, width=32, num_inference_steps=2)
def _cogview3() -> Any:
    from diffusers import (
        CogVideoXDDIMScheduler,
        CogView3PlusPipeline,
        CogView3PlusTransformer2DModel,
    )

    torch.manual_seed(0)
    transformer = CogView3PlusTransformer2DModel(
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
    return CogView3PlusPipeline(
        tokenizer=tok.t5_tokenizer(),
        text_encoder=parts.t5_encoder(),
        vae=parts.vae(),
        transformer=transformer,
        scheduler=CogVideoXDDIMScheduler(),
    )


@family("wuerstchen", height=128, width=128, num_inference_steps=2, prior_num_inference_steps=2)
def _wuerstchen() -> Any:
    """Stable Cascade's forerunner: two stages without any list of named blocks."""
    from diffusers import DDPMWuerstchenScheduler, WuerstchenCombinedPipeline

    home = moved("wuerstchen")
    torch.manual_seed(0)
    prior = home.WuerstchenPrior(c_in=2, c=8, depth=2, c_cond=32, c_r=8, nhead=2)
    decoder = home.WuerstchenDiffNeXt(
        c_cond=32,
        c_hidden=[8, 16],
        nhead=[-1, 2],
        blocks=[2, 2],
        level_config=["CT", "CTA"],
        inject_effnet=[False, True],
        effnet_embd=2,
        clip_embd=32,
        patch_size=2,
        c_r=8,
    )
    return WuerstchenCombinedPipeline(
        tokenizer=tok.clip_tokenizer(),
        text_encoder=parts.clip_text(seed=1),
        decoder=decoder,
        scheduler=DDPMWuerstchenScheduler(),
        vqgan=home.PaellaVQModel(bottleneck_blocks=1, embed_dim=8, num_vq_embeddings=16),
        prior_tokenizer=tok.clip_tokenizer(),
        prior_text_encoder=parts.clip_text(seed=2),
        prior_prior=prior,
        prior_scheduler=DDPMWuerstchenScheduler(),
    )


@family("kandinsky3", **SMALL)
def _kandinsky3() -> Any:
    from diffusers import DDPMScheduler, Kandinsky3Pipeline, Kandinsky3UNet

    torch.manual_seed(0)
    unet = Kandinsky3UNet(
        in_channels=4,
        time_embedding_dim=4,
        groups=2,
        attention_head_dim=4,
        layers_per_block=3,
        block_out_channels=(32, 64),
        cross_attention_dim=4,
        encoder_hid_dim=32,
    )
    return Kandinsky3Pipeline(
        tokenizer=tok.t5_tokenizer(),
        text_encoder=parts.t5_encoder(),
        unet=unet,
        scheduler=DDPMScheduler(),
        movq=parts.movq(),
    )


@family(
    "unclip",
    prior_num_inference_steps=2,
    decoder_num_inference_steps=2,
    super_res_num_inference_steps=2,
)
def _unclip() -> Any:
    """DALL-E 2: a prior, a decoder, two super-resolution stages, of which the prompt reaches two."""
    from diffusers import UnCLIPPipeline, UnCLIPScheduler, UNet2DModel

    torch.manual_seed(0)
    decoder = nets.unet(
        sample_size=32,
        in_channels=3,
        out_channels=6,
        down_block_types=("ResnetDownsampleBlock2D", "SimpleCrossAttnDownBlock2D"),
        mid_block_type="UNetMidBlock2DSimpleCrossAttn",
        up_block_types=("SimpleCrossAttnUpBlock2D", "ResnetUpsampleBlock2D"),
        resnet_time_scale_shift="scale_shift",
        class_embed_type="identity",
    )

    def super_resolution() -> Any:
        torch.manual_seed(1)
        return UNet2DModel(
            sample_size=64,
            layers_per_block=1,
            down_block_types=("ResnetDownsampleBlock2D", "ResnetDownsampleBlock2D"),
            up_block_types=("ResnetUpsampleBlock2D", "ResnetUpsampleBlock2D"),
            block_out_channels=(16, 32),
            in_channels=6,
            out_channels=3,
            norm_num_groups=4,
        )

    def scheduler(**settings: Any) -> Any:
        return UnCLIPScheduler(num_train_timesteps=1000, **settings)

    return UnCLIPPipeline(
        prior=nets.prior(2),
        decoder=decoder,
        text_encoder=parts.clip_text(32),
        tokenizer=tok.clip_tokenizer(),
        text_proj=moved("unclip.text_proj").UnCLIPTextProjModel(
            clip_embeddings_dim=32, time_embed_dim=64, cross_attention_dim=32
        ),
        super_res_first=super_resolution(),
        super_res_last=super_resolution(),
        prior_scheduler=scheduler(variance_type="fixed_small_log", prediction_type="sample"),
        decoder_scheduler=scheduler(variance_type="learned_range", prediction_type="epsilon"),
        super_res_scheduler=scheduler(variance_type="fixed_small_log", prediction_type="epsilon"),
    )
