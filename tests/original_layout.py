"""Tiny checkpoints as one file in the original layout of their family: the mappings of diffusers, turned round.

Real files tell CLIP's two text encoders apart by their widths, so the tiny ones here differ in width too.
"""

import re
from pathlib import Path
from typing import Any

import tiny
import torch
from pipelines import parts
from safetensors.torch import save_file
from torch import Tensor

State = dict[str, Tensor]


def _renamed(state: State, pairs: list[tuple[str, str]], prefix: str = "") -> State:
    """Keys with every pattern replaced in turn."""
    out: State = {}
    for key, value in state.items():
        new = key
        for pattern, by in pairs:
            new = re.sub(pattern, by, new)
        out[prefix + new] = value.clone().contiguous()
    return out


def unet(module: Any) -> State:
    """`model.diffusion_model.` of Stable Diffusion 1.x and XL."""
    per_block = module.config.layers_per_block + 1
    attends = ["attentions" in dict(block.named_children()) for block in module.up_blocks]
    out: State = {}
    for key, value in module.state_dict().items():
        new = key
        place = re.match(r"(down|up)_blocks\.(\d+)\.(resnets|attentions|\w+samplers)\.(\d+)\.", key)
        if place:
            side, block, kind, layer = place[1], int(place[2]), place[3], int(place[4])
            rest = key[place.end() :]
            if side == "down":
                index = 1 + block * per_block + (layer if "samplers" not in kind else per_block - 1)
                slot = {"resnets": "0", "attentions": "1", "downsamplers": "0.op"}[kind]
                rest = rest.removeprefix("conv.") if kind == "downsamplers" else rest
                new = f"input_blocks.{index}.{slot}.{rest}"
            else:
                index = block * per_block + (layer if "samplers" not in kind else per_block - 1)
                slot = {
                    "resnets": "0",
                    "attentions": "1",
                    "upsamplers": "2" if attends[block] else "1",
                }
                new = f"output_blocks.{index}.{slot[kind]}.{rest}"
        out[new] = value
    names = [
        (r"^mid_block\.resnets\.0", "middle_block.0"),
        (r"^mid_block\.attentions\.0", "middle_block.1"),
        (r"^mid_block\.resnets\.1", "middle_block.2"),
        (r"^conv_in", "input_blocks.0.0"),
        (r"^time_embedding\.linear_1", "time_embed.0"),
        (r"^time_embedding\.linear_2", "time_embed.2"),
        (r"^add_embedding\.linear_1", "label_emb.0.0"),
        (r"^add_embedding\.linear_2", "label_emb.0.2"),
        (r"^conv_norm_out", "out.0"),
        (r"^conv_out", "out.2"),
    ]
    inside = [
        (r"(blocks\.\d+\.0|middle_block\.[02])\.norm1", r"\1.in_layers.0"),
        (r"(blocks\.\d+\.0|middle_block\.[02])\.conv1", r"\1.in_layers.2"),
        (r"(blocks\.\d+\.0|middle_block\.[02])\.norm2", r"\1.out_layers.0"),
        (r"(blocks\.\d+\.0|middle_block\.[02])\.conv2", r"\1.out_layers.3"),
        (r"time_emb_proj", "emb_layers.1"),
        (r"conv_shortcut", "skip_connection"),
    ]
    return _renamed(out, names + inside, "model.diffusion_model.")


def vae(module: Any) -> State:
    """`first_stage_model.` of the same files."""
    top = len(module.config.up_block_types) - 1
    out: State = {}
    for key, value in module.state_dict().items():
        linear = re.search(r"mid_block\.attentions\.0\.to_\w+(\.0)?\.weight$", key)
        new = re.sub(
            r"decoder\.up_blocks\.(\d+)", lambda found: f"decoder.up.{top - int(found[1])}", key
        )
        out[new] = value[:, :, None, None] if linear else value
    names = [
        (r"encoder\.down_blocks\.(\d+)", r"encoder.down.\1"),
        (r"(up|down)\.(\d+)\.resnets\.(\d+)", r"\1.\2.block.\3"),
        (r"downsamplers\.0", "downsample"),
        (r"upsamplers\.0", "upsample"),
        (r"mid_block\.resnets\.0", "mid.block_1"),
        (r"mid_block\.resnets\.1", "mid.block_2"),
        (r"mid_block\.attentions\.0\.group_norm", "mid.attn_1.norm"),
        (r"mid_block\.attentions\.0\.to_out\.0", "mid.attn_1.proj_out"),
        (r"mid_block\.attentions\.0\.to_", "mid.attn_1."),
        (r"conv_shortcut", "nin_shortcut"),
        (r"conv_norm_out", "norm_out"),
    ]
    return _renamed(out, names, "first_stage_model.")


def clip(module: Any, prefix: str) -> State:
    """A CLIP text encoder as transformers had it: everything under `text_model.`."""
    inner = {
        key.removeprefix("text_model."): value
        for key, value in module.state_dict().items()
        if "text_projection" not in key
    }
    return _renamed(inner, [], f"{prefix}text_model.")


def open_clip(module: Any, prefix: str) -> State:
    """A CLIP text encoder as OpenCLIP has it: query, key and value in one matrix."""
    state = {key.removeprefix("text_model."): value for key, value in module.state_dict().items()}
    out: State = {}
    for key in list(state):
        for kind in ("weight", "bias"):
            if key.endswith(f"self_attn.q_proj.{kind}"):
                three = [state.pop(key.replace("q_proj", f"{x}_proj")) for x in "qkv"]
                layer = key.split(".")[2]
                out[f"transformer.resblocks.{layer}.attn.in_proj_{kind}"] = torch.cat(three)
    state["text_projection"] = state.pop("text_projection.weight").T
    names = [
        (r"^embeddings\.token_embedding", "token_embedding"),
        (r"^embeddings\.position_embedding\.weight", "positional_embedding"),
        (r"^encoder\.layers", "transformer.resblocks"),
        (r"self_attn", "attn"),
        (r"layer_norm", "ln_"),
        (r"fc1", "c_fc"),
        (r"fc2", "c_proj"),
        (r"^final_ln_", "ln_final"),
    ]
    return _renamed(out | state, names, prefix)


def _joined(state: State, names: tuple[str, str, str], kind: str) -> Tensor:
    return torch.cat([state.pop(f"{name}.{kind}") for name in names])


def _swapped(weight: Tensor) -> Tensor:
    """diffusers keeps scale before shift, the original shift before scale."""
    first, second = weight.chunk(2)
    return torch.cat([second, first])


def sd3(module: Any) -> State:
    """`model.diffusion_model.` of Stable Diffusion 3."""
    state = {key: value.clone() for key, value in module.state_dict().items()}
    last = len(module.transformer_blocks) - 1
    for i in range(last + 1):
        old, new = f"transformer_blocks.{i}.", f"joint_blocks.{i}."
        for kind in ("weight", "bias"):
            image = (f"{old}attn.to_q", f"{old}attn.to_k", f"{old}attn.to_v")
            text = (f"{old}attn.add_q_proj", f"{old}attn.add_k_proj", f"{old}attn.add_v_proj")
            state[f"{new}x_block.attn.qkv.{kind}"] = _joined(state, image, kind)
            state[f"{new}context_block.attn.qkv.{kind}"] = _joined(state, text, kind)
            if i == last:
                name = f"{old}norm1_context.linear.{kind}"
                state[name] = _swapped(state[name])
    for kind in ("weight", "bias"):
        state[f"norm_out.linear.{kind}"] = _swapped(state[f"norm_out.linear.{kind}"])
    names = [
        (r"^pos_embed\.pos_embed", "pos_embed"),
        (r"^pos_embed\.proj", "x_embedder.proj"),
        (r"^time_text_embed\.timestep_embedder\.linear_1", "t_embedder.mlp.0"),
        (r"^time_text_embed\.timestep_embedder\.linear_2", "t_embedder.mlp.2"),
        (r"^time_text_embed\.text_embedder\.linear_1", "y_embedder.mlp.0"),
        (r"^time_text_embed\.text_embedder\.linear_2", "y_embedder.mlp.2"),
        (r"^transformer_blocks\.(\d+)\.attn\.to_out\.0", r"joint_blocks.\1.x_block.attn.proj"),
        (
            r"^transformer_blocks\.(\d+)\.attn\.to_add_out",
            r"joint_blocks.\1.context_block.attn.proj",
        ),
        (
            r"^transformer_blocks\.(\d+)\.norm1\.linear",
            r"joint_blocks.\1.x_block.adaLN_modulation.1",
        ),
        (
            r"^transformer_blocks\.(\d+)\.norm1_context\.linear",
            r"joint_blocks.\1.context_block.adaLN_modulation.1",
        ),
        (r"^transformer_blocks\.(\d+)\.ff\.", r"joint_blocks.\1.x_block.mlp."),
        (r"^transformer_blocks\.(\d+)\.ff_context\.", r"joint_blocks.\1.context_block.mlp."),
        (r"mlp\.net\.0\.proj", "mlp.fc1"),
        (r"mlp\.net\.2", "mlp.fc2"),
        (r"^proj_out", "final_layer.linear"),
        (r"^norm_out\.linear", "final_layer.adaLN_modulation.1"),
    ]
    return _renamed(state, names, "model.diffusion_model.")


def flux(module: Any) -> State:
    """FLUX.1: the transformer alone, without a prefix."""
    state = {key: value.clone() for key, value in module.state_dict().items()}
    for kind in ("weight", "bias"):
        for i in range(len(module.transformer_blocks)):
            old, new = f"transformer_blocks.{i}.attn.", f"double_blocks.{i}."
            image, text = [
                (f"{old}{a}q{b}", f"{old}{a}k{b}", f"{old}{a}v{b}")
                for a, b in (("to_", ""), ("add_", "_proj"))
            ]
            state[f"{new}img_attn.qkv.{kind}"] = _joined(state, image, kind)
            state[f"{new}txt_attn.qkv.{kind}"] = _joined(state, text, kind)
        for i in range(len(module.single_transformer_blocks)):
            old = f"single_transformer_blocks.{i}."
            four = [f"{old}attn.to_q", f"{old}attn.to_k", f"{old}attn.to_v", f"{old}proj_mlp"]
            state[f"single_blocks.{i}.linear1.{kind}"] = torch.cat(
                [state.pop(f"{name}.{kind}") for name in four]
            )
        state[f"norm_out.linear.{kind}"] = _swapped(state[f"norm_out.linear.{kind}"])
    names = [
        (r"^time_text_embed\.timestep_embedder\.linear_1", "time_in.in_layer"),
        (r"^time_text_embed\.timestep_embedder\.linear_2", "time_in.out_layer"),
        (r"^time_text_embed\.text_embedder\.linear_1", "vector_in.in_layer"),
        (r"^time_text_embed\.text_embedder\.linear_2", "vector_in.out_layer"),
        (r"^time_text_embed\.guidance_embedder\.linear_1", "guidance_in.in_layer"),
        (r"^time_text_embed\.guidance_embedder\.linear_2", "guidance_in.out_layer"),
        (r"^context_embedder", "txt_in"),
        (r"^x_embedder", "img_in"),
        (r"^transformer_blocks\.(\d+)\.", r"double_blocks.\1."),
        (r"^single_transformer_blocks\.(\d+)\.", r"single_blocks.\1."),
        (r"norm1\.linear", "img_mod.lin"),
        (r"norm1_context\.linear", "txt_mod.lin"),
        (r"^(single.*)norm\.linear", r"\1modulation.lin"),
        (r"^(single.*)attn\.norm_q\.weight", r"\1norm.query_norm.scale"),
        (r"^(single.*)attn\.norm_k\.weight", r"\1norm.key_norm.scale"),
        (r"^(single.*)proj_out", r"\1linear2"),
        (r"attn\.norm_q\.weight", "img_attn.norm.query_norm.scale"),
        (r"attn\.norm_k\.weight", "img_attn.norm.key_norm.scale"),
        (r"attn\.norm_added_q\.weight", "txt_attn.norm.query_norm.scale"),
        (r"attn\.norm_added_k\.weight", "txt_attn.norm.key_norm.scale"),
        (r"attn\.to_out\.0", "img_attn.proj"),
        (r"attn\.to_add_out", "txt_attn.proj"),
        (r"ff\.net\.0\.proj", "img_mlp.0"),
        (r"ff\.net\.2", "img_mlp.2"),
        (r"ff_context\.net\.0\.proj", "txt_mlp.0"),
        (r"ff_context\.net\.2", "txt_mlp.2"),
        (r"^proj_out", "final_layer.linear"),
        (r"^norm_out\.linear", "final_layer.adaLN_modulation.1"),
    ]
    return _renamed(state, names)


@tiny.family("sdxl_widths", **tiny.SMALL)
def _sdxl() -> Any:
    pipe = tiny.FAMILIES["sdxl"].build()
    pipe.register_modules(
        text_encoder=parts.clip_text(seed=1, width=24),
        text_encoder_2=parts.clip_text(32, layers=4, seed=2, width=40),
    )
    return pipe


@tiny.family("sd3_widths", **tiny.SMALL)
def _sd3() -> Any:
    pipe = tiny.FAMILIES["sd3"].build()
    small, large = parts.clip_text(24, seed=1, width=24), parts.clip_text(40, seed=2, width=40)
    with (
        torch.no_grad()
    ):  # the files leave this matrix out, and diffusers takes it for the identity
        small.text_projection.weight.copy_(torch.eye(24))
    pipe.register_modules(text_encoder=small, text_encoder_2=large)
    return pipe


def whole(family: str, pipe: Any) -> State:
    """Everything that a file of a family holds."""
    if family == "flux":
        return flux(pipe.transformer)
    if family == "sd3_widths":
        large = {
            f"text_encoders.clip_g.transformer.{key}": value.clone().contiguous()
            for key, value in pipe.text_encoder_2.state_dict().items()
        }
        t5 = {
            f"text_encoders.t5xxl.transformer.{key}": value.clone().contiguous()
            for key, value in pipe.text_encoder_3.state_dict().items()
        }
        small = clip(pipe.text_encoder, "text_encoders.clip_l.transformer.")
        return sd3(pipe.transformer) | vae(pipe.vae) | small | large | t5
    both = unet(pipe.unet) | vae(pipe.vae)
    if family == "sdxl_widths":
        small = clip(pipe.text_encoder, "conditioner.embedders.0.transformer.")
        return both | small | open_clip(pipe.text_encoder_2, "conditioner.embedders.1.model.")
    return both | clip(pipe.text_encoder, "cond_stage_model.transformer.")


def write(state: State, file: Path) -> Path:
    save_file(state, file)
    return file
