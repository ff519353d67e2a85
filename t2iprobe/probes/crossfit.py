"""Out-of-fold predictions: each row from a probe, penalty included, that never saw its fold."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Bool, Float, Integer, Real

from t2iprobe.errors import DataError
from t2iprobe.probes.columns import Columns
from t2iprobe.probes.decodability import TaskDecodability, per_task_decodability
from t2iprobe.probes.folds import check_groups
from t2iprobe.probes.selection import (
    check_alphas,
    choose,
    default_alphas,
    leave_fold_out_losses,
)
from t2iprobe.probes.spectral import Scaler, Solver, decompose, require_finite

Rows = Bool[np.ndarray, " n"]
"""Which rows of a table are meant."""


@dataclass(frozen=True)
class OutOfFold:
    """Predictions for every row, and what they are to be compared with.

    Attributes:
        predictions: (n, c) each row predicted from the other folds; NaN in a fold that could not be
            used.
        folds: (n,) position of each row's fold in `fold_labels`.
        fold_labels: the folds, ascending.
        fold_means: (k, c) mean of the targets over the training rows of each fold, the baseline of
            R2.
        columns: the groups of target columns.
        alpha: (k, g) the penalty chosen for each fold and group.
        alphas: (a,) the penalties that were tried.
        reasons: fold -> why it could not be used.
    """

    predictions: Float[np.ndarray, "n c"]
    folds: Integer[np.ndarray, " n"]
    fold_labels: tuple[int, ...]
    fold_means: Float[np.ndarray, "k c"]
    columns: Columns
    alpha: Float[np.ndarray, "k g"]
    alphas: Float[np.ndarray, " a"]
    reasons: dict[int, str]

    @property
    def baseline(self) -> Float[np.ndarray, "n c"]:
        """(n, c) what a probe that knows nothing predicts: the training mean of the row's fold."""
        return np.asarray(self.fold_means[self.folds])

    def per_task(self, Y: Real[np.ndarray, "n c"], tasks: Sequence[str]) -> TaskDecodability:
        """Decodability of each task, for each group and over all columns; `tasks` has the task of each row."""
        return per_task_decodability(Y, self.predictions, self.baseline, tasks, self.columns)

    def typical_alpha(self) -> dict[str, float]:
        """Group -> geometric mean over folds of the chosen penalty."""
        means = np.exp(np.log(self.alpha).mean(axis=0))
        return dict(zip(self.columns.names, means.tolist(), strict=True))


class CrossPredict(Protocol):
    """What every probe is: a function that gives out-of-fold predictions."""

    def __call__(
        self,
        X: Real[np.ndarray, "n d"],
        Y: Real[np.ndarray, "n c"],
        folds: Integer[np.ndarray, " n"],
        column_groups: Sequence[str] | None = None,
    ) -> OutOfFold:
        """Predictions of each row of Y from the rows of X in other folds; see `cross_predict`."""
        ...


def cross_predict(
    X: Real[np.ndarray, "n d"],
    Y: Real[np.ndarray, "n c"],
    folds: Integer[np.ndarray, " n"],
    column_groups: Sequence[str] | None = None,
    alphas: Sequence[float] | Float[np.ndarray, " a"] | None = None,
    *,
    groups: Sequence[object] | None = None,
    standardise: bool = True,
    solver: Solver = "auto",
) -> OutOfFold:
    """Out-of-fold ridge predictions for all targets, with one eigendecomposition a fold.

    For each fold, features are standardised and the penalty of each group of columns is chosen on
    the other folds only: by leaving each of them out in turn (exactly, without refitting:
    `t2iprobe.probes.selection`). Targets that belong together, their shuffled controls included,
    are best given side by side, since columns cost little.

    Args:
        X: (n, d) features; any float dtype.
        Y: (n, c) targets.
        folds: (n,) fold of each row.
        column_groups: one name a column; each group chooses its own penalty. Default: one group
            "all".
        alphas: penalties > 0; default `default_alphas(n, d)`. With a single one nothing is chosen.
        groups: what must not be on both sides of a split (task or scene of each row); checked when
            given.
        standardise: divide features by their standard deviation over the training rows.
        solver: "auto", "primal" or "dual".

    Raises:
        ConfigError: a penalty that is not positive.
        DataError: fewer than 2 folds (3 to choose a penalty), lengths that differ, NaN or infinity
            in X, or a group on both sides of a split.
    """
    if not len(X) == len(Y) == len(folds):
        raise DataError(
            f"{len(X)} rows of features, {len(Y)} of targets and {len(folds)} folds: must agree"
        )
    require_finite(X, "features")
    if groups is not None:
        check_groups(folds, groups)
    n_folds = len(np.unique(folds))
    if n_folds < 2:
        raise DataError(f"{n_folds} fold: out-of-fold predictions need at least 2, better 5")
    columns = Columns.of(column_groups, Y.shape[1])
    penalties = default_alphas(*X.shape) if alphas is None else check_alphas(alphas)

    def fit(train: Rows, test: Rows) -> tuple[Float[np.ndarray, "q c"], Float[np.ndarray, " g"]]:
        rows, mean = X[train], Y[train].mean(axis=0, dtype=np.float64)
        scaler = Scaler.fit(rows) if standardise else Scaler.centring(rows)
        spectrum = decompose(scaler.transform(rows), solver)
        centred = Y[train] - mean
        if len(penalties) == 1:
            alpha = np.full(len(columns.names), penalties[0])
        else:
            losses = leave_fold_out_losses(spectrum, centred, folds[train], penalties)
            alpha = choose(losses, columns.members, penalties)
        shrink = 1.0 / (spectrum.values[:, None] + alpha[list(columns.index)])
        weights = shrink * (spectrum.scores.T @ centred)
        return spectrum.project(scaler.transform(X[test])) @ weights + mean, alpha

    return by_fold(Y, folds, columns, penalties, fit)


def by_fold(
    Y: Real[np.ndarray, "n c"],
    folds: Integer[np.ndarray, " n"],
    columns: Columns,
    alphas: Float[np.ndarray, " a"],
    fit: Callable[[Rows, Rows], tuple[Float[np.ndarray, "q c"], Float[np.ndarray, " g"]]],
) -> OutOfFold:
    """Predictions of the rows of each fold by a probe that is fitted on the rows of the others.

    Args:
        Y: targets.
        folds: fold of each row.
        columns: the groups of target columns.
        alphas: the penalties that are tried.
        fit: gets which rows to train on and which to predict; gives the (q, c) predictions of the latter and the
            (g,) penalties it chose.
    """
    labels, fold = np.unique(folds, return_inverse=True)
    predictions = np.empty(Y.shape)
    fold_means = np.empty((len(labels), Y.shape[1]))
    alpha = np.empty((len(labels), len(columns.names)))
    for k in range(len(labels)):
        train, test = fold != k, fold == k
        fold_means[k] = Y[train].mean(axis=0, dtype=np.float64)
        predictions[test], alpha[k] = fit(train, test)
    return OutOfFold(
        predictions, fold, tuple(labels.tolist()), fold_means, columns, alpha, alphas, {}
    )
