"""The exact planner against SCIP, which knows nothing of how it works."""

import numpy as np
import pytest
from plan_cases import network_like, random_problem
from scip_oracle import scip_optimum
from scip_wires import scip_wires_optimum
from wire_cases import random_wire_problem

from cutwater.plan.exact import exact

# Forty quick ones on short models, ten on 59 cuts.
CASES = [(seed, 2 + seed % 11, 59 if seed % 5 == 0 else 12) for seed in range(50)]


@pytest.mark.parametrize(("seed", "count", "layers"), CASES)
def test_exact_equals_scip_with_limits_and_asymmetric_rates(seed, count, layers):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, network_like(layers, seed), count, limits=True)
    assert exact(problem).latency == pytest.approx(scip_optimum(problem), rel=1e-6)


@pytest.mark.parametrize(("seed", "count"), [(seed, 2 + seed % 3) for seed in range(20)])
def test_exact_over_cuts_and_wires_equals_scip(seed, count):
    problem = random_wire_problem(np.random.default_rng(500 + seed), count, codecs=2)
    assert exact(problem).latency == pytest.approx(scip_wires_optimum(problem), rel=1e-6)
