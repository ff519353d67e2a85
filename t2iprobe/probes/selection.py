"""The penalty, chosen inside the training rows by exact leave-one-fold-out errors.

Ridge is a linear smoother, so what it would predict for a block of rows j that it never saw follows
from the fit on all rows. With H the hat matrix (intercept included) and r the residuals of the full
fit, the held-out residuals are

    e_j = (I - H_jj)^-1 r_j                            (Cook and Weisberg 1982; for blocks: Zhang
    1993)

or, the same thing in the basis of the scores, w_-j solves (Z'Z + alpha P - Z_j'Z_j) w = Z'Y -
Z_j'Y_j, where P leaves the intercept free. The first costs n_j^3 a penalty, the second r^3: the
cheaper one is taken. This replaces one decomposition for each pair of folds by one for each fold,
and is exact for features as standardised on the training rows.
"""

from collections.abc import Sequence

import numpy as np
import scipy.linalg
from jaxtyping import Float, Integer

from t2iprobe.errors import ConfigError, DataError
from t2iprobe.probes.spectral import Spectrum


def default_alphas(n: int, d: int) -> Float[np.ndarray, " a"]:
    """Penalties by decades from 0.1 to the trace n * d of the Gram matrix of standardised features.

    The last one shrinks a target that has no linear trace to its mean; the first one is close to
    least squares.
    """
    top = max(1, int(np.ceil(np.log10(max(n * d, 1)))))
    return np.asarray(10.0 ** np.arange(-1, top + 1))


def check_alphas(
    alphas: float | Sequence[float] | Float[np.ndarray, " a"],
) -> Float[np.ndarray, " a"]:
    """Penalties as a float64 array.

    Raises:
        ConfigError: none, or one that is not a positive finite number.
    """
    values = np.atleast_1d(np.asarray(alphas, dtype=np.float64))
    if values.size == 0 or not (np.isfinite(values) & (values > 0)).all():
        raise ConfigError(
            f"alpha {alphas!r}: penalties are finite numbers above 0, for example 1.0"
        )
    return values


def leave_fold_out_losses(
    spectrum: Spectrum,
    Y: Float[np.ndarray, "n c"],
    folds: Integer[np.ndarray, " n"],
    alphas: Float[np.ndarray, " a"],
) -> Float[np.ndarray, "a c"]:
    """Squared errors of each target, summed over rows, when each fold is left out in turn.

    Args:
        spectrum: of the centred training features.
        Y: (n, c) targets of the training rows, centred over these rows.
        folds: (n,) fold of each training row; at least two folds.
        alphas: penalties > 0. One too small to be solved in float64 gets an infinite loss.

    Raises:
        DataError: fewer than two folds.
    """
    labels, fold = np.unique(folds, return_inverse=True)
    if len(labels) < 2:
        raise DataError(
            "the training rows form a single fold, so no penalty can be chosen inside them: "
            "use at least 3 folds, or give a single alpha"
        )
    blocks = [np.flatnonzero(fold == k) for k in range(len(labels))]
    cross = spectrum.scores.T @ Y
    losses = np.zeros((len(alphas), Y.shape[1]))
    by_rows = [rows for rows in blocks if len(rows) <= len(spectrum.values) + 1]
    by_scores = [rows for rows in blocks if len(rows) > len(spectrum.values) + 1]
    for a, alpha in enumerate(alphas):
        shrink = 1.0 / (spectrum.values + alpha)
        if by_rows:
            weights = shrink[:, None] * cross
            for rows in by_rows:
                losses[a] += _loss_by_rows(spectrum.scores[rows], Y[rows], weights, shrink, len(Y))
    for rows in by_scores:
        losses += _losses_by_scores(spectrum, cross, spectrum.scores[rows], Y[rows], alphas)
    return losses


def choose(
    losses: Float[np.ndarray, "a c"],
    members: Float[np.ndarray, "c g"],
    alphas: Float[np.ndarray, " a"],
) -> Float[np.ndarray, " g"]:
    """The penalty of least loss for each group of columns; of equal ones the largest.

    Args:
        losses: as `leave_fold_out_losses` gives.
        members: (c, g) 1 where a column belongs to a group.
        alphas: the penalties of the rows of `losses`.
    """
    order = np.argsort(alphas)[::-1]
    with np.errstate(invalid="ignore"):
        pooled = np.stack([losses[:, m > 0].sum(axis=1) for m in members.T], axis=1)
    return np.asarray(alphas[order][np.argmin(pooled[order], axis=0)])


def _loss_by_rows(
    Z: Float[np.ndarray, "j r"],
    Y: Float[np.ndarray, "j c"],
    weights: Float[np.ndarray, "r c"],
    shrink: Float[np.ndarray, " r"],
    n: int,
) -> Float[np.ndarray, " c"]:
    """Squared held-out errors of one block, by (I - H_jj)^-1 on the residuals of the full fit."""
    scaled = Z * np.sqrt(shrink)
    kept = -(scaled @ scaled.T) - 1.0 / n
    kept[np.diag_indices_from(kept)] += 1.0
    try:
        factor = scipy.linalg.cho_factor(kept, lower=True, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError:
        return np.full(Y.shape[1], np.inf)
    residual = Y - Z @ weights
    held_out = scipy.linalg.cho_solve(factor, residual, overwrite_b=True, check_finite=False)
    return np.asarray(np.einsum("jc,jc->c", held_out, held_out))


def _losses_by_scores(
    spectrum: Spectrum,
    cross: Float[np.ndarray, "r c"],
    Z: Float[np.ndarray, "j r"],
    Y: Float[np.ndarray, "j c"],
    alphas: Float[np.ndarray, " a"],
) -> Float[np.ndarray, "a c"]:
    """Squared held-out errors of one block, by the normal equations without it."""
    n = len(spectrum.scores)
    Z1 = np.concatenate([np.full((len(Z), 1), 1.0 / np.sqrt(n)), Z], axis=1)
    block_gram, block_cross = Z1.T @ Z1, Z1.T @ Y
    rest = np.concatenate([np.zeros((1, Y.shape[1])), cross]) - block_cross
    energy = np.einsum("jc,jc->c", Y, Y)
    losses = np.empty((len(alphas), Y.shape[1]))
    for a, alpha in enumerate(alphas):
        system = -block_gram
        system[np.diag_indices_from(system)] += np.concatenate([[1.0], spectrum.values + alpha])
        try:
            factor = scipy.linalg.cho_factor(
                system, lower=True, overwrite_a=True, check_finite=False
            )
        except np.linalg.LinAlgError:
            losses[a] = np.inf
            continue
        weights = scipy.linalg.cho_solve(factor, rest, check_finite=False)
        fitted = np.einsum("rc,rc->c", weights, block_gram @ weights - 2.0 * block_cross)
        losses[a] = np.maximum(energy + fitted, 0.0)
    return losses
