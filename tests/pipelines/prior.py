"""A prior from the text to the vector of a picture, then a decoder: unCLIP, Kandinsky 2, Stable Cascade."""

from typing import Any

import diffusers
import torch
from tiny import SMALL, family

from pipelines import denoisers as nets
from pipelines import parts
from pipelines import tokenizers as tok
from pipelines.parts import ddim, moved


@family(
    "unclip",
    prior_num_inference_steps=2,
    decoder_num_inference_steps=2,
    super_res_num_inference_steps=2,
)
def _unclip() -> Any:
    """DALL-E 2: a prior, a decoder, two super-resolution stages, of which the prompt reaches two."""
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
        return diffusers.UNet2DModel(
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
        return diffusers.UnCLIPScheduler(num_train_timesteps=1000, **settings)

    return diffusers.UnCLIPPipeline(
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


@family("stable_unclip", **SMALL, prior_num_inference_steps=2)
def _stable_unclip() -> Any:
    """A prior and a UNet, each with a text encoder of its own."""
    from diffusers.pipelines.stable_diffusion.stable_unclip_image_normalizer import (
        StableUnCLIPImageNormalizer,
    )

    return diffusers.StableUnCLIPPipeline(
        prior_tokenizer=tok.clip_tokenizer(),
        prior_text_encoder=parts.clip_text(32, seed=1),
        prior=nets.prior(2),
        prior_scheduler=diffusers.DDPMScheduler(
            variance_type="fixed_small_log", prediction_type="sample", clip_sample=True
        ),
        image_normalizer=StableUnCLIPImageNormalizer(embedding_dim=32),
        image_noising_scheduler=diffusers.DDPMScheduler(beta_schedule="squaredcos_cap_v2"),
        tokenizer=tok.clip_tokenizer(),
        text_encoder=parts.clip_text(seed=2),
        unet=nets.unet(class_embed_type="projection", projection_class_embeddings_input_dim=64),
        scheduler=ddim(),
        vae=parts.vae(),
    )


@family("kandinsky21", height=64, width=64, num_inference_steps=2, prior_num_inference_steps=2)
def _kandinsky21() -> Any:
    """A prior with a CLIP, a UNet with a multilingual text encoder of its own."""
    from diffusers.pipelines.kandinsky.text_encoder import MCLIPConfig, MultilingualCLIP

    encoder = MultilingualCLIP(
        MCLIPConfig(
            numDims=32,
            transformerDimensions=32,
            hidden_size=32,
            intermediate_size=64,
            num_attention_heads=4,
            num_hidden_layers=2,
            vocab_size=tok.clip_size(),
            max_position_embeddings=128,
        )
    )
    unet = nets.simple_cross_unet(
        out_channels=8,
        addition_embed_type="text_image",
        addition_embed_type_num_heads=2,
        encoder_hid_dim_type="text_image_proj",
        encoder_hid_dim=32,
    )
    return diffusers.KandinskyCombinedPipeline(
        text_encoder=encoder,
        tokenizer=tok.clip_tokenizer(),
        unet=unet,
        scheduler=diffusers.DDIMScheduler(clip_sample=False),
        movq=parts.movq(),
        prior_prior=nets.prior(2),
        prior_image_encoder=parts.clip_vision(),
        prior_text_encoder=parts.clip_text(32),
        prior_tokenizer=tok.clip_tokenizer(),
        prior_scheduler=diffusers.UnCLIPScheduler(
            variance_type="fixed_small_log", prediction_type="sample"
        ),
        prior_image_processor=parts.image_processor(),
    )


@family("kandinsky22", height=64, width=64, num_inference_steps=2, prior_num_inference_steps=2)
def _kandinsky22() -> Any:
    unet = nets.simple_cross_unet(
        out_channels=8, addition_embed_type="image", encoder_hid_dim_type="image_proj"
    )
    return diffusers.KandinskyV22CombinedPipeline(
        unet=unet,
        scheduler=diffusers.DDIMScheduler(clip_sample=False),
        movq=parts.movq(),
        prior_prior=nets.prior(3),
        prior_image_encoder=parts.clip_vision(),
        prior_text_encoder=parts.clip_text(32),
        prior_tokenizer=tok.clip_tokenizer(),
        prior_scheduler=diffusers.UnCLIPScheduler(
            variance_type="fixed_small_log", prediction_type="sample"
        ),
        prior_image_processor=parts.image_processor(),
    )


@family("stable_cascade", height=128, width=128, num_inference_steps=2, prior_num_inference_steps=2)
def _stable_cascade() -> Any:
    torch.manual_seed(0)
    shared = {
        "conditioning_dim": 32,
        "timestep_ratio_embedding_dim": 16,
        "clip_text_pooled_in_channels": 32,
        "down_num_layers_per_block": (1, 1),
        "up_num_layers_per_block": (1, 1),
    }
    prior = diffusers.StableCascadeUNet(
        block_out_channels=(16, 16),
        num_attention_heads=(2, 2),
        clip_image_in_channels=32,
        clip_text_in_channels=32,
        switch_level=(False,),
        **shared,
    )
    blocks = ("SDCascadeResBlock", "SDCascadeTimestepBlock")
    decoder = diffusers.StableCascadeUNet(
        in_channels=4,
        out_channels=4,
        block_out_channels=(8, 16),
        num_attention_heads=(-1, 2),
        down_blocks_repeat_mappers=(1, 1),
        up_blocks_repeat_mappers=(2, 2),
        patch_size=2,
        effnet_in_channels=16,
        block_types_per_layer=(blocks, (*blocks, "SDCascadeAttnBlock")),
        switch_level=None,
        **shared,
    )
    codec = moved("wuerstchen").PaellaVQModel(
        bottleneck_blocks=1, embed_dim=8, num_vq_embeddings=16
    )
    return diffusers.StableCascadeCombinedPipeline(
        tokenizer=tok.clip_tokenizer(),
        text_encoder=parts.clip_text(32, seed=1),
        decoder=decoder,
        scheduler=diffusers.DDPMWuerstchenScheduler(),
        vqgan=codec,
        prior_prior=prior,
        prior_text_encoder=parts.clip_text(32, seed=2),
        prior_tokenizer=tok.clip_tokenizer(),
        prior_scheduler=diffusers.DDPMWuerstchenScheduler(),
    )


@family("wuerstchen", height=128, width=128, num_inference_steps=2, prior_num_inference_steps=2)
def _wuerstchen() -> Any:
    """Stable Cascade's forerunner: two stages without any list of named blocks."""
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
    return diffusers.WuerstchenCombinedPipeline(
        tokenizer=tok.clip_tokenizer(),
        text_encoder=parts.clip_text(seed=1),
        decoder=decoder,
        scheduler=diffusers.DDPMWuerstchenScheduler(),
        vqgan=home.PaellaVQModel(bottleneck_blocks=1, embed_dim=8, num_vq_embeddings=16),
        prior_tokenizer=tok.clip_tokenizer(),
        prior_text_encoder=parts.clip_text(seed=2),
        prior_prior=prior,
        prior_scheduler=diffusers.DDPMWuerstchenScheduler(),
    )


@family("wuerstchen_prior", height=128, width=128, num_inference_steps=2)
def _wuerstchen_prior() -> Any:
    """The first stage alone."""
    return diffusers.WuerstchenPriorPipeline(
        tokenizer=tok.clip_tokenizer(),
        text_encoder=parts.clip_text(seed=2),
        prior=moved("wuerstchen").WuerstchenPrior(c_in=2, c=8, depth=2, c_cond=32, c_r=8, nhead=2),
        scheduler=diffusers.DDPMWuerstchenScheduler(),
    )
