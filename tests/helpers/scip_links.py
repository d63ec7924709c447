"""Shared links as a mixed-integer second-order cone program for SCIP, beside scip_oracle.

Beside the share of the server, each client has a rate up and a rate down, and each of the three has a cone:

    min T  s.t.  Σ_l z[k, l] = 1,  Σ_k x[k, i] ≤ 1,  x[k, i] ≤ most[k, i],
                 Σ_l c_k(l)·z[k, l] + Σ_i τ[k, i] ≤ T,  (Σ_l √w_k(l, i)·z[k, l])² ≤ x[k, i]·τ[k, i].
"""

import numpy as np
from pyscipopt import quicksum
from scip_oracle import new_model

from cutwater.plan.latency import latency, server_work, session_bits


def scip_links_optimum(problem, seconds=60.0):
    """The optimal round latency, proved by SCIP to a gap of 1e-8."""
    cuts, fleet = np.arange(1, problem.layers + 1)[:, None], problem.fleet
    endless = problem.at_rates(np.full(len(problem), 1e29), np.full(len(problem), 1e29))
    fixed = latency(endless, cuts, np.inf)
    amounts = [server_work(problem, cuts), *session_bits(problem, cuts)]
    # A link that is not shared is one of which there is enough for all.
    there = [
        problem.server.compute,
        min(problem.band.up, float(fleet.up.sum())),
        min(problem.band.down, float(fleet.down.sum())),
    ]
    work = [each / whole for each, whole in zip(amounts, there, strict=True)]
    most = [np.ones(len(problem)), fleet.up / there[1], fleet.down / there[2]]
    equal = fixed + sum(w / np.minimum(m, 1 / len(problem)) for w, m in zip(work, most, strict=True))
    scale = float(equal.min(axis=0).max())
    model = new_model(seconds)
    T, used = model.addVar("T", lb=0.0), ([], [], [])
    for k in range(len(problem)):
        z = {int(cut): model.addVar(vtype="B") for cut in problem.allowed.cuts(k)}
        model.addCons(quicksum(z.values()) == 1)
        spent = [fixed[cut - 1, k] / scale * z[cut] for cut in z]
        for i in range(3):
            x = model.addVar(lb=0.0, ub=min(float(most[i][k]), 1.0))
            tau, root = model.addVar(lb=0.0), model.addVar(lb=0.0)
            used[i].append(x)
            spent.append(tau)
            roots = {cut: float(np.sqrt(work[i][cut - 1, k] / scale)) for cut in z}
            model.addCons(quicksum(roots[cut] * z[cut] for cut in z) == root)
            model.addCons(root * root <= x * tau)
        model.addCons(quicksum(spent) <= T)
    for each in used:
        model.addCons(quicksum(each) <= 1)
    model.setObjective(T, "minimize")
    model.optimize()
    assert model.getStatus() in ("optimal", "gaplimit"), model.getStatus()
    return float(model.getObjVal()) * scale
