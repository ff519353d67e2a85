"""What the source of each family says about its rows and streams, and the values that follow from it.

The package finds all of this by trial; here it is written down, and a second forward of the denoiser gives the values.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from t2iprobe.activations.generate import GeneratedBatch, ImageRequest, generate
from t2iprobe.activations.plan import plan_capture
from t2iprobe.places import Place

PROMPTS = (
    "a red circle left of a blue square",
    "an orange star above a black triangle in the center",
)


def request(index: int) -> ImageRequest:
    prompt = PROMPTS[index]
    word = prompt.split()[1]
    return ImageRequest(
        f"task{index}", 0, prompt, {"color1": (prompt.index(word), prompt.index(word) + len(word))}
    )


REQUESTS = [request(0), request(1)]


def capture(model: Any, requests: list[ImageRequest], **options: Any) -> GeneratedBatch:
    plan = plan_capture(model, **options)
    (batch,) = generate(model, requests, plan, len(requests), run_seed=0)
    return batch


@dataclass(frozen=True)
class Truth:
    """What a family's source says: a block, where its image is in the output, and which rows are the prompts'."""

    block: str
    image: Callable[
        [Any], Tensor
    ]  # output -> (rows, tokens, width) or (rows, width, height, width)
    rows: slice  # of a call with two prompts
    conditional_call: int = 0  # the last step's conditional call is calls[-1 - this]
    component: str = "transformer"


def tuple_item(index: int) -> Callable[[Any], Tensor]:
    return lambda output: output[index]


SECOND_HALF, FIRST_HALF, ALL = slice(2, 4), slice(0, 2), slice(0, 2)

TRUTHS = {
    "sd15": Truth("mid_block", lambda out: out, SECOND_HALF, component="unet"),
    "sd15_safety": Truth("down_blocks.0", tuple_item(0), SECOND_HALF, component="unet"),
    "sdxl": Truth(
        "up_blocks.0.attentions.1.transformer_blocks.0",
        lambda out: out,
        SECOND_HALF,
        component="unet",
    ),
    "sd3": Truth("transformer_blocks.1", tuple_item(1), SECOND_HALF),
    "sd3_no_t5": Truth("transformer_blocks.2", tuple_item(1), SECOND_HALF),
    "flux": Truth("single_transformer_blocks.1", tuple_item(1), ALL),
    "flux_true_cfg": Truth("transformer_blocks.0", tuple_item(1), ALL, conditional_call=1),
    "pixart_sigma": Truth("transformer_blocks.1", lambda out: out, SECOND_HALF),
    "sana": Truth("transformer_blocks.2", lambda out: out, SECOND_HALF),
    "qwenimage": Truth("transformer_blocks.1", tuple_item(1), ALL, conditional_call=1),
    "zimage": Truth("layers.1", lambda out: out[:, :64], FIRST_HALF),
    "kandinsky22": Truth("mid_block", lambda out: out, SECOND_HALF, component="unet"),
    "deepfloyd_if": Truth("up_blocks.1", lambda out: out, SECOND_HALF, component="unet"),
    "stable_cascade": Truth("up_blocks.0.2", lambda out: out, FIRST_HALF, component="prior_prior"),
    "sd15_pndm": Truth("mid_block", lambda out: out, SECOND_HALF, component="unet"),
    "sd15_heun": Truth("mid_block", lambda out: out, SECOND_HALF, component="unet"),
    "sd15_dpm2": Truth("mid_block", lambda out: out, SECOND_HALF, component="unet"),
    "auraflow": Truth("single_transformer_blocks.1", lambda out: out[:, -64:], SECOND_HALF),
    "chroma": Truth(
        "single_transformer_blocks.1", lambda out: out[:, -64:], ALL, conditional_call=1
    ),
    "cogview4": Truth("transformer_blocks.0", tuple_item(0), ALL, conditional_call=1),
    "hunyuandit": Truth("blocks.2", lambda out: out, SECOND_HALF),
    "sd15_pag": Truth("down_blocks.1", tuple_item(0), SECOND_HALF, component="unet"),
    "lcm": Truth("mid_block", lambda out: out, ALL, component="unet"),
}

MIDDLE_THIRD = slice(2, 4)

UNSEEN = {
    "sd2": Truth("mid_block", lambda out: out, SECOND_HALF, component="unet"),
    "sdxl_pag": Truth("mid_block", lambda out: out, MIDDLE_THIRD, component="unet"),
    "semantic": Truth("mid_block", lambda out: out, SECOND_HALF, component="unet"),
    "sag": Truth("mid_block", lambda out: out, SECOND_HALF, 1, component="unet"),
    "sd35": Truth("transformer_blocks.1", tuple_item(1), SECOND_HALF),
    "sd3_pag": Truth("transformer_blocks.2", tuple_item(1), MIDDLE_THIRD),
    "flux_schnell": Truth("single_transformer_blocks.1", tuple_item(1), ALL),
    "flux_kontext": Truth("transformer_blocks.1", tuple_item(1), ALL),
    "flux2": Truth("single_transformer_blocks.1", lambda out: out[:, 512:], ALL),
    "flux2_klein": Truth("single_transformer_blocks.0", lambda out: out[:, 512:], ALL, 1),
    "pixart_alpha": Truth("transformer_blocks.1", lambda out: out, SECOND_HALF),
    "pixart_pag": Truth("transformer_blocks.1", lambda out: out, MIDDLE_THIRD),
    "hunyuandit_pag": Truth("blocks.2", lambda out: out, MIDDLE_THIRD),
    "sana_pag": Truth("transformer_blocks.2", lambda out: out, MIDDLE_THIRD),
    "sana_sprint": Truth("transformer_blocks.2", lambda out: out, ALL),
    "ldm": Truth("mid_block", lambda out: out, SECOND_HALF, component="unet"),
    "amused": Truth("transformer_layers.1", lambda out: out, slice(1, 2)),
    "cogview3": Truth("transformer_blocks.0", tuple_item(0), SECOND_HALF),
    "wuerstchen": Truth("blocks.0", lambda out: out, slice(0, 1), component="prior_prior"),
    "kandinsky3": Truth("down_blocks.1", lambda out: out, slice(1, 2), component="unet"),
    "kandinsky21": Truth("mid_block", lambda out: out, SECOND_HALF, component="unet"),
    "unclip": Truth("mid_block", lambda out: out, SECOND_HALF, component="decoder"),
    "lumina": Truth("layers.1", lambda out: out, FIRST_HALF),
    "omnigen": Truth("layers.1", lambda out: out[:, -4:], slice(0, 1)),
    "hunyuanimage": Truth("transformer_blocks.0", tuple_item(0), ALL, 1),
    "bria": Truth("transformer_blocks.0", tuple_item(1), SECOND_HALF),
    "bria_fibo": Truth("single_transformer_blocks.1", lambda out: out[:, -16:], SECOND_HALF),
    "ovis": Truth("transformer_blocks.1", tuple_item(1), ALL, 1),
    "longcat": Truth("single_transformer_blocks.0", tuple_item(1), ALL, 1),
    "ernie": Truth("layers.1", lambda out: out.transpose(0, 1)[:, :64], SECOND_HALF),
    "krea2": Truth("transformer_blocks.1", lambda out: out[:, -16:], ALL, 1),
    "prx": Truth("blocks.1", lambda out: out, slice(1, 2)),
    "qwenimage21": Truth("transformer_blocks.1", lambda out: out[:, -4:], slice(0, 1), 1),
    "nucleus": Truth("transformer_blocks.1", lambda out: out, ALL, 1),
    "lumina2": Truth("layers.1", lambda out: out[:, -4:], slice(0, 1), 1),
    "kandinsky5": Truth("visual_transformer_blocks.1", lambda out: out, slice(0, 1), 1),
    "hidream": Truth("double_stream_blocks.1", tuple_item(0), SECOND_HALF),
    "safe": Truth("mid_block", lambda out: out, MIDDLE_THIRD, component="unet"),
    "paradigms": Truth("mid_block", lambda out: out, SECOND_HALF, component="unet"),
    "model_editing": Truth("mid_block", lambda out: out, SECOND_HALF, component="unet"),
    "panorama": Truth("mid_block", lambda out: out, slice(1, 2), component="unet"),
    "gligen": Truth("mid_block", lambda out: out, SECOND_HALF, component="unet"),
    "alt_diffusion": Truth("mid_block", lambda out: out, SECOND_HALF, component="unet"),
    "versatile": Truth("mid_block", lambda out: out, SECOND_HALF, component="image_unet"),
    "vq_diffusion": Truth("transformer_blocks.1", lambda out: out, slice(1, 2)),
    "stable_unclip": Truth(
        "mid_block.attentions.0.transformer_blocks.0",
        lambda out: out,
        SECOND_HALF,
        component="unet",
    ),
    "unidiffuser": Truth(
        "transformer.transformer_in_blocks.0", lambda out: out[:, -64:], ALL, component="unet"
    ),
    "kolors": Truth("mid_block", lambda out: out, SECOND_HALF, component="unet"),
    "kolors_pag": Truth("mid_block", lambda out: out, MIDDLE_THIRD, component="unet"),
    "cosmos2": Truth("transformer_blocks.1", lambda out: out, ALL, 1),
    "ideogram4": Truth("layers.1", lambda out: out[:, 128:], ALL),
    "dreamlite": Truth("mid_block", lambda out: out, slice(1, 2), component="unet"),
    "dreamlite_mobile": Truth("mid_block", lambda out: out, slice(0, 1), component="unet"),
    "bria_fibo2": Truth("layers.2", lambda out: out[:, -64:], slice(0, 1), 1),
    "glm_image": Truth("transformer_blocks.1", tuple_item(0), slice(0, 1), 1),
    "zimage_omni": Truth("layers.1", lambda out: out[:, -64:], slice(0, 1)),
    "prx_pixel": Truth("blocks.1", lambda out: out, slice(1, 2)),
    "joyimage": Truth("double_blocks.0", tuple_item(0), ALL, 1),
    "joyimage_plus": Truth("double_blocks.0", tuple_item(0), SECOND_HALF),
    "flux2_klein_kv": Truth("single_transformer_blocks.0", lambda out: out[:, 512:], ALL),
}
"""Families that the package was not made on, and those that make one image at a time."""


def copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, list | tuple):
        return type(value)(copied(item) for item in value)
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return value


def rows_of(truth: Truth, prompts: int) -> slice:
    """Where the prompts of a call are: half as far where one at a time is all that this release can make."""
    start, stop = truth.rows.start, truth.rows.stop
    return truth.rows if stop - start == prompts else slice(start // 2, start // 2 + 1)


def by_hand(model: Any, truth: Truth, calls: list[tuple[Any, Any]], prompts: int) -> Tensor:
    """Mean over the image of the block's output in the last step, from a fresh forward on the same inputs."""
    module = model.denoisers[truth.component]
    block = module.get_submodule(truth.block)
    outputs: list[Any] = []
    handle = block.register_forward_hook(lambda _m, _a, output: outputs.append(copied(output)))
    args, kwargs = calls[-1 - truth.conditional_call]
    with torch.no_grad():
        module(*args, **kwargs)
    handle.remove()
    image = truth.image(outputs[0])
    flat = image.flatten(2).mean(2) if image.ndim == 4 else image.mean(1)
    return flat[rows_of(truth, prompts)]


def compared(model: Any, truth: Truth) -> tuple[Tensor, Tensor]:
    """Captured and true means over the image of two prompts, at the last step: (2, width) each."""
    calls: list[tuple[Any, Any]] = []
    module = model.denoisers[truth.component]
    site = f"{truth.component}.{truth.block}:image"
    plan = plan_capture(model, sites=[site], at=(0, 1))
    size = plan.calibration.max_batch or 2
    handle = module.register_forward_pre_hook(
        lambda _m, args, kwargs: calls.append((copied(args), copied(kwargs))), with_kwargs=True
    )
    got, expected = [], []
    for batch in generate(model, REQUESTS, plan, size, run_seed=0):
        last = plan.steps[truth.component][-1]
        got.append(batch.activations[Place.parse(f"{site}/mean@{last}")])
        handle.remove()  # the forward by hand is no call of the pipeline
        expected.append(by_hand(model, truth, calls, size))
        handle = module.register_forward_pre_hook(
            lambda _m, args, kwargs: calls.append((copied(args), copied(kwargs))), with_kwargs=True
        )
    handle.remove()
    return torch.cat(got), torch.cat(expected)


def capture_all(model: Any, requests: list[ImageRequest]) -> dict[str, Tensor]:
    """Every site at every default step for two prompts, in one batch where the model can make one."""
    plan = plan_capture(model, sites="all")
    batches = list(generate(model, requests, plan, plan.calibration.max_batch or 2, run_seed=0))
    return {str(p): torch.cat([b.activations[p] for b in batches]) for p in batches[0].activations}
