"""How well the weights of the modules can be read linearly from each layer, with the probes of `t2iprobe`.

Probes are fitted on training-distribution tasks and asked about other tasks of seen combinations (test) and about
held-out combinations. What the task encoding gives away by itself is always reported beside it: the first layer before
its non-linearity is affine in the encoding, so a high value there is no finding.
"""

from dataclasses import dataclass
from math import isnan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from t2iprobe.probes.decodability import r2
from t2iprobe.probes.ridge import fit_transfer

ALPHAS = tuple(10.0**power for power in range(-3, 6))
FOLDS = 5
INPUT = "input"
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Rows:
    """Tasks of one split: what is read (name -> (n, d)) and the true weights of the modules (n, m)."""

    features: dict[str, Floats]
    task_latents: Floats


def probe_layers(
    fit: Rows, test: Rows, held_out: Rows
) -> tuple[dict[str, dict[str, object]], list[dict[str, object]]]:
    """Decodability of every layer and of the task encoding.

    The penalty is chosen on the fitting rows, by folds that keep a combination together. Modules whose weight does not
    vary in a split (never active, say) have no R2 there: they are dropped and named.

    Args:
        fit: training-distribution tasks; its features include `INPUT`, the task encoding.
        test: other training-distribution tasks.
        held_out: tasks of held-out combinations.

    Returns:
        By layer: `test` and `held_out` (R2 pooled over modules around the training mean, the package's decodability),
        `test_mean` and `held_out_mean` (mean over modules of the R2 around the split's own mean, the reference's), and
        `from_input` with the same values of the encoding. And one row per layer, split and module.
    """
    folds = _folds(fit.task_latents)
    scores: dict[str, dict[str, object]] = {}
    rows: list[dict[str, object]] = []
    for layer, features in fit.features.items():
        of_layer: dict[str, object] = {}
        for split, asked in (("test", test), ("held_out", held_out)):
            values, by_module = _transfer(
                features, fit.task_latents, asked.features[layer], asked.task_latents, folds
            )
            of_layer |= {split: values["pooled"], f"{split}_mean": values["mean"]}
            if values["dropped"]:
                of_layer[f"{split}_dropped_modules"] = values["dropped"]
            rows += [{"layer": layer, "split": split, **row} for row in by_module]
        scores[layer] = of_layer
    from_input = scores.pop(INPUT)
    return {layer: {**values, "from_input": from_input} for layer, values in scores.items()}, rows


def _folds(task_latents: Floats) -> NDArray[np.int64]:
    """(n,) fold of each task; tasks of one combination share a fold."""
    _, combination = np.unique(task_latents > 0, axis=0, return_inverse=True)
    order = np.random.default_rng(0).permutation(int(combination.max()) + 1)
    return np.asarray(order[combination] % min(FOLDS, len(order)), dtype=np.int64)


def _transfer(
    X_fit: Floats, Y_fit: Floats, X: Floats, Y: Floats, folds: NDArray[np.int64]
) -> tuple[dict[str, object], list[dict[str, object]]]:
    several = len(np.unique(folds)) > 1
    fitted = fit_transfer(
        X_fit, Y_fit, X, alphas=ALPHAS if several else 1.0, folds=folds if several else None
    )
    varies = (np.ptp(Y_fit, axis=0) > 0) & (np.ptp(Y, axis=0) > 0)
    rows: list[dict[str, object]] = []
    for module in range(Y.shape[1]):
        score = r2(Y[:, [module]], fitted.predictions[:, [module]])
        used = bool(varies[module])
        reason = "" if used else "its weight does not vary in the fitting tasks or here"
        rows.append(
            {
                "module": module,
                "r2": score.value if used else None,
                "reason": reason,
                "n_tasks": score.n,
            }
        )
    means: list[Any] = [row["r2"] for row in rows if row["r2"] is not None]
    pooled = (
        r2(Y[:, varies], fitted.predictions[:, varies], fitted.train_mean[varies])
        if varies.any()
        else None
    )
    summary: dict[str, object] = {
        "pooled": None if pooled is None or isnan(pooled.value) else pooled.value,
        "mean": float(np.mean(means)) if means else None,
        "dropped": [int(m) for m in np.flatnonzero(~varies)],
    }
    return summary, rows
