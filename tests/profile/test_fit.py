"""The regression finds the curves it assumes, and says how far a profile is from them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutwater.profile.fit import determination, fit
from cutwater.profile.values import Cut, Profile


def profile(bits, forward, smashed, kappa=2.0):
    total = forward[-1]
    cuts = tuple(
        Cut(
            cut=i + 1,
            name=f"layer{i + 1}",
            stage="body",
            client_bits=bits[i],
            client_forward_flops=forward[i],
            client_backward_flops=kappa * forward[i],
            server_forward_flops=total - forward[i],
            server_backward_flops=kappa * (total - forward[i]),
            smashed_bits=smashed[i],
            gradient_bits=smashed[i],
            client_memory_bits=0,
        )
        for i in range(len(bits))
    )
    return Profile("made", "1x8x8", 10, "exact", kappa, 32, "sgd", cuts)


@settings(deadline=None, max_examples=50)
@given(
    alpha=st.floats(1, 1e6),
    beta=st.floats(1e3, 1e9),
    gamma1=st.floats(1e3, 1e7),
    gamma2=st.floats(0, 40),
    kappa=st.floats(1, 6),
    layers=st.integers(3, 80),
)
def test_curves_of_the_assumed_shape_are_recovered(alpha, beta, gamma1, gamma2, kappa, layers):
    l = np.arange(1, layers + 1)  # noqa: E741 - the paper's symbol
    found = fit(profile(alpha * l**2, beta * l, gamma1 / (l + gamma2), kappa))
    assert found.alpha == pytest.approx(alpha, rel=1e-9)
    assert found.beta == pytest.approx(beta, rel=1e-9)
    assert found.smashed_bits(l) == pytest.approx(gamma1 / (l + gamma2), rel=1e-5)
    assert found.client_flops(l) == pytest.approx(beta * l * (1 + kappa), rel=1e-9)
    assert found.client_bits(l) == pytest.approx(alpha * l**2, rel=1e-9)
    assert min(found.r2_model, found.r2_compute, found.r2_smashed) > 1 - 1e-6


@settings(deadline=None, max_examples=30)
@given(smashed=st.lists(st.integers(1, 10**6), min_size=3, max_size=60), trial=st.floats(0, 200))
def test_no_other_hyperbola_is_closer(smashed, trial):
    l = np.arange(1, len(smashed) + 1)  # noqa: E741
    y = np.array(smashed, dtype=float)
    found = fit(profile(l**2, l, y))
    basis = 1 / (l + trial)
    rival = basis * (basis @ y) / (basis @ basis)
    assert np.square(y - found.smashed_bits(l)).sum() <= np.square(y - rival).sum() * (1 + 1e-6) + 1e-6
    assert found.gamma2 >= 0


def test_determination_is_one_for_a_perfect_prediction_and_zero_for_the_mean():
    true = np.array([1.0, 2.0, 4.0])
    assert determination(true, true) == 1
    assert determination(true, np.full(3, true.mean())) == pytest.approx(0)
    assert determination(np.ones(3), np.zeros(3)) == 0
