"""The paper's problem (21) as a mixed-integer second-order cone program for SCIP: an independent optimum.

Binary z[k, l] picks the cut, f[k] is the share as a fraction of the server, τ[k] the seconds on the server:

    min T   s.t.  Σ_l z[k, l] = 1,  Σ_k f[k] ≤ 1,  Σ_l a_k(l)·z[k, l] + τ[k] ≤ T,
                  (Σ_l √(s_k(l)/F)·z[k, l])² ≤ f[k]·τ[k].

The cone is exact because only one z[k, l] is 1. Times are scaled by an upper bound, so that T is near 1.
"""

import numpy as np
from pyscipopt import Model, quicksum

from cutwater.plan.latency import before_server, server_work
from cutwater.plan.problem import Problem


def new_model(seconds: float) -> Model:
    """An empty program, to be solved to a gap of 1e-8 within so many seconds."""
    model = Model()
    model.hideOutput()
    for parameter, value in (("numerics/feastol", 1e-9), ("limits/gap", 1e-8), ("limits/time", seconds)):
        model.setParam(parameter, value)
    return model


def scip_optimum(problem: Problem, seconds: float = 60.0) -> float:
    """The optimal round latency, proved by SCIP to a gap of 1e-8."""
    cuts = np.arange(1, problem.layers + 1)[:, None]
    before, work = before_server(problem, cuts), server_work(problem, cuts)
    scale = float((before + work * len(problem) / problem.server.compute).max())
    model = new_model(seconds)
    T = model.addVar("T", lb=0.0)
    shares = []
    for k in range(len(problem)):
        allowed = problem.allowed.cuts(k)
        z = {int(cut): model.addVar(vtype="B") for cut in allowed}
        share, busy, root = model.addVar(lb=0.0, ub=1.0), model.addVar(lb=0.0), model.addVar(lb=0.0)
        shares.append(share)
        model.addCons(quicksum(z.values()) == 1)
        model.addCons(quicksum(before[cut - 1, k] / scale * z[cut] for cut in z) + busy <= T)
        roots = {cut: float(np.sqrt(work[cut - 1, k] / problem.server.compute / scale)) for cut in z}
        model.addCons(quicksum(roots[cut] * z[cut] for cut in z) == root)
        model.addCons(root * root <= share * busy)
    model.addCons(quicksum(shares) <= 1)
    model.setObjective(T, "minimize")
    model.optimize()
    assert model.getStatus() in ("optimal", "gaplimit"), model.getStatus()
    return float(model.getObjVal()) * scale
