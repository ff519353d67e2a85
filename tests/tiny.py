"""Tiny random pipelines of many families, written to disk offline: the structure of the real ones, noise for images."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tiny_denoisers as nets
import tiny_parts as parts
import tiny_tokenizers as tok
import torch

COMPLETE = (0, 42)
"""The diffusers from which on every family can be built; with an older one some are skipped."""

SMALL = {"height": 32, "width": 32, "num_inference_steps": 2}


@dataclass(frozen=True)
class Tiny:
    """One family: how to build its pipeline, the call that suits it, what a user would meet it for."""

    build: Callable[[], Any]
    call: dict[str, Any] = field(default_factory=dict)


FAMILIES: dict[str, Tiny] = {}


BUILDERS = (
    "tiny_more",
    "tiny_variants",
    "tiny_older",
    "tiny_dits",
    "tiny_latest",
    "tiny_processors",
    "tiny_newer",
)
"""Modules that each add families."""


def load_builders() -> None:
    """Know every family."""
    for name in BUILDERS:
        import_module(name)


def family(name: str, **call: Any) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    def keep(build: Callable[[], Any]) -> Callable[[], Any]:
        FAMILIES[name] = Tiny(build, call)
        return build

    return keep


def pipe_args(name: str) -> tuple[str, ...]:
    """The call of a family as the command line takes it."""
    return tuple(f"{key}={value}" for key, value in FAMILIES[name].call.items())


def save(name: str, folder: Path) -> Path:
    """Write a family's pipeline to folder/name."""
    path = folder / name
    if path.exists():
        return path
    torch.manual_seed(0)
    pipe = FAMILIES[name].build()
    for part in pipe.components.values():
        if isinstance(part, torch.nn.Module):
            part.eval()
            parts.wake(part)
            if hasattr(part, "post_init") and not hasattr(part, "all_tied_weights_keys"):
                # transformers 5 cannot load it; newer releases of diffusers mended theirs
                raise AttributeError(f"{type(part).__name__} has no attribute set by post_init")
    pipe.save_pretrained(path)
    index_file = path / "model_index.json"
    index = json.loads(index_file.read_text())
    for key, part in pipe.components.items():
        home = type(part).__module__.split(".")
        if index.get(key, [""])[0] == "diffusers" and "deprecated" in home:
            # hub repositories name the module that such a class was in
            index[key] = [home[home.index("deprecated") + 1], type(part).__name__]
    index_file.write_text(json.dumps(index))
    return path


def lacking(error: Exception) -> str | None:
    """What an older diffusers lacks of a family; None where the error is another, or diffusers new enough for all."""
    installed = version("diffusers")
    newer = tuple(int(part) for part in installed.split(".")[:2]) >= COMPLETE
    line = str(error).strip().splitlines()[-1] if str(error).strip() else ""
    if newer or not ("cannot import name" in line or "has no attribute" in line):
        return None
    return f"diffusers {installed} with transformers {version('transformers')}: {line.partition(' (/')[0]}"


def ddim() -> Any:
    from diffusers import DDIMScheduler

    return DDIMScheduler(beta_schedule="scaled_linear", clip_sample=False, steps_offset=1)


def flow(**settings: Any) -> Any:
    from diffusers import FlowMatchEulerDiscreteScheduler

    return FlowMatchEulerDiscreteScheduler(**settings)


def sd(kind: str = "StableDiffusionPipeline", flags: bool | None = None, **changes: Any) -> Any:
    import diffusers

    checker = None if flags is None else parts.safety_checker(flags)
    given: dict[str, Any] = {
        "vae": parts.vae(),
        "text_encoder": parts.clip_text(),
        "tokenizer": tok.clip_tokenizer(),
        "unet": nets.unet(),
        "scheduler": ddim(),
        "safety_checker": checker,
        "feature_extractor": parts.image_processor() if checker else None,
        "requires_safety_checker": checker is not None,
    }
    return getattr(diffusers, kind)(**(given | changes))


@family("sd15", **SMALL)
def _sd15() -> Any:
    return sd()


@family("sd15_safety", **SMALL)
def _sd15_safety() -> Any:
    return sd(flags=False)


@family("sd15_flagged", **SMALL)
def _sd15_flagged() -> Any:
    return sd(flags=True)


@family("sd15_pndm", **SMALL)
def _sd15_pndm() -> Any:
    from diffusers import PNDMScheduler

    return sd(scheduler=PNDMScheduler(skip_prk_steps=True, steps_offset=1))


@family("sd15_heun", **SMALL)
def _sd15_heun() -> Any:
    from diffusers import HeunDiscreteScheduler

    return sd(scheduler=HeunDiscreteScheduler())


@family("sd15_dpm2", **SMALL)
def _sd15_dpm2() -> Any:
    from diffusers import KDPM2DiscreteScheduler

    return sd(scheduler=KDPM2DiscreteScheduler())


@family("sd15_nan", **SMALL)
def _sd15_nan() -> Any:
    pipe = sd()
    with torch.no_grad():
        pipe.vae.decoder.conv_in.bias.fill_(float("nan"))
    return pipe


@family("sd15_pag", **SMALL, guidance_scale=5.0, pag_scale=3.0)
def _sd15_pag() -> Any:
    return sd("StableDiffusionPAGPipeline", pag_applied_layers=["mid"])


@family("sdxl", **SMALL)
def _sdxl() -> Any:
    from diffusers import EulerDiscreteScheduler, StableDiffusionXLPipeline

    unet = nets.unet(
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        transformer_layers_per_block=(1, 2),
        attention_head_dim=(2, 4),
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=8,
        projection_class_embeddings_input_dim=32 + 6 * 8,
        cross_attention_dim=64,
    )
    return StableDiffusionXLPipeline(
        vae=parts.vae(),
        text_encoder=parts.clip_text(seed=1),
        text_encoder_2=parts.clip_text(32, layers=4, seed=2),
        tokenizer=tok.clip_tokenizer(),
        tokenizer_2=tok.clip_tokenizer(pad="!"),
        unet=unet,
        scheduler=EulerDiscreteScheduler(),
        add_watermarker=False,
    )


def sd3_parts(third: bool = True) -> dict[str, Any]:
    """All of Stable Diffusion 3 but its transformer."""
    return {
        "scheduler": flow(shift=3.0),
        "vae": parts.vae(8, quant=False, shift=0.06),
        "text_encoder": parts.clip_text(32, seed=1),
        "tokenizer": tok.clip_tokenizer(),
        "text_encoder_2": parts.clip_text(32, seed=2),
        "tokenizer_2": tok.clip_tokenizer(pad="!"),
        "text_encoder_3": parts.t5_encoder(64) if third else None,
        "tokenizer_3": tok.t5_tokenizer() if third else None,
    }


def _sd3(third: bool) -> Any:
    from diffusers import StableDiffusion3Pipeline

    return StableDiffusion3Pipeline(
        transformer=nets.sd3_transformer(num_layers=3), **sd3_parts(third)
    )


@family("sd3", **SMALL)
def _sd3_whole() -> Any:
    return _sd3(True)


@family("sd3_no_t5", **SMALL)
def _sd3_no_t5() -> Any:
    return _sd3(False)


def _flux() -> Any:
    from diffusers import FluxPipeline

    transformer = nets.flux_like(
        "FluxTransformer2DModel", pooled_projection_dim=32, guidance_embeds=True
    )
    return FluxPipeline(
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


@family("pixart_sigma", **SMALL, use_resolution_binning=False)
def _pixart() -> Any:
    from diffusers import (
        DPMSolverMultistepScheduler,
        PixArtSigmaPipeline,
        PixArtTransformer2DModel,
    )

    torch.manual_seed(0)
    transformer = PixArtTransformer2DModel(
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
    return PixArtSigmaPipeline(
        tokenizer=tok.t5_tokenizer(),
        text_encoder=parts.t5_encoder(),
        vae=parts.vae(),
        transformer=transformer,
        scheduler=DPMSolverMultistepScheduler(),
    )


def sana_transformer(**changes: Any) -> Any:
    from diffusers import SanaTransformer2DModel

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
    return SanaTransformer2DModel(**(settings | changes))


@family("sana", **SMALL, use_resolution_binning=False)
def _sana() -> Any:
    from diffusers import AutoencoderDC, SanaPipeline

    torch.manual_seed(0)
    codec = AutoencoderDC(
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
    return SanaPipeline(
        tokenizer=tok.gemma_tokenizer(4096),
        text_encoder=parts.gemma2(),
        vae=codec,
        transformer=sana_transformer(),
        scheduler=flow(shift=3.0),
    )


@family("qwenimage", **SMALL, true_cfg_scale=4.0, negative_prompt="bad")
def _qwenimage() -> Any:
    from diffusers import QwenImagePipeline, QwenImageTransformer2DModel

    torch.manual_seed(0)
    transformer = QwenImageTransformer2DModel(
        patch_size=2,
        in_channels=16,
        out_channels=4,
        num_layers=3,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        axes_dims_rope=(8, 4, 4),
    )
    return QwenImagePipeline(
        scheduler=flow(use_dynamic_shifting=True),
        vae=parts.qwen_image_vae(),
        text_encoder=parts.qwen25_vl(),
        tokenizer=tok.qwen_tokenizer(),
        transformer=transformer,
    )


@family("zimage", **SMALL, guidance_scale=4.0)
def _zimage() -> Any:
    from diffusers import ZImagePipeline

    return ZImagePipeline(
        scheduler=flow(use_dynamic_shifting=True),
        vae=parts.vae(8, shift=0.1),
        text_encoder=parts.qwen3(),
        tokenizer=tok.qwen_tokenizer(1024),
        transformer=nets.zimage_transformer(),
    )


@family("kandinsky22", height=64, width=64, num_inference_steps=2, prior_num_inference_steps=2)
def _kandinsky22() -> Any:
    from diffusers import DDIMScheduler, KandinskyV22CombinedPipeline, UnCLIPScheduler

    unet = nets.simple_cross_unet(
        out_channels=8, addition_embed_type="image", encoder_hid_dim_type="image_proj"
    )
    return KandinskyV22CombinedPipeline(
        unet=unet,
        scheduler=DDIMScheduler(clip_sample=False),
        movq=parts.movq(),
        prior_prior=nets.prior(3),
        prior_image_encoder=parts.clip_vision(),
        prior_text_encoder=parts.clip_text(32),
        prior_tokenizer=tok.clip_tokenizer(),
        prior_scheduler=UnCLIPScheduler(variance_type="fixed_small_log", prediction_type="sample"),
        prior_image_processor=parts.image_processor(),
    )


def moved(module: str) -> Any:
    """A module of diffusers.pipelines, which newer releases have under `deprecated`."""
    try:
        return import_module(f"diffusers.pipelines.deprecated.{module}")
    except ImportError:
        return import_module(f"diffusers.pipelines.{module}")


@family("stable_cascade", height=128, width=128, num_inference_steps=2, prior_num_inference_steps=2)
def _stable_cascade() -> Any:
    from diffusers import (
        DDPMWuerstchenScheduler,
        StableCascadeCombinedPipeline,
        StableCascadeUNet,
    )

    torch.manual_seed(0)
    shared = {
        "conditioning_dim": 32,
        "timestep_ratio_embedding_dim": 16,
        "clip_text_pooled_in_channels": 32,
        "down_num_layers_per_block": (1, 1),
        "up_num_layers_per_block": (1, 1),
    }
    prior = StableCascadeUNet(
        block_out_channels=(16, 16),
        num_attention_heads=(2, 2),
        clip_image_in_channels=32,
        clip_text_in_channels=32,
        switch_level=(False,),
        **shared,
    )
    blocks = ("SDCascadeResBlock", "SDCascadeTimestepBlock")
    decoder = StableCascadeUNet(
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
    return StableCascadeCombinedPipeline(
        tokenizer=tok.clip_tokenizer(),
        text_encoder=parts.clip_text(32, seed=1),
        decoder=decoder,
        scheduler=DDPMWuerstchenScheduler(),
        vqgan=codec,
        prior_prior=prior,
        prior_text_encoder=parts.clip_text(32, seed=2),
        prior_tokenizer=tok.clip_tokenizer(),
        prior_scheduler=DDPMWuerstchenScheduler(),
    )


@family("deepfloyd_if", **SMALL, clean_caption=False)
def _deepfloyd() -> Any:
    from diffusers import DDPMScheduler, IFPipeline

    unet = nets.simple_cross_unet(
        sample_size=32,
        in_channels=3,
        out_channels=6,
        attention_head_dim=8,
        addition_embed_type="text",
        addition_embed_type_num_heads=2,
        cross_attention_norm="group_norm",
        act_fn="gelu",
    )
    return IFPipeline(
        tokenizer=tok.t5_tokenizer(),
        text_encoder=parts.t5_encoder(),
        unet=unet,
        scheduler=DDPMScheduler(beta_schedule="squaredcos_cap_v2", variance_type="learned_range"),
        safety_checker=None,
        feature_extractor=None,
        watermarker=None,
        requires_safety_checker=False,
    )


@family("unconditional")
def _unconditional() -> Any:
    from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel

    torch.manual_seed(0)
    unet = UNet2DModel(
        sample_size=16,
        layers_per_block=1,
        block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=4,
    )
    return DDPMPipeline(unet=unet, scheduler=DDPMScheduler())


@family("img2img", **SMALL)
def _img2img() -> Any:
    return sd("StableDiffusionImg2ImgPipeline")


@family("pix2pix", num_inference_steps=2)
def _pix2pix() -> Any:
    return sd("StableDiffusionInstructPix2PixPipeline", unet=nets.unet(in_channels=8))


@family("video", **SMALL)
def _video() -> Any:
    from diffusers import AutoencoderKLWan, WanPipeline, WanTransformer3DModel

    torch.manual_seed(0)
    transformer = WanTransformer3DModel(
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
    codec = AutoencoderKLWan(
        base_dim=4, z_dim=4, dim_mult=[1, 1], num_res_blocks=1, temperal_downsample=[False]
    )
    return WanPipeline(
        tokenizer=tok.t5_tokenizer(),
        text_encoder=parts.umt5_encoder(),
        vae=codec,
        scheduler=flow(),
        transformer=transformer,
    )
