"""How fast out-of-fold ridge is, against scikit-learn and against the eigendecompositions it cannot do without.

    python scripts/bench_probes.py                          # one site of a default run: 768 images
    x 480 features python scripts/bench_probes.py --features 6144          # a wider site: more
    features than images

All are measured in one run, turn by turn, in CPU seconds of this process (so that other programs
matter little); the medians and their ratios are printed. The scikit-learn loop does the same work:
nested folds, one penalty for each group of columns. RidgeCV does less (leave-one-row-out, which
ignores that images of a task are alike, and one penalty for all).
"""

import statistics
import time
from collections.abc import Callable

import numpy as np
import scipy.linalg
import tyro
from jaxtyping import Float, Integer
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.preprocessing import StandardScaler

from t2iprobe.probes.crossfit import cross_predict
from t2iprobe.probes.selection import default_alphas

Array = Float[np.ndarray, "..."]


def problem(
    rows: int, features: int, targets: int
) -> tuple[Array, Array, Integer[np.ndarray, " n"]]:
    """Activations with a falling spectrum, one-hot targets of 10 columns a group, 5 folds of tasks with 4 images."""
    rng = np.random.default_rng(0)
    task = np.arange(rows) // 4
    groups = targets // 10
    values = rng.integers(10, size=(task[-1] + 1, groups))
    Y = np.eye(10)[values[task]].reshape(rows, groups * 10)
    rank = min(features, 300)
    mixing = rng.normal(size=(rank, features)) / np.sqrt(1 + np.arange(rank))[:, None]
    hidden = Y @ rng.normal(size=(Y.shape[1], rank)) / 4 + rng.normal(size=(rows, rank))
    X = hidden @ mixing + 0.1 * rng.normal(size=(rows, features))
    return X.astype(np.float32), Y, task % 5


def scikit_learn_loop(
    X: Array,
    Y: Array,
    folds: Integer[np.ndarray, " n"],
    groups: Integer[np.ndarray, " c"],
    alphas: Array,
) -> Array:
    """Out-of-fold predictions by one Ridge for each outer fold, inner fold and penalty."""
    out = np.empty(Y.shape)
    indicator = np.eye(groups.max() + 1)[groups]
    for k in range(5):
        train, test = folds != k, folds == k
        scaler = StandardScaler().fit(X[train])
        inside, outside = scaler.transform(X[train]), scaler.transform(X[test])
        losses = np.zeros((len(alphas), indicator.shape[1]))
        for j in np.unique(folds[train]):
            fit, held = folds[train] != j, folds[train] == j
            for a, alpha in enumerate(alphas):
                predicted = Ridge(alpha=alpha).fit(inside[fit], Y[train][fit]).predict(inside[held])
                losses[a] += np.square(Y[train][held] - predicted).sum(axis=0) @ indicator
        best = alphas[::-1][losses[::-1].argmin(axis=0)]
        for alpha in np.unique(best):
            columns = np.isin(groups, np.flatnonzero(best == alpha))
            model = Ridge(alpha=alpha).fit(inside, Y[train][:, columns])
            out[np.ix_(test, columns)] = model.predict(outside).reshape(test.sum(), -1)
    return out


def ridge_cv(X: Array, Y: Array, folds: Integer[np.ndarray, " n"], alphas: Array) -> None:
    """One RidgeCV (leave-one-row-out) for each outer fold."""
    for k in range(5):
        train, test = folds != k, folds == k
        scaler = StandardScaler().fit(X[train])
        model = RidgeCV(alphas=alphas).fit(scaler.transform(X[train]), Y[train])
        model.predict(scaler.transform(X[test]))


def eigh_only(X: Array) -> None:
    """The five eigendecompositions, of the smaller Gram matrix, and nothing else."""
    n = len(X) * 4 // 5
    side = min(n, X.shape[1])
    part = X[:n, :side].astype(np.float64)
    gram = part.T @ part if side < n else part @ part.T
    for _ in range(5):
        scipy.linalg.eigh(gram, check_finite=False)


def cpu_seconds(call: Callable[[], object]) -> float:
    """CPU seconds of one call, all threads."""
    start = time.process_time()
    call()
    return time.process_time() - start


def main(rows: int = 768, features: int = 480, targets: int = 250, repeats: int = 3) -> None:
    """Print median CPU seconds for one site, and ratios.

    Args:
        rows: images.
        features: width of the site.
        targets: target columns, a multiple of 10.
        repeats: turns.
    """
    X, Y, folds = problem(rows, features, targets)
    X = X.astype(np.float64)  # so that scikit-learn standardises in float64 too
    groups = np.arange(Y.shape[1]) // 10
    names = [f"g{g}" for g in groups]
    alphas = default_alphas(rows, features)
    ours = cross_predict(X, Y, folds, names, alphas).predictions
    theirs = scikit_learn_loop(X, Y, folds, groups, alphas)
    print(
        f"{rows} rows x {features} features, {Y.shape[1]} targets, {len(alphas)} penalties, 5 folds"
    )
    print(f"largest difference from the scikit-learn loop: {np.abs(ours - theirs).max():.1e}")
    calls: dict[str, Callable[[], object]] = {
        "t2iprobe cross_predict": lambda: cross_predict(X, Y, folds, names, alphas),
        "scikit-learn nested Ridge loop": lambda: scikit_learn_loop(X, Y, folds, groups, alphas),
        "scikit-learn RidgeCV a fold": lambda: ridge_cv(X, Y, folds, alphas),
        "eigh alone (lower bound)": lambda: eigh_only(X),
    }
    turns = [{name: cpu_seconds(call) for name, call in calls.items()} for _ in range(repeats)]
    base = statistics.median(turn["t2iprobe cross_predict"] for turn in turns)
    for name in calls:
        seconds = statistics.median(turn[name] for turn in turns)
        print(f"{name:32s} {seconds:8.3f} s   {seconds / base:6.2f} x ours")


if __name__ == "__main__":
    tyro.cli(main)
