"""Multi-output ridge regression, exact, for many targets and penalties at once.

Minimises  sum_n |x_n W + b - y_n|^2 + sum_c alpha_c |W_c|^2  (a sum over rows, not a mean; the
intercept b is free), as scikit-learn's `Ridge` does. Out-of-fold predictions are in
`t2iprobe.probes.crossfit`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Integer, Real

from t2iprobe.errors import DataError
from t2iprobe.probes.columns import Columns
from t2iprobe.probes.selection import check_alphas, choose, leave_fold_out_losses
from t2iprobe.probes.spectral import Scaler, Solver, decompose, require_finite


class Ridge:
    """Linear probe with a squared penalty.

    Args:
        alphas: one penalty > 0, or several, of which each group of columns gets the one of least
            leave-one-fold-out error on the training rows.
        standardise: divide each feature by its standard deviation over the training rows (features
            that do not vary become 0). The penalty then acts on standardised weights.
        solver: "primal" from X'X, in time n d^2 + d^3; "dual" from XX', in time n^2 d + n^3; "auto": primal for d <= n.

    Attributes:
        coef_: (d, c) weights in units of the features as given.
        intercept_: (c,).
        alpha_: (c,) the penalty of each column.
        train_mean_: (c,) mean of the training targets, the prediction of a probe that knows
            nothing.

    Example:
        >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
        >>> Ridge(alphas=1e-9).fit(X, 2 * X + 1).predict(np.array([[4.0]])).round(3)
        array([[9.]])
    """

    coef_: Float[np.ndarray, "d c"]
    intercept_: Float[np.ndarray, " c"]
    alpha_: Float[np.ndarray, " c"]
    train_mean_: Float[np.ndarray, " c"]

    def __init__(
        self,
        alphas: float | Sequence[float] = 1.0,
        *,
        standardise: bool = True,
        solver: Solver = "auto",
    ) -> None:
        self.alphas = alphas
        self.standardise = standardise
        self.solver = solver

    def fit(
        self,
        X: Real[np.ndarray, "n d"],
        Y: Real[np.ndarray, "n c"],
        folds: Integer[np.ndarray, " n"] | None = None,
        column_groups: Sequence[str] | None = None,
    ) -> "Ridge":
        """The fitted probe.

        Args:
            X: features, one row an image or a sample.
            Y: targets.
            folds: fold of each row; only needed to choose among several penalties.
            column_groups: one group name a column; each group chooses a penalty of its own.
                Default: one group.

        Raises:
            ConfigError: a penalty that is not positive.
            DataError: fewer than 2 rows, NaN or infinity in X, or several penalties without folds.
        """
        alphas = check_alphas(self.alphas)
        if len(X) < 2 or len(X) != len(Y):
            raise DataError(
                f"{len(X)} rows of features, {len(Y)} of targets: give 2 or more of each"
            )
        require_finite(X, "features")
        columns = Columns.of(column_groups, Y.shape[1])
        scaler = Scaler.fit(X) if self.standardise else Scaler.centring(X)
        spectrum = decompose(scaler.transform(X), self.solver)
        self.train_mean_ = Y.mean(axis=0, dtype=np.float64)
        centred = Y - self.train_mean_
        if len(alphas) == 1:
            self.alpha_ = np.full(Y.shape[1], alphas[0])
        elif folds is None:
            raise DataError(
                f"{len(alphas)} penalties to choose from and no folds: give one alpha, or the folds"
            )
        else:
            losses = leave_fold_out_losses(spectrum, centred, folds, alphas)
            self.alpha_ = choose(losses, columns.members, alphas)[list(columns.index)]
        shrink = 1.0 / (spectrum.values[:, None] + self.alpha_)
        standard = spectrum.weights(shrink * (spectrum.scores.T @ centred))
        self.coef_ = standard * scaler.inverse_scale[:, None]
        self.intercept_ = self.train_mean_ - scaler.mean @ self.coef_
        return self

    def predict(self, X: Real[np.ndarray, "q d"]) -> Float[np.ndarray, "q c"]:
        """Predicted targets of other rows."""
        return np.asarray(X.astype(np.float64) @ self.coef_ + self.intercept_)


@dataclass(frozen=True)
class Transfer:
    """Predictions of a probe fitted on one set of rows for the rows of another.

    Attributes:
        predictions: (q, c).
        train_mean: (c,) mean of the training targets, the baseline of R2.
        alpha: group -> penalty.
    """

    predictions: Float[np.ndarray, "q c"]
    train_mean: Float[np.ndarray, " c"]
    alpha: dict[str, float]


def fit_transfer(
    X_train: Real[np.ndarray, "n d"],
    Y_train: Real[np.ndarray, "n c"],
    X_test: Real[np.ndarray, "q d"],
    *,
    alphas: float | Sequence[float] = 1.0,
    folds: Integer[np.ndarray, " n"] | None = None,
    column_groups: Sequence[str] | None = None,
    standardise: bool = True,
) -> Transfer:
    """Predictions for held-out rows from a probe fitted on in-distribution rows.

    Args:
        X_train: features of the training rows.
        Y_train: their targets. Columns without variance are predicted by their mean.
        X_test: features of the held-out rows.
        alphas: one penalty, or several to choose from with `folds`.
        folds: fold of each training row.
        column_groups: one group name a column.
        standardise: as in `Ridge`.
    """
    probe = Ridge(alphas, standardise=standardise).fit(X_train, Y_train, folds, column_groups)
    columns = Columns.of(column_groups, Y_train.shape[1])
    alpha = {name: float(probe.alpha_[columns.of_group(name)[0]]) for name in columns.names}
    return Transfer(probe.predict(X_test), probe.train_mean_, alpha)
