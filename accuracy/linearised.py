"""Robust least squares on a linearised model, with bounds, priors and a trust region."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dynosim.hardware_models.arrays import FloatArray


@dataclass(frozen=True, eq=False)
class Linearised:
    """Residuals near ``at``: ``errors`` + ``slopes`` (x - ``at``), in standard errors.

    ``errors`` has shape (rows,), ``slopes`` (rows, parameters), ``weights`` (rows,). A row counts
    by its weight, softly bounded (``soft_l1``) so that no single one decides.
    """

    at: FloatArray
    errors: FloatArray
    slopes: FloatArray
    weights: FloatArray

    def only(self, rows: FloatArray) -> Linearised:
        """Returns the same with the weights of rows multiplied by ``rows``."""
        return Linearised(self.at, self.errors, self.slopes, self.weights * rows)


@dataclass(frozen=True, eq=False)
class Prior:
    """What parameters are without data: means, standard errors and hard bounds, shape (n,)."""

    mean: FloatArray
    spread: FloatArray
    low: FloatArray
    high: FloatArray

    def penalty(self, x: FloatArray) -> float:
        """Returns half the squared distance from the mean, in standard errors."""
        return float(0.5 * np.sum(((x - self.mean) / self.spread) ** 2))


def robust_cost(errors: FloatArray, weights: FloatArray) -> float:
    """Returns the soft-L1 loss: near zero half the square, far out the absolute value."""
    return float(np.sum(weights * (np.sqrt(1.0 + errors * errors) - 1.0)))


def minimise(model: Linearised, prior: Prior, radius: float) -> FloatArray:
    """Returns the parameters of least cost within ``radius`` of where the model holds."""
    from scipy.optimize import least_squares

    low = np.maximum(prior.low, model.at - radius)
    high = np.minimum(prior.high, model.at + radius)

    def rows(x: FloatArray) -> FloatArray:
        errors = model.errors + model.slopes @ (x - model.at)
        # 2 (sqrt(1 + r^2) - 1) is the soft-L1 loss of r^2: its root, squared, is what is summed.
        soft = np.sign(errors) * np.sqrt(2.0 * (np.sqrt(1.0 + errors * errors) - 1.0))
        return np.concatenate((np.sqrt(model.weights) * soft, (x - prior.mean) / prior.spread))

    start = np.clip(model.at, low, high)
    # A parameter at its bound on both sides does not move.
    high = np.maximum(high, low + 1e-9)
    found = least_squares(rows, np.clip(start, low + 1e-10, high - 1e-10), bounds=(low, high))
    return np.asarray(found.x)
