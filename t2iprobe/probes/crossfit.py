"""Out-of-fold predictions: each row from a probe, penalty included, that never saw its fold."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Float, Integer, Real

from t2iprobe.errors import DataError
from t2iprobe.probes.columns import Columns
from t2iprobe.probes.decodability import (
    Accuracy,
    Score,
    TaskDecodability,
    accuracy,
    per_task_decodability,
    r2_by_group,
)
from t2iprobe.probes.folds import check_groups
from t2iprobe.probes.selection import (
    check_alphas,
    choose,
    default_alphas,
    leave_fold_out_losses,
)
from t2iprobe.probes.spectral import Scaler, Solver, decompose, require_finite


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

    def r2(
        self, Y: Real[np.ndarray, "n c"], groups: Sequence[str] | None = None
    ) -> dict[str, Score]:
        """R2 of each group of columns, pooled over its columns and over all rows.

        Args:
            Y: the targets.
            groups: other groups to score by, one name a column (whole codings, for example).
        """
        return r2_by_group(Y, self.predictions, self.baseline, self._groups(groups))

    def accuracy(
        self, Y: Real[np.ndarray, "n c"], groups: Sequence[str] | None = None
    ) -> dict[str, Accuracy]:
        """Accuracy of each group of columns; arguments as in `r2`."""
        columns = self._groups(groups)
        found = {}
        for name in columns.names:
            of_group = columns.of_group(name)
            found[name] = accuracy(Y[:, of_group], self.predictions[:, of_group])
        return found

    def per_task(
        self,
        Y: Real[np.ndarray, "n c"],
        tasks: Sequence[str],
        groups: Sequence[str] | None = None,
    ) -> TaskDecodability:
        """Decodability of each task, for each group and over all columns; arguments as in `r2`."""
        columns = self._groups(groups)
        return per_task_decodability(Y, self.predictions, self.baseline, tasks, columns)

    def _groups(self, groups: Sequence[str] | None) -> Columns:
        return self.columns if groups is None else Columns.of(groups, self.predictions.shape[1])

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
    labels, fold = np.unique(folds, return_inverse=True)
    if len(labels) < 2:
        raise DataError(f"{len(labels)} fold: out-of-fold predictions need at least 2, better 5")
    columns = Columns.of(column_groups, Y.shape[1])
    penalties = default_alphas(*X.shape) if alphas is None else check_alphas(alphas)
    predictions = np.empty(Y.shape)
    fold_means = np.empty((len(labels), Y.shape[1]))
    alpha = np.empty((len(labels), len(columns.names)))
    for k in range(len(labels)):
        train, test = fold != k, fold == k
        rows = X[train]
        scaler = Scaler.fit(rows) if standardise else Scaler.centring(rows)
        spectrum = decompose(scaler.transform(rows), solver)
        fold_means[k] = Y[train].mean(axis=0, dtype=np.float64)
        centred = Y[train] - fold_means[k]
        if len(penalties) == 1:
            alpha[k] = penalties[0]
        else:
            losses = leave_fold_out_losses(spectrum, centred, fold[train], penalties)
            alpha[k] = choose(losses, columns.members, penalties)
        shrink = 1.0 / (spectrum.values[:, None] + alpha[k][list(columns.index)])
        weights = shrink * (spectrum.scores.T @ centred)
        predictions[test] = spectrum.project(scaler.transform(X[test])) @ weights + fold_means[k]
    return OutOfFold(
        predictions, fold, tuple(labels.tolist()), fold_means, columns, alpha, penalties, {}
    )
