"""Pipelines of classes that no library has, which write down themselves what their blocks gave.

A `Design` says how the pieces differ: names of the block lists, what a block returns, how guidance is done, how often
the sampler calls the denoiser, how prompts are padded. The denoiser keeps the truth in `log` when it is given a list,
with the rows that the pipeline knows to be the prompts' and the step it knows to be in.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from diffusers import DiffusionPipeline
from pipelines import tokenizers as tok
from torch import Tensor, nn

WIDTH = 16
SIDE = 8  # of the latents; patches of 2 make 16 tokens


@dataclass(frozen=True)
class Design:
    """How one made-up pipeline differs from the next."""

    lists: str = "plain"  # plain, nested, named
    returns: str = "pair"  # pair, swapped, text_first, text_last, mapping, fields, maps
    guidance: str = "uncond_cond"
    evaluations: str = "one"  # one, heun, midpoint, thrice
    flattened: bool = False  # prompts and pictures as lists of unpadded tensors
    packed: bool = False  # the pipeline cuts the patches, not the denoiser
    padding: str = "right"
    registers: int = 0  # tokens of the model itself before the text
    experts: bool = False  # a second denoiser takes over in the middle of a run
    alone: bool = False  # the denoiser is called for one prompt after the other
    longest_first: bool = False  # the pipeline sorts the prompts of a batch and does not tell
    grows: bool = False  # the last steps draw a picture of twice the size


@dataclass
class Both:
    """A block's output that is neither tuple nor mapping."""

    picture: Tensor
    words: Tensor


class Layer(nn.Module):
    """Attention over everything, then a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.mix = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.out = nn.Linear(WIDTH, WIDTH)

    def both(self, joint: Tensor, mask: Tensor | None) -> Tensor:
        normed = self.norm(joint)
        joint = joint + self.mix(normed, normed, normed, key_padding_mask=mask)[0]
        return joint + self.out(joint)


class PairLayer(Layer):
    """Two streams in, two out, in one of two orders and several wrappings."""

    def __init__(self, returns: str) -> None:
        super().__init__()
        self.returns = returns

    def forward(self, picture: Tensor, words: Tensor, mask: Tensor | None = None) -> Any:
        n = words.shape[1]
        picture = picture.flatten(1, -2)
        joint = self.both(torch.cat([words, picture], 1), mask)
        words, picture = joint[:, :n], joint[:, n:]
        match self.returns:
            case "swapped":
                return words, picture
            case "mapping":
                return {"w": words, "p": picture}
            case "fields":
                return Both(picture, words)
            case "maps":  # (rows, height, width, channels) beside the text
                return picture.unflatten(1, (SIDE // 2, SIDE // 2)), words
        return picture, words


class JointLayer(Layer):
    """One stream of everything."""

    def forward(self, everything: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.both(everything, mask)


@dataclass
class Truth:
    """What one block gave in one call: streams of the prompts' rows, (prompts, tokens, width)."""

    step: int | None
    block: str
    image: Tensor
    text: Tensor


class Painter(nn.Module):
    """The denoiser."""

    def __init__(self, design: Design, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        joint = design.returns in ("text_first", "text_last")
        layers: list[nn.Module] = [
            JointLayer() if joint else PairLayer(design.returns) for _ in range(3)
        ]
        self.design, self.joint = design, joint
        self.embed = nn.Linear(16, WIDTH)
        self.read = nn.Linear(WIDTH, WIDTH)
        self.level = nn.Linear(1, WIDTH)
        self.paint = nn.Linear(WIDTH, 16)
        self.memory = nn.Parameter(torch.randn(1, design.registers, WIDTH))
        match design.lists:
            case "nested":
                self.storeys = nn.ModuleList([nn.ModuleList(layers[:2]), nn.ModuleList(layers[2:])])
            case "named":
                names = ("start", "middle", "end")
                self.stages = nn.ModuleDict(dict(zip(names, layers, strict=True)))
            case _:
                self.trunk = nn.ModuleList(layers)
        self.named = {name: part for name, part in self.named_modules() if isinstance(part, Layer)}
        self.log: list[Truth] | None = None
        self.step: int | None = None
        self.rows: list[int] = []

    def forward(self, picture: Any, words: Any, noise_level: Tensor, perturbed: int = 0) -> Tensor:
        if isinstance(picture, list):
            picture = torch.stack(picture)
            n = max(len(row) for row in words)
            lengths = torch.tensor([len(row) for row in words])
            words = torch.stack([nn.functional.pad(row, (0, 0, 0, n - len(row))) for row in words])
        else:
            lengths = torch.full((len(words),), words.shape[1])
        tokens = picture if picture.ndim == 3 else patches(picture)
        image = self.embed(tokens) + self.level(noise_level.reshape(-1, 1))[:, None]
        text = self.read(words)
        if perturbed:  # rows of weaker guidance see a blurred picture
            image = torch.cat([image[:-perturbed], image[-perturbed:].flip(1)])
        registers = self.memory.expand(len(text), -1, -1)
        text = torch.cat([registers, text], 1)
        pads = torch.arange(text.shape[1])[None] >= lengths[:, None] + self.design.registers
        free = torch.zeros(len(text), image.shape[1], dtype=torch.bool)
        last = self.design.returns == "text_last"
        mask = torch.cat([free, pads] if last else [pads, free], 1)
        for name, layer in self.named.items():
            image, text = self._through(layer, image, text, mask)
            image = image.flatten(1, -2)
            if self.log is not None:
                words = text[self.rows][:, self.design.registers :]
                self.log.append(Truth(self.step, name, image[self.rows], words))
        return self.paint(image)

    def _through(
        self, layer: nn.Module, image: Tensor, text: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        n, m = text.shape[1], image.shape[1]
        match self.design.returns:
            case "text_first":
                joint = layer(torch.cat([text, image], 1), mask)
                return joint[:, n:], joint[:, :n]
            case "text_last":
                joint = layer(torch.cat([image, text], 1), mask)
                return joint[:, :m], joint[:, m:]
            case "swapped":
                text, image = layer(image, text, mask)
                return image, text
        out = layer(image, text, mask)
        if isinstance(out, Both):
            return out.picture, out.words
        return (out["p"], out["w"]) if isinstance(out, dict) else out


def patches(picture: Tensor) -> Tensor:
    """(rows, 4, 8, 8) as (rows, 16 tokens, 16)."""
    return nn.functional.unfold(picture, 2, stride=2).transpose(1, 2)


def unpatched(tokens: Tensor) -> Tensor:
    side = 2 * round(tokens.shape[1] ** 0.5)
    return nn.functional.fold(tokens.transpose(1, 2), (side, side), 2, stride=2)


class Rung(nn.Module):
    """A layer of the text encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, states: Tensor) -> Tensor:
        return states + torch.tanh(self.linear(self.norm(states))) + states.cumsum(1) / 100


class Speller(nn.Module):
    """A text encoder of no library: a table, two layers, a norm."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.table = nn.Embedding(vocabulary, WIDTH)
        self.places = nn.Embedding(80, WIDTH)
        self.ladder = nn.ModuleList([Rung(), Rung()])
        self.last_norm = nn.LayerNorm(WIDTH)

    def forward(self, ids: Tensor) -> Tensor:
        states = self.table(ids) + self.places(torch.arange(ids.shape[1]))[None]
        for rung in self.ladder:
            states = rung(states)
        return self.last_norm(states)


@dataclass
class Pictures:
    """What a call gives back."""

    images: Any
    nsfw_content_detected: Any = field(default=None)


class MadeUpPipeline(DiffusionPipeline):
    """Text to image with the pieces above."""

    def __init__(self, speller: Any, spelling: Any, painter: Any, finisher: Any = None) -> None:
        super().__init__()
        self.register_modules(
            speller=speller, spelling=spelling, painter=painter, finisher=finisher
        )

    def _encode(self, prompts: list[str]) -> list[Tensor] | Tensor:
        if self.painter.design.flattened:
            ids = [self.spelling(p, return_tensors="pt").input_ids for p in prompts]
            return [self.speller(row)[0] for row in ids]
        given = self.spelling(prompts, padding="max_length", max_length=32, return_tensors="pt")
        states = self.speller(given.input_ids)
        return states * given.attention_mask[..., None]

    @torch.no_grad()
    def __call__(
        self,
        prompt: str | list[str],
        num_steps: int = 4,
        generator: Any = None,
        output_type: str = "np",
    ) -> Pictures:
        prompts = [prompt] if isinstance(prompt, str) else prompt
        if self.painter.design.longest_first:
            prompts = sorted(prompts, key=len, reverse=True)
        generators = generator if isinstance(generator, list) else [generator]
        noise = [torch.randn(4, SIDE, SIDE, generator=g) for g in generators]
        latents = torch.stack(noise)
        if self.painter.design.packed:
            latents = patches(latents)
        asked, empty = self._encode(prompts), self._encode([""] * len(prompts))
        levels = torch.linspace(1, 0, num_steps + 1)
        for step in range(num_steps):
            here, there = levels[step], levels[step + 1]
            if self.painter.design.grows and 2 * step == num_steps:
                latents = nn.functional.interpolate(latents, scale_factor=2.0)
            if self.painter.design.alone:
                moved = [
                    self._move(step, x, here, there, words, no_words, num_steps)
                    for x, words, no_words in zip(
                        latents.split(1), asked.split(1), empty.split(1), strict=True
                    )
                ]
                latents = torch.cat(moved)
            else:
                latents = self._move(step, latents, here, there, asked, empty, num_steps)
        if self.painter.design.packed:
            latents = unpatched(latents)
        return Pictures(
            torch.sigmoid(latents[:, :3]).permute(0, 2, 3, 1).numpy().astype(np.float32)
        )

    def _move(
        self, step: int, x: Tensor, here: Tensor, there: Tensor, asked: Any, empty: Any, n: int
    ) -> Tensor:
        def slope(at: Tensor, level: Tensor, counts: bool) -> Tensor:
            return self._guided(step if counts else None, at, level, asked, empty, step / n)

        ahead = there - here
        match self.painter.design.evaluations:
            case "heun":
                first = slope(x, here, True)
                if step == n - 1:
                    return x + ahead * first
                return x + ahead * (first + slope(x + ahead * first, there, False)) / 2
            case "midpoint":
                first = slope(x, here, True)
                return x + ahead * slope(x + ahead / 2 * first, (here + there) / 2, False)
            case "thrice":
                for counts in (False, False, True):
                    rate = slope(x, here, counts)
                    x = x + ahead * rate / 3
                return x
        return x + ahead * slope(x, here, True)

    def _guided(
        self, step: int | None, x: Tensor, level: Tensor, asked: Any, empty: Any, done: float
    ) -> Tensor:
        b = len(x)
        cond, uncond = list(range(b)), list(range(b, 2 * b))
        guidance = self.painter.design.guidance
        if guidance == "off_midrun" and done >= 0.5:
            guidance = "embedded"
        if guidance == "late":
            guidance = "calls_uncond_first" if done >= 0.75 else "embedded"
        finishes = self.painter.design.experts and done >= 0.5
        painter = self.finisher if finishes else self.painter

        def call(texts: list[Any], rows: list[int], perturbed: int = 0) -> tuple[Tensor, ...]:
            words = self._join(texts)
            painter.step, painter.rows = step, rows
            copies = torch.cat([x] * len(texts))
            given = list(copies) if self.painter.design.flattened else copies
            noise_level = level.expand(len(copies))
            out = painter(given, words, noise_level, perturbed)
            out = out if painter.design.packed else unpatched(out)
            return out.chunk(len(texts))

        match guidance:
            case "cond_uncond" | "off_midrun":
                yes, no = call([asked, empty], cond)
            case "uncond_cond":
                no, yes = call([empty, asked], uncond)
            case "calls_cond_first":
                (yes,) = call([asked], cond)
                (no,) = call([empty], [])
            case "calls_uncond_first":
                (no,) = call([empty], [])
                (yes,) = call([asked], cond)
            case "tripled":
                no, yes, weak = call([empty, asked, asked], uncond, b)
                yes = yes + (yes - weak)
            case _:
                (yes,) = call([asked], cond)
                return yes
        return no + 2 * (yes - no)

    def _join(self, texts: list[Any]) -> Any:
        if self.painter.design.flattened:
            return [row for part in texts for row in part]
        return torch.cat(texts)


def pipeline(design: Design) -> MadeUpPipeline:
    """A made-up pipeline with random weights."""
    spelling = tok.mistral_tokenizer() if design.padding == "left" else tok.clip_tokenizer()
    finisher = Painter(design, seed=2) if design.experts else None
    made = MadeUpPipeline(Speller(len(spelling)), spelling, Painter(design), finisher)
    for part in (made.painter, made.speller, finisher):
        if part is not None:
            part.eval()
    return made
