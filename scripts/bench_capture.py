"""What capture costs: time with and without it, run in turn, and peak memory of a run with and of one without.

    python scripts/bench_capture.py                           # the default zoo model
    python scripts/bench_capture.py --model ./my-checkpoint --rounds 20 --images 64
    python scripts/bench_capture.py --full-size --pixels 256  # a random UNet of the size of SD 1.5 (860 M weights)

Times are taken in one process, in rounds of four legs: without, with, with, without, and in every other round the
other way round, so that a drift of the machine cancels. A leg with capture writes its activations to a file, as a run
does. The ratio of a round is its two legs with over its two legs without; the median over rounds is given with a
bootstrap interval (95%). Processor time is what counts on a machine that does other work too. Freed memory stays with
the process that is timed: giving a gigabyte back to the system and faulting it in again, call by call, varies by more
than capture takes. Peak memory is the largest resident set of a process of its own, with the allocator as it is.
"""

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Leg:
    """Seconds of one leg: by the clock, and of all processors."""

    wall: float
    processor: float


def requests(n: int, seed: int = 0) -> list[Any]:
    """As many images of tasks of the shapes family as are asked for, of each task as many as a run makes by default."""
    from t2iprobe.activations.generate import ImageRequest
    from t2iprobe.families.reading import load_family
    from t2iprobe.runs.config import RunConfig

    family, each = load_family("shapes-pair"), RunConfig().seeds
    tasks = random.Random(seed).sample(family.tasks(), -(-n // each))
    wanted = [
        ImageRequest(task.id, index, task.prompt, family.spans(task))
        for task in tasks
        for index in range(each)
    ]
    return wanted[:n]


def load(name: str) -> Any:
    from t2iprobe.models.loading import load_model
    from t2iprobe.models.settings import LoadSettings

    return load_model(name, LoadSettings(device="cpu"))


def consume(model: Any, wanted: list[Any], plan: Any, batch: int) -> Leg:
    """One leg: make the images, and write what was captured; the results are dropped batch by batch.

    Every batch has a file of its own, as in a run: to write over one takes longer, as it is emptied first.
    """
    from t2iprobe.activations.generate import generate
    from t2iprobe.runs.shards import write_shard

    with tempfile.TemporaryDirectory() as folder:
        start, busy = time.perf_counter(), time.process_time()
        for number, made in enumerate(generate(model, wanted, plan, batch, run_seed=0)):
            if plan is not None:
                write_shard(Path(folder, f"{number}.safetensors"), made.activations)
        return Leg(time.perf_counter() - start, time.process_time() - busy)


def median_interval(ratios: list[float], seed: int = 0) -> tuple[float, float, float]:
    """The median, and its bootstrap interval over rounds."""
    draw = random.Random(seed)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    return statistics.median(ratios), medians[50], medians[-51]


def times(name: str, rounds: int, images: int, batch: int) -> dict[str, Any]:
    """Ratios of wall and of processor time, round by round."""
    from t2iprobe.activations.plan import plan_capture

    model = load(name)
    plan = plan_capture(model)
    wanted = requests(images)
    found: dict[str, list[float]] = {"wall": [], "processor": []}
    consume(model, wanted[:batch], plan, batch)
    for number in range(rounds):
        outer, inner = (plan, None) if number % 2 else (None, plan)
        legs = [consume(model, wanted, p, batch) for p in (outer, inner, inner, outer)]
        for what, values in found.items():
            own = [getattr(leg, what) for leg in legs]
            ratio = (own[1] + own[2]) / (own[0] + own[3])
            values.append(1 / ratio if number % 2 else ratio)
        print(
            f"round {number + 1}: {sum(leg.wall for leg in legs):.1f} s, with / without"
            f" {found['wall'][-1]:.3f} wall, {found['processor'][-1]:.3f} processor",
            flush=True,
        )
    return {"sites": len(plan.sites), **found}


def memory(name: str, images: int, batch: int, capture: bool) -> dict[str, Any]:
    """Peak memory of one run."""
    from t2iprobe.activations.plan import plan_capture

    model = load(name)
    plan = plan_capture(model) if capture else None
    consume(model, requests(images), plan, batch)
    return {"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


KEEP_FREED = {"MALLOC_MMAP_THRESHOLD_": str(2**32), "MALLOC_TRIM_THRESHOLD_": str(2**33)}
"""What tells glibc to keep the memory that is freed."""


def apart(kind: str, *arguments: object) -> dict[str, Any]:
    """One measurement in a process of its own; what it prints on the way is passed on."""
    command = [sys.executable, __file__, "--measure", kind, *map(str, arguments)]
    result: dict[str, Any] = {}
    settings = os.environ | (KEEP_FREED if kind == "times" else {})
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=settings) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith("{"):
                result = json.loads(line)
            else:
                print("  " + line, end="", flush=True)
    if child.returncode:
        raise SystemExit(f"measuring {kind} failed")
    return result


def full_size(path: Path, pixels: int) -> dict[str, Any]:
    """A random pipeline with a UNet and a text encoder of the size of SD 1.5."""
    import torch
    from diffusers import (
        AutoencoderKL,
        DDIMScheduler,
        StableDiffusionPipeline,
        UNet2DConditionModel,
    )
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    letters = [chr(c) for c in range(33, 127)]
    tokens = [*letters, *(c + "</w>" for c in letters), "<|startoftext|>", "<|endoftext|>"]
    vocab = {token: i for i, token in enumerate(tokens)}
    n = len(vocab)
    text = CLIPTextConfig(
        vocab_size=n,
        hidden_size=768,
        intermediate_size=3072,
        num_hidden_layers=12,
        num_attention_heads=12,
        bos_token_id=n - 2,
        eos_token_id=n - 1,
        pad_token_id=n - 1,
    )
    torch.manual_seed(0)
    codec = AutoencoderKL(
        block_out_channels=(32, 32, 32, 32),
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        layers_per_block=1,
        latent_channels=4,
    )
    unet = UNet2DConditionModel(
        sample_size=pixels // 8, cross_attention_dim=768, attention_head_dim=8
    )
    pipe = StableDiffusionPipeline(
        vae=codec,
        text_encoder=CLIPTextModel(text),
        tokenizer=CLIPTokenizer(vocab=vocab, merges=[], model_max_length=77),
        unet=unet,
        scheduler=DDIMScheduler(beta_schedule="scaled_linear", clip_sample=False, steps_offset=1),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipe.save_pretrained(path)
    call = {"num_inference_steps": 2, "height": pixels, "width": pixels}
    (path / "card.json").write_text(json.dumps({"call": call}))
    return {"weights": sum(p.numel() for p in unet.parameters())}


def report(model: str | Path, rounds: int, images: int, batch: int) -> None:
    """Peak memory with and without, then times."""
    plain, captured = (apart("memory", model, images, batch, on)["peak_mb"] for on in (0, 1))
    print(
        f"peak memory {captured:.0f} MB with, {plain:.0f} MB without: ratio {captured / plain:.3f}"
    )
    timed = apart("times", model, rounds, images, batch)
    for what in ("wall", "processor"):
        ratios = timed[what]
        middle, low, high = median_interval(ratios)
        print(
            f"{what} time with / without: median {middle:.4f}, 95% interval {low:.4f} to {high:.4f},"
            f" rounds {min(ratios):.3f} to {max(ratios):.3f} ({len(ratios)} rounds, {timed['sites']} sites)"
        )


def growth(model: str, batch: int) -> None:
    """Peak memory over more and more tasks."""
    few, many = (apart("memory", model, n, batch, 1)["peak_mb"] for n in (64, 512))
    print(f"peak memory {few:.0f} MB for 64 tasks, {many:.0f} MB for 512: ratio {many / few:.3f}")


MEASURES: dict[str, Callable[..., dict[str, Any]]] = {
    "times": lambda name, rounds, images, batch: times(name, rounds, images, batch),
    "memory": lambda name, images, batch, on: memory(name, images, batch, bool(on)),
    "build": lambda path, pixels: full_size(Path(path), pixels),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="shapes-mmdit", help="zoo name, folder or hub id")
    parser.add_argument("--rounds", type=int, default=12, help="rounds of four legs")
    parser.add_argument(
        "--images", type=int, default=None, help="images of a leg (32; full size 2)"
    )
    parser.add_argument("--batch", type=int, default=16, help="images of a call")
    parser.add_argument("--full-size", action="store_true", help="a random UNet of 860 M weights")
    parser.add_argument("--pixels", type=int, default=512, help="image size of --full-size")
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    settings = parser.parse_args()
    if settings.measure:
        kind, name, *numbers = settings.measure
        print(json.dumps(MEASURES[kind](name, *map(int, numbers))))
    elif settings.full_size:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "full-size"
            built = apart("build", path, settings.pixels)
            print(f"UNet with {built['weights'] / 1e6:.0f} M weights, {settings.pixels} pixels")
            images = settings.images or 2
            report(path, settings.rounds, images, min(images, settings.batch))
    else:
        report(settings.model, settings.rounds, settings.images or 32, settings.batch)
        growth(settings.model, settings.batch)


if __name__ == "__main__":
    main()
