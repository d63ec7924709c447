"""Several jobs on one server as a mixed-integer second-order cone program for SCIP, beside scip_oracle.

Every client of job j has its cut, share and seconds on the server as there, and is done by T[j]:

    min θ  s.t.  c_j·T[j] ≤ θ          or          min Σ_j c_j·T[j],          with Σ f ≤ 1 over all clients.
"""

import numpy as np
from pyscipopt import quicksum
from scip_oracle import new_model

from cutwater.plan.latency import before_server, server_work


def scip_jobs_optimum(problems, F, factors, *, summed, seconds=60.0):
    """The optimum, proved by SCIP to a gap of 1e-8."""
    costs = []
    for problem in problems:
        cuts = np.arange(1, problem.layers + 1)[:, None]
        costs.append((before_server(problem, cuts), server_work(problem, cuts)))
    clients = sum(map(len, problems))
    scale = max(float((before + work * clients / F).max()) for before, work in costs)
    most = max(factors)
    model = new_model(seconds)
    theta, shares, ends = model.addVar("theta", lb=0.0), [], []
    for problem, (before, work) in zip(problems, costs, strict=True):
        T = model.addVar(lb=0.0)
        ends.append(T)
        for k in range(len(problem)):
            z = {int(cut): model.addVar(vtype="B") for cut in problem.allowed.cuts(k)}
            share, busy, root = model.addVar(lb=0.0, ub=1.0), model.addVar(lb=0.0), model.addVar(lb=0.0)
            shares.append(share)
            model.addCons(quicksum(z.values()) == 1)
            model.addCons(quicksum(before[cut - 1, k] / scale * z[cut] for cut in z) + busy <= T)
            roots = {cut: float(np.sqrt(work[cut - 1, k] / F / scale)) for cut in z}
            model.addCons(quicksum(roots[cut] * z[cut] for cut in z) == root)
            model.addCons(root * root <= share * busy)
    model.addCons(quicksum(shares) <= 1)
    weighted = [factor / most * T for factor, T in zip(factors, ends, strict=True)]
    if summed:
        model.addCons(quicksum(weighted) <= theta)
    else:
        for each in weighted:
            model.addCons(each <= theta)
    model.setObjective(theta, "minimize")
    model.optimize()
    assert model.getStatus() in ("optimal", "gaplimit"), model.getStatus()
    return float(model.getObjVal()) * scale * most
