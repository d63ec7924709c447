"""Algorithm 1 of the paper: cuts by regression and Cardano's formula, shares by T_θ, in turns (Sec. V).

Where the paper's text is wrong or silent, the correction stands beside the step that it belongs to. The
sequence of T is not monotone, as the paper's proof claims: a client without a share gets cut L in the next
turn and can't come back, which may raise T or lead into a cycle. So the best iterate is returned, not the
last.
"""

from hashlib import blake2b
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cutwater.base.arrays import Floats, Ints
from cutwater.base.errors import PlanError
from cutwater.base.kinds import Whole
from cutwater.plan.allocate import allocate
from cutwater.plan.latency import before_server, fitted_latency, latency, latency_alone, quickest, server_work
from cutwater.plan.problem import Problem
from cutwater.plan.value import Iteration, Plan, assemble
from cutwater.profile.fit import Fit, fit

Fitted = Literal["cuts", "all", "none"]

MOST_ITERATIONS = 1_000_000
"""Each is kept in the trace; it converges or cycles long before."""


@np.errstate(over="ignore")  # what a server of next to no compute would take is infinite
def alternating(problem: Problem, /, *, fitted: Fitted = "cuts", iterations: int = 50) -> Plan:
    """Algorithm 1, with the whole trace; ``fitted`` says what is planned on the fitted curves.

    ``"cuts"`` chooses cuts on the curves and shares on the true profile at those cuts; ``"all"`` plans cuts
    and shares on the curves, as the paper does; ``"none"`` searches the true profile for the cuts as well.
    Latency is always that of the true profile.
    """
    if fitted not in ("cuts", "all", "none"):
        raise PlanError(f"fitted is {fitted!r}, but must be 'cuts', 'all' or 'none'")
    Whole(1, MOST_ITERATIONS).check(iterations, "iterations", PlanError)
    if problem.stay.any():
        raise PlanError(
            f"alternating cuts a model once, as the paper does, but the labels of client "
            f"{problem.fleet.names[int(problem.stay.argmax())]!r} stay on the device: use exact"
        )
    curves = fit(problem.profile)
    # Step 1: T̃_k. (Step 2 sorts by it; here nothing depends on the order that clients are listed in.)
    alone = latency_alone(problem)
    # Step 3: everyone starts with an equal share.
    shares = np.full(len(problem), problem.server.compute / len(problem))
    trace: list[Iteration] = []
    seen: dict[bytes, int] = {}
    outcome = f"stopped after {iterations} iterations"
    while len(trace) < iterations:
        cuts = (
            _true_cuts(problem, shares) if fitted == "none" else fitted_cuts(problem, curves, shares)
        )  # step 5
        if (state := blake2b(cuts.tobytes()).digest()) in seen:
            # Shares follow from cuts alone, so cuts that were seen before close a cycle.
            period = len(trace) - seen[state]
            ended = "converged" if period == 1 else f"cycle of {period}"
            outcome = f"{ended} after {len(trace)} iterations"
            break
        seen[state] = len(trace)
        target, shares = _shares(problem, curves if fitted == "all" else None, cuts, alone)  # steps 6 to 8
        # A client with T̃_k ≤ T_θ is on FedAvg (eq. (35)): without a share, its cut is L.
        real = np.where((shares == 0) & problem.allowed.at(problem.layers), problem.layers, cuts)
        done = float(latency(problem, real, shares).max())
        trace.append(Iteration(len(trace) + 1, real, shares, target, done))
    best = min(trace, key=lambda turn: turn.latency)
    return assemble(problem, "alternating", best.cuts, best.shares, outcome=outcome, trace=tuple(trace))


def _shares(problem: Problem, curves: Fit | None, cuts: Ints, alone: Floats) -> tuple[float, Floats]:
    if curves is None:
        before, work = before_server(problem, cuts), server_work(problem, cuts)
    else:
        before = fitted_latency(problem, curves, cuts, np.inf)
        work = np.where(cuts < problem.layers, curves.client_flops(problem.layers - cuts) * problem.work, 0.0)
    return allocate(before, work, alone, problem.server.compute)


def fitted_cuts(problem: Problem, curves: Fit, shares: Floats) -> Ints:
    """Eq. (30): the cut that the regression finds best for each client, given its share.

    Corrections: T_k jumps at l = L, so the stationary point is compared with T_k(L) itself; rounding down can
    lose to rounding up, so both are; and no cut that the client may not use is taken (the nearest allowed
    ones stand in).
    """
    layers = problem.layers
    point = stationary_cut(problem, curves, shares)
    down = np.clip(np.floor(point), 1, max(layers - 1, 1)).astype(np.int64)
    up = np.clip(np.ceil(point), 1, max(layers - 1, 1)).astype(np.int64)
    below, above = _neighbours(problem.allowed.masks)
    of = problem.allowed.of
    whole = np.where(problem.allowed.at(layers), layers, 0)
    candidates = np.stack([below[of, down], above[of, up], above[of, down], below[of, up], whole])
    latencies = fitted_latency(problem, curves, np.maximum(candidates, 1), shares)
    latencies[candidates == 0] = np.inf
    # A client that may not train the whole model and has no share would never be done at any cut.
    stuck = ~np.isfinite(latencies).any(axis=0)
    latencies[:, stuck] = np.where(candidates[:, stuck] > 0, candidates[:, stuck], np.inf)
    chosen: Ints = np.take_along_axis(candidates, latencies.argmin(axis=0)[None], axis=0)[0]
    return chosen


def stationary_cut(problem: Problem, curves: Fit, shares: Floats) -> Floats:
    """Where ∂T_k/∂l = 0 on the fitted curves (Appendix A), by Cardano's formula, kept within [l_min, L].

    With x = l + γ2 and ρ = 1/up + 1/down the condition is x³ + b·x² = d, where
    b = N·β(1+κ)(1/f^C - 1/f^S) / (2αρ) - γ2 and d = N·γ1 / (2α). It has one positive root.
    The formula has no number where a curve is flat (nothing learns, nothing is sent) or where numbers lie too
    far apart; there the point is searched for.
    """
    fleet, work = problem.fleet, problem.work
    per_bit = 1 / fleet.up + 1 / fleet.down
    served = shares > 0
    with np.errstate(all="ignore"):  # for the search, an infinite derivative is as good as any
        slope = 2 * curves.alpha * per_bit
        per_server = np.divide(1.0, shares, out=np.zeros_like(shares), where=served)
        gain = work * curves.beta * (1 + curves.kappa) * (1 / fleet.compute - per_server)
        pull = work * curves.gamma1 * per_bit
        d = work * curves.gamma1 / (2 * curves.alpha)
        cut = positive_root(gain / slope - curves.gamma2, d) - curves.gamma2
        lost = np.flatnonzero(served & ~np.isfinite(cut))
        if lost.size:
            ends = (fleet.min_cut[lost].astype(np.float64), np.full(lost.size, float(problem.layers)))
            cut[lost] = _turning_point(slope[lost], gain[lost], pull[lost], curves.gamma2, *ends)
    # Without a share the derivative is negative all the way: cut L.
    return np.clip(np.where(served, cut, problem.layers), fleet.min_cut, problem.layers)


def _turning_point(
    slope: Floats, gain: Floats, pull: Floats, gamma2: float, low: Floats, high: Floats
) -> Floats:
    """Where T_k stops falling between two cuts, or the end that it falls towards.

    ∂T_k/∂l = slope·l + gain - pull/(l + γ2)² never falls, so halving finds its root. Where T_k is the same at
    all cuts, it is the low end.
    """
    for _ in range(60):
        middle = 0.5 * (low + high)
        falls = slope * middle + gain < pull / np.square(middle + gamma2)
        low, high = np.where(falls, middle, low), np.where(falls, high, middle)
    return high


def positive_root(b: Floats, d: Floats) -> Floats:
    """The positive root of x³ + b·x² = d for d > 0: Cardano's formula, polished by Newton's method.

    Where one coefficient dwarfs the other, the formula cancels down to noise; the simple bounds that the root
    always obeys then give Newton's method its start.
    """
    third = b / 3
    half = d / 2 - third**3
    discriminant = half**2 - third**6
    root = np.sqrt(np.maximum(discriminant, 0.0))
    one = np.cbrt(half + root) + np.cbrt(half - root)
    size = np.abs(third)
    with np.errstate(over="ignore", divide="ignore"):  # a bound that overflows is no bound
        angle = np.divide(half, size**3, out=np.zeros_like(half), where=size > 0)
        by_square = np.sqrt(np.divide(d, b, out=np.full_like(d, np.inf), where=b > 0))
    three = 2 * size * np.cos(np.arccos(np.clip(angle, -1.0, 1.0)) / 3)
    x = np.where(discriminant >= 0, one, three) - third
    high = np.where(b > 0, np.minimum(np.cbrt(d), by_square), np.cbrt(d) + size * 3)
    low = np.where(b > 0, high / 2, np.maximum(np.cbrt(d), size * 3))
    for _ in range(5):
        x = np.clip(x, low, high)
        x = x - (x**3 + b * x**2 - d) / (3 * x**2 + 2 * b * x)
    return x


def _true_cuts(problem: Problem, shares: Floats) -> Ints:
    """The best cut of the true profile for each client, given its share; its first where it is never done."""
    _, cuts, _ = quickest(problem, ((cut, None) for cut in range(1, problem.layers + 1)), shares)
    return np.where(cuts > 0, cuts, problem.allowed.masks.argmax(axis=1)[problem.allowed.of] + 1)


def _neighbours(masks: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """For each pattern and cut l: the nearest allowed cut ≤ l and ≥ l among 1..L-1, or 0 if there is none."""
    split = masks.copy()
    split[:, -1] = False
    numbers = np.arange(1, masks.shape[1] + 1)
    below = np.maximum.accumulate(np.where(split, numbers, 0), axis=1)
    beyond = masks.shape[1] + 1
    above = np.minimum.accumulate(np.where(split, numbers, beyond)[:, ::-1], axis=1)[:, ::-1]
    pad = np.zeros((len(masks), 1), dtype=np.int64)
    return np.hstack([pad, below]), np.hstack([pad, np.where(above == beyond, 0, above)])
