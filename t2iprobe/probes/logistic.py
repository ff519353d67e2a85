"""Logistic probe: class probabilities from scikit-learn, with the interface of the ridge probe.

Groups of columns that are one-hot get one multinomial regression, multi-hot groups one binary
regression a column. The weights carry no p-values: with more features than rows the classes are
nearly always separable, and then the likelihood has no maximum and weights only reflect the
penalty.
"""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Integer, Real
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from t2iprobe.errors import ConfigError, DataError
from t2iprobe.probes.columns import Columns
from t2iprobe.probes.crossfit import OutOfFold, Rows, by_fold
from t2iprobe.probes.folds import fold_report
from t2iprobe.probes.spectral import Scaler, require_finite

MAX_C = 1e4
_NEVER = -30.0  # log odds of a class without a training row


class ProbeWarning(UserWarning):
    """Something about fitted probes that a reader of their results should know."""


@dataclass(frozen=True)
class FitInfo:
    """How one fit went.

    Attributes:
        name: the group, or the column of a multi-hot group.
        converged: whether the solver stopped before its last iteration.
        separable: whether the training rows are classified without error, so that weights depend on
            the penalty alone.
        n_iter: iterations used.
    """

    name: str
    converged: bool
    separable: bool
    n_iter: int


def report_fits(fits: Iterable[FitInfo]) -> str:
    """One line on fits that did not converge, also issued as one `ProbeWarning`; else empty.

    Example:
        >>> report_fits([FitInfo("color1", True, True, 12)])
        ''
    """
    found = list(fits)
    failed = [fit for fit in found if not fit.converged]
    if not failed:
        return ""
    count = f"{len(failed)}/{len(found)} probes did not converge"
    line = f"{count} (first: {failed[0].name}): raise max_iter"
    warnings.warn(line, ProbeWarning, stacklevel=2)
    return line


class Logistic:
    """Linear probe with a logistic loss.

    Minimises  C * sum_n loss(x_n W + b, y_n) + |W|^2 / 2  on standardised features; the intercept
    is free.

    Args:
        C: inverse penalty > 0. It is kept at or below `MAX_C`, infinity ("no penalty") included, so
            that weights stay finite when the classes are separable.
        max_iter: iterations of the solver.

    Attributes:
        C_: the inverse penalty that was used.
        coef_: (d, c) weights on standardised features.
        intercept_: (c,).
        fits_: how each fit went; of all folds after `cross_predict`.
        train_mean_: (c,) mean of the training targets.
    """

    coef_: Float[np.ndarray, "d c"]
    intercept_: Float[np.ndarray, " c"]
    train_mean_: Float[np.ndarray, " c"]
    fits_: tuple[FitInfo, ...]

    def __init__(self, C: float = 1.0, *, max_iter: int = 300) -> None:
        if not C > 0:
            raise ConfigError(
                f"C = {C!r}: the inverse penalty is a number above 0, for example 1.0"
            )
        self.C = C
        self.C_ = min(C, MAX_C)
        self.max_iter = max_iter

    def fit(
        self,
        X: Real[np.ndarray, "n d"],
        Y: Real[np.ndarray, "n c"],
        column_groups: Sequence[str] | None = None,
    ) -> "Logistic":
        """The fitted probe.

        Args:
            X: features.
            Y: targets, 0 or 1.
            column_groups: one group name a column; a group whose rows all sum to 1 is fitted as one
                multinomial.

        Raises:
            DataError: NaN or infinity in X, or targets other than 0 and 1.
        """
        require_finite(X, "features")
        if not np.isin(Y, (0, 1)).all():
            raise DataError(
                "logistic probes need targets of 0 and 1: use the ridge probe for others"
            )
        columns = Columns.of(column_groups, Y.shape[1])
        self._scaler = Scaler.fit(X)
        self._softmax: list[list[int]] = []
        self.train_mean_ = Y.mean(axis=0, dtype=np.float64)
        self.coef_ = np.zeros((X.shape[1], Y.shape[1]))
        self.intercept_ = np.zeros(Y.shape[1])
        standard = self._scaler.transform(X)
        fits: list[FitInfo] = []
        for name in columns.names:
            of_group = columns.of_group(name)
            if len(of_group) > 1 and (Y[:, of_group].sum(axis=1) == 1).all():
                self._softmax.append(of_group)
                fits.append(
                    self._fit_classes(standard, Y[:, of_group].argmax(axis=1), of_group, name)
                )
            else:
                fits += [self._fit_column(standard, Y[:, c], c, f"{name}[{c}]") for c in of_group]
        self.fits_ = tuple(fits)
        return self

    def predict(self, X: Real[np.ndarray, "q d"]) -> Float[np.ndarray, "q c"]:
        """Probabilities of every column; they sum to 1 over one-hot groups."""
        logits = self._scaler.transform(X) @ self.coef_ + self.intercept_
        probabilities = np.exp(-np.logaddexp(0.0, -logits))
        for of_group in self._softmax:
            scores = logits[:, of_group] - logits[:, of_group].max(axis=1, keepdims=True)
            probabilities[:, of_group] = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        return np.asarray(probabilities)

    def cross_predict(
        self,
        X: Real[np.ndarray, "n d"],
        Y: Real[np.ndarray, "n c"],
        folds: Integer[np.ndarray, " n"],
        column_groups: Sequence[str] | None = None,
    ) -> OutOfFold:
        """Out-of-fold probabilities; NaN, with the reason, where training lacks a class.

        Raises:
            DataError: a group for which no fold can be used.
        """
        columns = Columns.of(column_groups, Y.shape[1])
        excluded = _excluded(Y, folds, columns)
        fits: list[FitInfo] = []
        alphas = np.array([1.0 / self.C_])

        def fit(
            train: Rows, test: Rows
        ) -> tuple[Float[np.ndarray, "q c"], Float[np.ndarray, " g"]]:
            self.fit(X[train], Y[train], column_groups)
            fits.extend(self.fits_)
            predictions = self.predict(X[test])
            for name in excluded.get(int(folds[test][0]), {}):
                predictions[:, columns.of_group(name)] = np.nan
            return predictions, np.full(len(columns.names), alphas[0])

        predicted = by_fold(Y, folds, columns, alphas, fit)
        self.fits_ = tuple(fits)
        reasons = {
            fold: f"{name}: {reason}"
            for fold, groups in excluded.items()
            for name, reason in groups.items()
        }
        return replace(predicted, reasons=reasons)

    def _fit_classes(
        self,
        X: Float[np.ndarray, "n d"],
        y: Integer[np.ndarray, " n"],
        columns: list[int],
        name: str,
    ) -> FitInfo:
        """One multinomial regression for a one-hot group; classes without a row get ~0."""
        present = np.unique(y)
        at = [columns[label] for label in present]
        self.intercept_[columns] = _NEVER
        self.intercept_[at] = 0.0
        if len(present) == 1:
            return FitInfo(name, True, True, 0)
        weights, intercept, fit = self._solve(X, y, name)
        if len(present) == 2:  # scikit-learn gives the second class's log odds only
            weights, intercept = (
                np.stack([-weights[0], weights[0]]) / 2,
                np.stack([-intercept[0], intercept[0]]) / 2,
            )
        self.coef_[:, at], self.intercept_[at] = weights.T, intercept
        return fit

    def _fit_column(
        self, X: Float[np.ndarray, "n d"], y: Real[np.ndarray, " n"], column: int, name: str
    ) -> FitInfo:
        """One binary regression; a column that does not vary is predicted as it is."""
        if np.ptp(y) == 0:
            self.intercept_[column] = -_NEVER if y[0] else _NEVER
            return FitInfo(name, True, True, 0)
        weights, intercept, fit = self._solve(X, y.astype(np.intp), name)
        self.coef_[:, column], self.intercept_[column] = weights[0], intercept[0]
        return fit

    def _solve(
        self, X: Float[np.ndarray, "n d"], y: Integer[np.ndarray, " n"], name: str
    ) -> tuple[Float[np.ndarray, "k d"], Float[np.ndarray, " k"], FitInfo]:
        model = LogisticRegression(C=self.C_, max_iter=self.max_iter)
        with warnings.catch_warnings():  # counted in FitInfo and reported once by report_fits
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X, y)
        n_iter = int(model.n_iter_.max())
        separable = bool((model.predict(X) == y).all())
        fit = FitInfo(name, n_iter < self.max_iter, separable, n_iter)
        return model.coef_, model.intercept_, fit


def _excluded(
    Y: Real[np.ndarray, "n c"], folds: Integer[np.ndarray, " n"], columns: Columns
) -> dict[int, dict[str, str]]:
    """Fold -> one-hot group -> why the group cannot be scored there.

    Raises:
        DataError: a group has no usable fold.
    """
    excluded: dict[int, dict[str, str]] = {}
    for name in columns.names:
        of_group = columns.of_group(name)
        if len(of_group) < 2 or not (Y[:, of_group].sum(axis=1) == 1).all():
            continue
        report = fold_report(Y[:, of_group].argmax(axis=1), folds)
        if not report.usable:
            raise DataError(f"{name}: {report}")
        for fold, reason in report.excluded.items():
            excluded.setdefault(fold, {})[name] = reason
    return excluded


def cross_predict(
    X: Real[np.ndarray, "n d"],
    Y: Real[np.ndarray, "n c"],
    folds: Integer[np.ndarray, " n"],
    column_groups: Sequence[str] | None = None,
) -> OutOfFold:
    """Out-of-fold probabilities with the default penalty, and one warning for what did not converge.

    The same call as `t2iprobe.probes.crossfit.cross_predict`, for the table of probes.
    """
    probe = Logistic()
    predicted = probe.cross_predict(X, Y, folds, column_groups)
    report_fits(probe.fits_)
    return predicted
