"""What every ridge solve needs once: standardised features and their spectral decomposition.

One eigendecomposition gives the solution for all penalties and all targets: with centred features X
= U S V', the ridge predictions are U (S^2 / (S^2 + alpha)) U' Y. The *scores* Z = U S are the
features in the basis in which the penalty is diagonal; whichever of X'X (d, d) and XX' (n, n) is
smaller is decomposed (Hastie, Tibshirani and Friedman, *The Elements of Statistical Learning*,
2009, sections 3.4.1 and 18.3.5).
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.linalg
from jaxtyping import Float, Real

from t2iprobe.errors import DataError

Method = Literal["primal", "dual"]
Solver = Literal["auto", "primal", "dual"]


def require_finite(X: Real[np.ndarray, "n d"], what: str) -> None:
    """Nothing, when every number is finite.

    Raises:
        DataError: the message counts the rows that are not.
    """
    if np.isfinite(X).all():
        return
    bad = int((~np.isfinite(X).all(axis=1)).sum())
    raise DataError(
        f"{bad} of {len(X)} rows of the {what} hold NaN or infinity: leave these rows out "
        "(they belong to invalid images) before fitting a probe"
    )


SMALLEST_SCALE = 0.1
"""Least scale of a feature, as a share of the median scale. A unit that is all but silent in the training rows would
otherwise be blown up where it does fire: one such unit can bring a held-out R2 from 0.96 to -10."""


@dataclass(frozen=True)
class Scaler:
    """Mean and inverse scale of each feature, learned on training rows only.

    Attributes:
        mean: (d,) float64.
        inverse_scale: (d,) float64; 0 where the feature varies by no more than rounding, so that it
            becomes 0.
    """

    mean: Float[np.ndarray, " d"]
    inverse_scale: Float[np.ndarray, " d"]

    @classmethod
    def fit(cls, X: Real[np.ndarray, "n d"]) -> "Scaler":
        """The scaler of these rows; sums are float64, so float16 features cannot overflow.

        The scale is the standard deviation, but at least `SMALLEST_SCALE` of the median over the
        features that vary. A feature is taken for constant when its standard deviation is below
        four units of rounding of its own dtype.
        """
        X64 = X.astype(np.float64)
        shift = X64[0].copy()  # makes a constant feature exactly 0, whatever the order of summation
        X64 -= shift
        centre = X64.mean(axis=0)
        X64 -= centre
        mean = shift + centre
        scale = np.sqrt(np.einsum("nd,nd->d", X64, X64) / len(X64))
        eps = np.finfo(X.dtype).eps if np.issubdtype(X.dtype, np.floating) else np.finfo(float).eps
        varies = scale > 4.0 * float(eps) * np.abs(mean)
        if varies.any():
            scale = np.maximum(scale, SMALLEST_SCALE * np.median(scale[varies]))
        return cls(mean, np.where(varies, 1.0 / np.where(varies, scale, 1.0), 0.0))

    @classmethod
    def centring(cls, X: Real[np.ndarray, "n d"]) -> "Scaler":
        """A scaler that only takes the mean away."""
        return cls(X.mean(axis=0, dtype=np.float64), np.ones(X.shape[1]))

    def transform(self, X: Real[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """Standardised features, float64."""
        standard = X.astype(np.float64)
        standard -= self.mean
        standard *= self.inverse_scale
        return standard


@dataclass(frozen=True)
class Spectrum:
    """Centred training features in the basis in which the penalty is diagonal.

    Attributes:
        values: (r,) eigenvalues of X'X above rounding, r <= min(n, d).
        scores: (n, r) the training rows Z = U S; Z'Z = diag(values).
        method: which matrix was decomposed.
        basis: (d, r) V for "primal", (n, r) U / S for "dual".
        features: (n, d) the training features; needed to project in the dual.
    """

    values: Float[np.ndarray, " r"]
    scores: Float[np.ndarray, "n r"]
    method: Method
    basis: Float[np.ndarray, "k r"]
    features: Float[np.ndarray, "n d"]

    def project(self, X: Float[np.ndarray, "q d"]) -> Float[np.ndarray, "q r"]:
        """Scores of other rows, standardised as the training rows were."""
        if self.method == "primal":
            return np.asarray(X @ self.basis)
        return np.asarray((X @ self.features.T) @ self.basis)

    def weights(self, coefficients: Float[np.ndarray, "r c"]) -> Float[np.ndarray, "d c"]:
        """Weights on the features from weights on the scores."""
        if self.method == "primal":
            return np.asarray(self.basis @ coefficients)
        return np.asarray(self.features.T @ (self.basis @ coefficients))


def decompose(X: Float[np.ndarray, "n d"], solver: Solver = "auto") -> Spectrum:
    """The spectrum of centred features, by one symmetric eigendecomposition.

    Args:
        X: (n, d) float64, columns of mean 0.
        solver: "primal" decomposes X'X (cheaper for d <= n), "dual" XX' (cheaper for d > n), "auto"
            the smaller. Both give the same predictions.
    """
    n, d = X.shape
    primal = solver == "primal" or (solver == "auto" and d <= n)
    gram = X.T @ X if primal else X @ X.T
    values, vectors = scipy.linalg.eigh(gram, overwrite_a=True, check_finite=False)
    keep = values > max(n, d) * np.finfo(float).eps * max(float(values[-1]), 0.0)
    values, vectors = values[keep], vectors[:, keep]
    if primal:
        return Spectrum(values, X @ vectors, "primal", vectors, X)
    root = np.sqrt(values)
    return Spectrum(values, vectors * root, "dual", vectors / root, X)
