"""A small, plausible run folder by the run folder's schemas, made of numbers from a generator: for tests only."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from PIL import Image, ImageDraw
from scipy import stats

COLORS = ("red", "orange", "green", "cyan", "blue", "purple")
SHAPES = ("circle", "square", "triangle", "cross")
RELATIONS = ("left of", "right of", "above", "below")
CONSTITUENTS = ("color1", "shape1", "relation", "color2", "shape2")
GROUPS = {
    "scene": (*CONSTITUENTS, "all"),
    "slot": (*CONSTITUENTS, "all"),
    "presence": ("color", "shape", "relation", "all"),
    "binding": ("color-shape", "all"),
}
LAYERS, ENCODER_LAYERS, STEPS = 4, 2, (0, 3, 6, 9, 11)
HEADLINE = ("transformer.transformer_blocks.2", "grid", 0)


def write_fake_run(folder: Path, **options: Any) -> Path:
    """Write the folder; options: n_tasks, n_images, link, level, varied, unscored, card, training, share_seen, seed,
    model, prompt (replaces the first one), strength (R2 of the best site)."""
    defaults = {
        "n_tasks": 48, "n_images": 4, "link": 0.8, "level": 0.6, "varied": True, "unscored": 3, "card": True,
        "seed": 0, "model": "shapes-mmdit", "prompt": None, "strength": 0.7, "training_step": 4000,
        "training_run": "shapes-mmdit", "share_seen": 0.7, "between_p": None, "sampling": "long-tail",
    }  # fmt: skip
    chosen = {**defaults, **options}
    rng = np.random.default_rng(chosen["seed"])
    (folder / "images").mkdir(parents=True, exist_ok=True)
    tasks = _tasks(chosen, rng)
    decode = rng.normal(0.6, 0.15, len(tasks)).clip(-0.2, 0.98)
    scores = _scores(tasks, decode, chosen, rng)
    probes = _probes(chosen, rng)
    rows = _decodability(tasks, scores, decode, rng)
    (folder / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    kept = ("task_id", "coding", "constituent", "decodability")
    sums = {"residual": 1.0, "total": 2.0, "residual_shuffled": 2.0, "total_shuffled": 2.0}
    stored = [{name: row[name] for name in kept} | sums | {"n_images": 4} for row in rows]
    for name, table in (("scores", scores), ("probes", probes), ("decodability", stored)):
        pyarrow.parquet.write_table(pa.Table.from_pylist(table), folder / f"{name}.parquet")
    for task in tasks:
        for index in range(chosen["n_images"]):
            _draw(task["values"], rng).save(folder / "images" / f"{task['id']}-{index}.png")
    correlation = _correlation(rows)
    summary = _summary(chosen, tasks, scores, rows, probes, correlation)
    for name, data in (
        ("run", _run(chosen, tasks)),
        ("correlation", correlation),
        ("summary", summary),
    ):
        (folder / f"{name}.json").write_text(json.dumps(data, indent=1))
    return folder


def _tasks(chosen: dict[str, Any], rng: np.random.Generator) -> list[dict[str, Any]]:
    tasks = []
    for index in range(chosen["n_tasks"]):
        color1, color2 = rng.choice(COLORS, 2, replace=False)
        values = {
            "color1": str(color1), "shape1": str(rng.choice(SHAPES)), "relation": str(rng.choice(RELATIONS)),
            "color2": str(color2), "shape2": str(rng.choice(SHAPES)),
        }  # fmt: skip
        first = (
            f"{'an' if values['color1'] == 'orange' else 'a'} {values['color1']} {values['shape1']}"
        )
        second = (
            f"{'an' if values['color2'] == 'orange' else 'a'} {values['color2']} {values['shape2']}"
        )
        seen = 0 if rng.random() < 0.3 else int(rng.geometric(0.05))
        tasks.append({
            "id": f"{index:012x}", "prompt": f"{first} {values['relation']} {second}", "values": values,
            "scene": values, "scene_id": f"{index:012x}", "fold": index % 5,
            "seen": seen if chosen["card"] else None, "spans": {},
        })  # fmt: skip
    if chosen["prompt"] is not None:
        tasks[0]["prompt"] = chosen["prompt"]
    return tasks


def _scores(
    tasks: list[dict[str, Any]],
    decode: np.ndarray,
    chosen: dict[str, Any],
    rng: np.random.Generator,
) -> list[dict[str, Any]]:
    rows = []
    left = chosen["unscored"]
    for task, strength in zip(tasks, decode, strict=True):
        chance = chosen["level"] + (chosen["link"] * (strength - 0.6) if chosen["varied"] else 0.0)
        for index in range(chosen["n_images"]):
            ok: dict[str, bool | None] = dict.fromkeys(CONSTITUENTS, True)
            outcome, reason = "right", "both objects and their relation are as asked"
            if left > 0:
                left -= 1
                outcome, reason, ok = (
                    "unscored",
                    "the decoder returned NaN",
                    dict.fromkeys(CONSTITUENTS),
                )
            elif rng.random() > chance:
                if rng.random() < 0.2:
                    outcome, reason, ok = (
                        "malformed",
                        "3 clean objects, 2 asked",
                        dict.fromkeys(CONSTITUENTS),
                    )
                else:
                    wrong = str(rng.choice(CONSTITUENTS))
                    ok[wrong] = False
                    outcome, reason = "wrong", f"{wrong} is not {task['values'][wrong]}"
            row = {
                "task_id": task["id"],
                "image_index": index,
                "outcome": outcome,
                "reason": reason,
            }
            rows.append(row | {f"ok_{name}": value for name, value in ok.items()})
    return rows


def _probes(chosen: dict[str, Any], rng: np.random.Generator) -> list[dict[str, Any]]:
    places: list[tuple[str, str, str, str, int | None]] = []
    for layer in range(ENCODER_LAYERS + 1):
        module = "embeddings" if layer == 0 else f"encoder.layers.{layer - 1}"
        places += [
            (f"text_encoder.{module}", "text_encoder", "text", pool, None)
            for pool in ("mean", "eot")
        ]
    for layer in range(LAYERS):
        site = f"transformer.transformer_blocks.{layer}"
        places += [
            (site, "transformer", "image", pool, step)
            for pool in ("grid", "mean")
            for step in STEPS
        ]
        if layer < LAYERS - 1:
            places += [(site, "transformer", "text", "mean", step) for step in STEPS]
    places.append(("transformer.conditioning", "transformer", "text", "mean", None))
    rows = []
    for site, component, stream, pooling, step in places:
        depth = int(site[-1]) if site[-1].isdigit() else 0
        for coding, groups in GROUPS.items():
            for group in groups:
                top = (
                    chosen["strength"]
                    * {"scene": 1.0, "slot": 0.6, "presence": 1.1, "binding": 0.9}[coding]
                )
                if stream == "text":
                    r2: float | None = min(0.99, 0.9 + 0.03 * depth)
                else:
                    late = 0.0 if step is None else step / 40
                    r2 = (
                        top * (0.45 + 0.18 * min(depth, 2))
                        + late
                        - (0.25 if group == "relation" else 0.0)
                    )
                    r2 += float(rng.normal(0, 0.02)) - (0.1 if pooling == "mean" else 0.0)
                reason = None
                if stream == "image" and depth == 0 and step == 0 and group == "shape2":
                    r2, reason = None, "one value only in a training fold"
                rows.append({
                    "site": site, "component": component, "stream": stream, "pooling": pooling, "step": step,
                    "timestep": None if step is None else 1000.0 * (1 - step / 12), "coding": coding,
                    "constituent": group, "r2": r2, "accuracy": r2, "chance": 0.2,
                    "r2_shuffled": -0.05 + float(rng.normal(0, 0.01)), "alpha": 10.0, "n_images": 192,
                    "n_tasks": 48, "n_folds": 5, "n_tasks_cut": 0, "reason": reason,
                })  # fmt: skip
    return rows


def _decodability(
    tasks: list[dict[str, Any]],
    scores: list[dict[str, Any]],
    decode: np.ndarray,
    rng: np.random.Generator,
) -> list[dict[str, Any]]:
    rows = []
    for task, strength in zip(tasks, decode, strict=True):
        judged = [r for r in scores if r["task_id"] == task["id"] and r["outcome"] != "unscored"]
        for coding, groups in GROUPS.items():
            for group in groups:
                known = [r[f"ok_{group}"] for r in judged if r.get(f"ok_{group}") is not None]
                hits = [r["outcome"] == "right" for r in judged] if group == "all" else known
                rows.append({
                    "task_id": task["id"], "coding": coding, "constituent": group,
                    "decodability": float(strength + (0 if group == "all" else rng.normal(0, 0.05))),
                    "success": float(np.mean(hits)) if hits else None, "n_scored": len(hits), "seen": task["seen"],
                })  # fmt: skip
    return rows


def _estimate(rows: list[dict[str, Any]]) -> dict[str, Any]:
    pairs = [(r["decodability"], r["success"]) for r in rows if r["success"] is not None]
    base = {"n": len(pairs), "unit": "task", "method": "spearman"}
    if len(pairs) < 4 or len({y for _, y in pairs}) < 2:
        return base | {
            "value": None,
            "ci": None,
            "p": None,
            "reason": "success is the same for every task",
            "p_floor": None,
        }
    x, y = zip(*pairs, strict=True)
    found = stats.spearmanr(x, y)
    half = 1.96 / np.sqrt(len(pairs) - 3)
    low, high = np.tanh(np.arctanh(found.statistic) + np.array([-half, half]))
    value = {
        "value": float(found.statistic),
        "ci": [float(low), float(high)],
        "p": float(found.pvalue),
        "reason": "",
        "p_floor": None,
    }
    return base | value


def _correlation(rows: list[dict[str, Any]]) -> dict[str, Any]:
    mine = [r for r in rows if r["coding"] == "scene"]
    overall = [r for r in mine if r["constituent"] == "all"]
    strata = {
        "seen": _estimate([r for r in overall if r["seen"]]),
        "held_out": _estimate([r for r in overall if r["seen"] == 0]),
    }
    return {
        "unit": "task", "coding": "scene", "overall": _estimate(overall), "pearson": _estimate(overall),
        "strata": strata, "within": _estimate(overall), "among_clean": _estimate(overall),
        "by_coding": {c: _estimate([r for r in rows if (r["coding"], r["constituent"]) == (c, "all")]) for c in GROUPS},
        "sign_flip": None,
        "by_constituent": {c: _estimate([r for r in mine if r["constituent"] == c]) for c in CONSTITUENTS},
        "auroc_per_image": {"value": 0.66, "ci": [0.57, 0.74], "p": 0.001, "n": 192, "unit": "task", "method": "auroc"},
    }  # fmt: skip


def _summary(
    chosen: dict[str, Any],
    tasks: list[dict[str, Any]],
    scores: list[dict[str, Any]],
    rows: list[dict[str, Any]],
    probes: list[dict[str, Any]],
    correlation: dict[str, Any],
) -> dict[str, Any]:
    outcomes = {
        name: sum(r["outcome"] == name for r in scores)
        for name in ("right", "wrong", "malformed", "unscored")
    }
    judged = len(scores) - outcomes["unscored"]
    overall = [r for r in rows if r["coding"] == "scene" and r["constituent"] == "all"]
    share = outcomes["right"] / judged if judged else None
    site, pooling, step = HEADLINE
    at = [
        p
        for p in probes
        if (p["site"], p["pooling"], p["step"]) == HEADLINE and p["stream"] == "image"
    ]
    r2 = {(p["coding"], p["constituent"]): p["r2"] for p in at}
    spearman = correlation["overall"]
    spread = [r["success"] for r in overall if r["success"] is not None]
    between_p = (
        chosen["between_p"]
        if chosen["between_p"] is not None
        else (0.001 if chosen["varied"] else 0.4)
    )
    return {
        "schema_version": 1, "model": chosen["model"], "family": "shapes-pair", "n_tasks": len(tasks),
        "n_images": len(scores), "n_unscored": outcomes["unscored"],
        "success": {
            "all": share, "ci": [share - 0.06, min(1.0, share + 0.06)] if judged else None,
            "reason": None if judged else "no image could be scored",
            "of_clean": {"value": None, "ci": None, "reason": "not computed"}, "seen_reason": None,
            "seen": _mean([r["success"] for r in overall if r["seen"]]),
            "held_out": _mean([r["success"] for r in overall if r["seen"] == 0]),
            "by_constituent": {
                c: _mean([r[f"ok_{c}"] for r in scores if r[f"ok_{c}"] is not None]) for c in CONSTITUENTS
            },
            "outcomes": outcomes, "coverage": judged / len(scores),
            "between_task": {
                "ratio": 2.0 if spread else None, "differs": bool(spread) and between_p <= 0.05,
                "sd": float(np.std(spread)) if spread else None, "reliability": 0.5 if spread else None,
                "p": between_p if spread else None, "reason": None if spread else "no image could be scored",
            },
        },
        "decodability": {
            "coding": "scene",
            "headline": {
                "site": site, "step": step, "pooling": pooling, "r2": r2["scene", "all"],
                "ci": [r2["scene", "all"] - 0.05, r2["scene", "all"] + 0.05], "reason": None, "other": None,
                "n_candidates": 20,
            },
            "by_constituent": {c: r2["scene", c] for c in CONSTITUENTS},
            "by_coding": {c: {"r2": r2[c, "all"], "ci": None, "reason": None} for c in GROUPS},
            "controls": {"shuffled_labels": -0.05, "bag_of_words": 0.62},
            "text_encoder": {
                "site": "text_encoder.encoder.layers.1", "pooling": "mean", "r2": 0.93, "reason": None,
            },
            "best_by_component": {},
        },
        "correlation": {
            **_link(spearman), "p_floor": None, "unit": "task",
            "by_constituent": {c: _link(e) for c, e in correlation["by_constituent"].items()},
            "by_coding": {c: _link(e) for c, e in correlation["by_coding"].items()},
            "among_clean": _link(spearman), "within": _link(spearman),
            "strata": {name: _link(e) for name, e in correlation["strata"].items()},
            "pearson": spearman["value"], "auroc": 0.66,
            "detectable": 0.28, "note": None,
        },
        "frequency": _frequency(overall) if chosen["card"] else {
            "bins": None, "success": None, "decodability": None, "reason": "no model card",
        },
        "text_lost": None, "text_limit": None, "tasks_asked": len(tasks), "stopped": None,
        "cost": {
            "wall_s": 141.3, "by_stage": {}, "images_per_s": 1.7, "images_made": len(scores), "peak_rss_mb": 1410.0,
            "activation_bytes": 48_000_000,
        },
    }  # fmt: skip


def _link(estimate: dict[str, Any]) -> dict[str, Any]:
    return {
        "spearman": estimate["value"],
        "reason": estimate["reason"] or None,
        **{name: estimate[name] for name in ("ci", "p", "n")},
    }


def _frequency(overall: list[dict[str, Any]]) -> dict[str, Any]:
    bins = []
    for low, high in ((0, 0), (1, 5), (6, 20), (21, 90)):
        inside = [r for r in overall if low <= r["seen"] <= high]
        bins.append({
            "seen_low": low, "seen_high": high, "n_tasks": len(inside),
            "success": _mean([r["success"] for r in inside]),
            "decodability": _mean([r["decodability"] for r in inside]), "ci": None,
        })  # fmt: skip
    rho = {
        "value": 0.2, "ci": [-0.08, 0.45], "p": 0.17, "n": 48, "reason": "", "p_floor": None, "unit": "task",
        "method": "spearman",
    }  # fmt: skip
    return {
        "bins": bins,
        "success": rho,
        "decodability": rho,
        "reason": None,
    }


def _mean(values: list[Any]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _run(chosen: dict[str, Any], tasks: list[dict[str, Any]]) -> dict[str, Any]:
    card = {
        "name": chosen["model"], "family": "shapes-pair", "share_seen": chosen["share_seen"],
        "training": {
            "steps": chosen["training_step"], "batch_size": 64, "seed": 0, "sampling": chosen["sampling"],
            "run": chosen["training_run"],
        },
    }  # fmt: skip
    asked = len(tasks) * chosen["n_images"]
    return {
        "schema_version": 1, "command": f"t2iprobe run --model {chosen['model']} --tasks {len(tasks)} --out runs/fake",
        "created": "2026-01-02T03:04:05Z", "git_commit": "0123456789abcdef0123456789abcdef01234567",
        "settings": {
            "model": chosen["model"], "family": "shapes-pair", "tasks": len(tasks), "seeds": 4,
            "at": [0, 0.25, 0.5, 0.75, 1.0], "out": "runs/fake", "sites": None,
        },
        "versions": {"python": "3.12.1", "t2iprobe": "0.1.0", "torch": "2.14.1", "diffusers": "0.42.1"},
        "model": {
            "name": chosen["model"], "source": "zoo", "pipeline_class": "StableDiffusion3Pipeline", "revision": None,
            "weights_sha256": "ab" * 32, "dtype": "float32", "device": "cpu",
            "scheduler": {"class": "FlowMatchEulerDiscreteScheduler", "shift": 1.0},
            "card": card if chosen["card"] else None, "call": {"num_inference_steps": 12, "guidance_scale": 3.0},
        },
        "stages": {name: {"status": "done"} for name in ("generate", "score", "probe", "correlate", "report")},
        "counts": {"tasks": len(tasks), "images_asked": asked, "images_done": asked, "unscored": chosen["unscored"]},
    }  # fmt: skip


def _draw(values: dict[str, str], rng: np.random.Generator) -> Image.Image:
    image = Image.new("RGB", (64, 64), (240, 240, 236))
    pen = ImageDraw.Draw(image)
    places = {
        "left of": ((6, 20), (36, 20)),
        "right of": ((36, 20), (6, 20)),
        "above": ((20, 5), (20, 36)),
    }
    first, second = places.get(values["relation"], ((20, 36), (20, 5)))
    for (x, y), color, shape in (
        (first, values["color1"], values["shape1"]),
        (second, values["color2"], values["shape2"]),
    ):
        x, y = x + int(rng.integers(-3, 4)), y + int(rng.integers(-3, 4))
        box = (x, y, x + 22, y + 22)
        if shape == "circle":
            pen.ellipse(box, fill=color)
        elif shape == "square":
            pen.rectangle(box, fill=color)
        elif shape == "triangle":
            pen.polygon([(x + 11, y), (x + 22, y + 22), (x, y + 22)], fill=color)
        else:
            pen.rectangle((x + 7, y, x + 15, y + 22), fill=color)
            pen.rectangle((x, y + 7, x + 22, y + 15), fill=color)
    return image
