"""The paper's regression of a profile: three curves over the cut layer (Sec. V-A, eqs. (23) to (26)).

::

    |w^C(l)|          = α·l²              bits            eq. (23)
    F^C(l) + B^C(l)   = β·l·(1 + κ)       FLOPs a sample  eq. (25)
    |S(l)| = |G(l)|   = γ1 / (l + γ2)     bits a sample   eq. (26)

All three are least squares over the cuts 1..L; Λ(L) is the size of the model's output.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cutwater.base.arrays import Floats
from cutwater.profile.values import Profile


@dataclass(frozen=True)
class Fit:
    """The fitted curves of one profile and how well each follows it (R of Sec. VI-A, 1 is perfect)."""

    model: str
    alpha: float
    """α in bits: |w^C(l)| = α·l²."""
    beta: float
    """β in forward FLOPs a layer: F^C(l) + B^C(l) = β·l·(1 + κ)."""
    kappa: float
    """κ, taken from the profile."""
    gamma1: float
    """γ1 in bits."""
    gamma2: float
    """γ2 ≥ 0."""
    r2_model: float
    r2_compute: float
    r2_smashed: float

    def client_bits(self, cut: ArrayLike) -> Floats:
        """|w^C(l)| by eq. (23); real-valued cuts are fine."""
        return self.alpha * np.square(np.asarray(cut, dtype=np.float64))

    def client_flops(self, cut: ArrayLike) -> Floats:
        """F^C(l) + B^C(l) by eq. (25)."""
        return self.beta * (1 + self.kappa) * np.asarray(cut, dtype=np.float64)

    def smashed_bits(self, cut: ArrayLike) -> Floats:
        """Λ(l) by eq. (26)."""
        return self.gamma1 / (np.asarray(cut, dtype=np.float64) + self.gamma2)


def fit(profile: Profile) -> Fit:
    """Fit eqs. (23), (25) and (26) to a profile by least squares."""
    cuts = np.arange(1, len(profile) + 1, dtype=np.float64)
    bits = profile.column("client_bits")
    flops = profile.client_flops
    smashed = profile.column("smashed_bits")
    alpha = slope(cuts**2, bits)
    total = slope(cuts, flops)
    gamma1, gamma2 = _hyperbola(cuts, smashed)
    return Fit(
        model=profile.model,
        alpha=alpha,
        beta=total / (1 + profile.kappa),
        kappa=profile.kappa,
        gamma1=gamma1,
        gamma2=gamma2,
        r2_model=determination(bits, alpha * cuts**2),
        r2_compute=determination(flops, total * cuts),
        r2_smashed=determination(smashed, gamma1 / (cuts + gamma2)),
    )


def slope(x: Floats, y: Floats) -> float:
    """The least-squares line through the origin."""
    return float(x @ y / (x @ x))


def determination(true: Floats, predicted: Floats) -> float:
    """R = 1 - Σ(x - x̂)² / Σ(x - mean)² (Sec. VI-A); for a constant, 1 if met exactly and else 0."""
    residual = float(np.square(true - predicted).sum())
    spread = float(np.square(true - true.mean()).sum())
    if spread == 0:
        return 1.0 if residual == 0 else 0.0
    return 1 - residual / spread


def _hyperbola(cuts: Floats, smashed: Floats) -> tuple[float, float]:
    """γ1, γ2 ≥ 0 of eq. (26) by variable projection: γ1 is linear, so only γ2 is searched.

    The squared error may have several valleys in γ2, so a grid finds the lowest before it is refined.
    """
    # Takes a quarter of a second, which a device that never fits anything would wait for in every round.
    from scipy.optimize import minimize_scalar

    def error(gamma2: float) -> float:
        basis = 1 / (cuts + gamma2)
        return float(np.square(smashed - slope(basis, smashed) * basis).sum())

    grid = np.concatenate(([0.0], np.geomspace(1e-3, 1e3 * len(cuts), 400)))
    best = int(np.argmin([error(gamma2) for gamma2 in grid]))
    low, high = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, len(grid) - 1)])
    found = minimize_scalar(error, bounds=(low, high), method="bounded", options={"xatol": 1e-10})
    gamma2 = min((float(found.x), float(grid[best])), key=error)
    return slope(1 / (cuts + gamma2), smashed), gamma2
