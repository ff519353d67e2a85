"""What capture costs: wall time with and without it in pairs of runs, and memory over more and more tasks.

    python scripts/bench_capture.py                         # wall time and memory on the default zoo model
    python scripts/bench_capture.py --model ./my-checkpoint --pairs 5 --images 64
    python scripts/bench_capture.py --full-size             # a random UNet of the size of SD 1.5 (860 M weights)

Each figure comes from a process of its own, so that peak memory is that of one run alone.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def requests(n: int, seed: int = 0) -> list[Any]:
    """Images of n different tasks of the shapes family."""
    import random

    from t2iprobe.families import load_family
    from t2iprobe.models.generate import ImageRequest

    family = load_family("shapes-pair")
    tasks = random.Random(seed).sample(family.tasks(), n)
    return [ImageRequest(task.id, 0, task.prompt, family.spans(task)) for task in tasks]


def load(name: str) -> Any:
    from t2iprobe.models.loading import load_model
    from t2iprobe.models.settings import LoadSettings

    return load_model(name, LoadSettings(device="cpu"))


def consume(model: Any, wanted: list[Any], plan: Any, batch: int) -> tuple[float, float]:
    """Wall and processor seconds for the images; results are dropped batch by batch."""
    from t2iprobe.models.generate import generate

    start, busy = time.perf_counter(), time.process_time()
    for _ in generate(model, wanted, plan, batch, run_seed=0):
        pass
    return time.perf_counter() - start, time.process_time() - busy


def wall(name: str, pairs: int, images: int, batch: int) -> dict[str, Any]:
    """Ratio of times in pairs of runs, the order within a pair turned each time.

    On a machine that does other work too, processor time says more than wall time.
    """
    from t2iprobe.models.plan import plan_capture

    model = load(name)
    plan = plan_capture(model)
    wanted = requests(images)
    consume(model, wanted[:batch], plan, batch)
    ratios: list[float] = []
    busy: list[float] = []
    for pair in range(pairs):
        order = [plan, None] if pair % 2 else [None, plan]
        seconds = {p is not None: consume(model, wanted, p, batch) for p in order}
        ratios.append(seconds[True][0] / seconds[False][0])
        busy.append(seconds[True][1] / seconds[False][1])
        print(
            f"pair {pair + 1}: {seconds[True][0]:.2f} s with, {seconds[False][0]:.2f} s without, ratio"
            f" {ratios[-1]:.3f} wall, {busy[-1]:.3f} processor"
        )
    return {
        "sites": len(plan.sites),
        "wall": statistics.median(ratios),
        "processor": statistics.median(busy),
    }


def memory(name: str, images: int, batch: int, capture: bool) -> dict[str, Any]:
    """Peak memory of one run."""
    from t2iprobe.models.plan import plan_capture

    model = load(name)
    plan = plan_capture(model) if capture else None
    consume(model, requests(images), plan, batch)
    return {"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def apart(kind: str, *arguments: object) -> dict[str, Any]:
    """One measurement in a process of its own."""
    command = [sys.executable, __file__, "--measure", kind, *map(str, arguments)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    for line in out[:-1]:
        print("  " + line)
    result: dict[str, Any] = json.loads(out[-1])
    return result


def full_size(folder: Path, pixels: int) -> Path:
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
    print(f"UNet with {sum(p.numel() for p in unet.parameters()) / 1e6:.0f} M weights")
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
    path = folder / "full-size"
    pipe.save_pretrained(path)
    call = {"num_inference_steps": 2, "height": pixels, "width": pixels}
    (path / "card.json").write_text(json.dumps({"call": call}))
    return path


def report_full_size(pixels: int, pairs: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = full_size(Path(folder), pixels)
        plain = apart("memory", path, 2, 2, 0)
        captured = apart("memory", path, 2, 2, 1)
        ratio = captured["peak_mb"] / plain["peak_mb"]
        print(
            f"peak memory {captured['peak_mb']:.0f} MB with, {plain['peak_mb']:.0f} MB without: ratio {ratio:.3f}"
        )
        timed = apart("wall", path, pairs, 2, 2)
        print_times(timed, pairs)


def print_times(timed: dict[str, Any], pairs: int) -> None:
    print(
        f"time with / without capture: {timed['wall']:.3f} wall, {timed['processor']:.3f} processor"
        f" (medians of {pairs} pairs, {timed['sites']} sites)"
    )


def report(model: str, pairs: int, images: int, batch: int) -> None:
    timed = apart("wall", model, pairs, images, batch)
    print_times(timed, pairs)
    few, many = (apart("memory", model, n, batch, 1) for n in (64, 512))
    print(
        f"peak memory {few['peak_mb']:.0f} MB for 64 tasks, {many['peak_mb']:.0f} MB for 512: ratio"
        f" {many['peak_mb'] / few['peak_mb']:.3f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="shapes-mmdit")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--full-size", action="store_true", help="a random UNet of 860 M weights")
    parser.add_argument("--pixels", type=int, default=512, help="image size of --full-size")
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    settings = parser.parse_args()
    if settings.measure:
        kind, name, *numbers = settings.measure
        values = [int(number) for number in numbers]
        made = (
            wall(name, *values)
            if kind == "wall"
            else memory(name, values[0], values[1], bool(values[2]))
        )
        print(json.dumps(made))
    elif settings.full_size:
        report_full_size(settings.pixels, settings.pairs)
    else:
        report(settings.model, settings.pairs, settings.images, settings.batch)


if __name__ == "__main__":
    main()
