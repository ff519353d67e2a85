"""Stable Diffusion 1 to XL and what was made of them: a UNet that looks at the text by cross-attention."""

import tempfile
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import diffusers
import torch
from tiny import FAMILIES, SMALL, family

from pipelines import denoisers as nets
from pipelines import parts
from pipelines import tokenizers as tok
from pipelines.parts import ddim, moved


def sd(kind: str = "StableDiffusionPipeline", flags: bool | None = None, **changes: Any) -> Any:
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
    return sd(scheduler=diffusers.PNDMScheduler(skip_prk_steps=True, steps_offset=1))


@family("sd15_heun", **SMALL)
def _sd15_heun() -> Any:
    return sd(scheduler=diffusers.HeunDiscreteScheduler())


@family("sd15_dpm2", **SMALL)
def _sd15_dpm2() -> Any:
    return sd(scheduler=diffusers.KDPM2DiscreteScheduler())


@family("sd15_nan", **SMALL)
def _sd15_nan() -> Any:
    pipe = sd()
    with torch.no_grad():
        pipe.vae.decoder.conv_in.bias.fill_(float("nan"))
    return pipe


@family("sd15_pag", **SMALL, guidance_scale=5.0, pag_scale=3.0)
def _sd15_pag() -> Any:
    return sd("StableDiffusionPAGPipeline", pag_applied_layers=["mid"])


@family("sd2", **SMALL)
def _sd2() -> Any:
    """v-prediction, linear projections."""
    return sd(
        unet=nets.unet(use_linear_projection=True, attention_head_dim=(2, 4)),
        scheduler=diffusers.DDIMScheduler(
            prediction_type="v_prediction", rescale_betas_zero_snr=True, clip_sample=False
        ),
    )


@family("lcm", **SMALL)
def _lcm() -> Any:
    """Guidance as an embedding of the UNet: one half only."""
    return diffusers.LatentConsistencyModelPipeline(
        vae=parts.vae(),
        text_encoder=parts.clip_text(),
        tokenizer=tok.clip_tokenizer(),
        unet=nets.unet(time_cond_proj_dim=16),
        scheduler=diffusers.LCMScheduler(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


@family("ldm3d", **SMALL)
def _ldm3d() -> Any:
    """Gives a picture and a depth map."""
    return sd("StableDiffusionLDM3DPipeline", image_encoder=None)


@family("sag", **SMALL, sag_scale=1.0)
def _sag() -> Any:
    """Self-attention guidance: the denoiser is called once more, on a blurred picture."""
    return sd("StableDiffusionSAGPipeline", image_encoder=None)


@family("panorama", height=32, width=64, num_inference_steps=2)
def _panorama() -> Any:
    """One picture from overlapping views."""
    return sd("StableDiffusionPanoramaPipeline")


@family("semantic", **SMALL)
def _semantic() -> Any:
    return sd("SemanticStableDiffusionPipeline")


@family("safe", **SMALL)
def _safe() -> Any:
    """Three rows: without a prompt, with it, and with a text of what the picture must not show."""
    return sd("StableDiffusionPipelineSafe", image_encoder=None)


@family("paradigms", height=32, width=32, num_inference_steps=2, parallel=2)
def _paradigms() -> Any:
    """Steps are solved side by side: one call holds several."""
    return sd("StableDiffusionParadigmsPipeline", scheduler=diffusers.DDIMParallelScheduler())


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


@family("sdxl", **SMALL)
def _sdxl() -> Any:
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
    return diffusers.StableDiffusionXLPipeline(
        vae=parts.vae(),
        text_encoder=parts.clip_text(seed=1),
        text_encoder_2=parts.clip_text(32, layers=4, seed=2),
        tokenizer=tok.clip_tokenizer(),
        tokenizer_2=tok.clip_tokenizer(pad="!"),
        unet=unet,
        scheduler=diffusers.EulerDiscreteScheduler(),
        add_watermarker=False,
    )


@family("sdxl_pag", **SMALL, pag_scale=3.0)
def _sdxl_pag() -> Any:
    given = dict(FAMILIES["sdxl"].build().components)
    return diffusers.StableDiffusionXLPAGPipeline(**given, pag_applied_layers=["mid"])


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


@family("img2img", **SMALL)
def _img2img() -> Any:
    return sd("StableDiffusionImg2ImgPipeline")


@family("pix2pix", num_inference_steps=2)
def _pix2pix() -> Any:
    return sd("StableDiffusionInstructPix2PixPipeline", unet=nets.unet(in_channels=8))


@family("inpaint", **SMALL)
def _inpaint() -> Any:
    return sd("StableDiffusionInpaintPipeline", unet=nets.unet(in_channels=9))


@family("controlnet", **SMALL)
def _controlnet() -> Any:
    unet = nets.unet()
    return sd(
        "StableDiffusionControlNetPipeline",
        unet=unet,
        controlnet=diffusers.ControlNetModel.from_unet(unet),
    )
