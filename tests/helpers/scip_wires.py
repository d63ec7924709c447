"""Cuts and wires as a mixed-integer second-order cone program for SCIP, beside the one of scip_oracle.

With x = 1/f, an option of client k takes the longest of several lines α + β·x: an overlapped step those of
all paths from the first part at the first station to the last part at the last, one part or one station at a
time, and that of the client, which computes all parts forward and then all of them backward. Each option o
has a binary z[o], its own share f[o] and its own x[o], all 0 where it is not taken:

    min T   s.t.  Σ_o z[o] = 1,  Σ f[o] ≤ 1,  z[o]² ≤ f[o]·x[o],
                  y[o, b] ≥ α·z[o] + β·x[o] for every line of mini-batch b,  Σ_o Σ_b y[o, b] ≤ T.
"""

from itertools import combinations

from pyscipopt import quicksum
from scip_oracle import new_model
from wire_oracle import options

_SERVER = 2


def _paths(parts, rtt):
    """(α, β) of every path: at each of five stations it passes some parts in order, on from where it is."""
    last = len(parts) - 1
    for bars in combinations(range(last + 4), 4):
        # Where the path goes on to the next station, out of all its moves to a next part or station.
        changes = [0, *(bar - i for i, bar in enumerate(bars)), last]
        alpha, beta = rtt, 0.0
        for station in range(5):
            spent = sum(parts[p][station] for p in range(changes[station], changes[station + 1] + 1))
            alpha, beta = (alpha, beta + spent) if station == _SERVER else (alpha + spent, beta)
        yield alpha, beta


def _lines(parts, rtt, *, overlapped):
    """All lines of a mini-batch but those that lie below another."""
    if not overlapped:
        return [
            (
                sum(sum(part) - part[_SERVER] + rtt for part in parts),
                sum(part[_SERVER] for part in parts),
            )
        ]
    lines = [(sum(part[0] + part[4] for part in parts), 0.0), *_paths(parts, rtt)]
    lines.sort(reverse=True)
    kept = []
    for alpha, beta in lines:
        if not kept or beta > kept[-1][1]:
            kept.append((alpha, beta))
    return kept


def scip_wires_optimum(problem, seconds=60.0):
    """The optimal round latency over cuts and wires, proved by SCIP to a gap of 1e-8."""
    F = problem.server.compute
    laid_out = [[_option(option, F) for option in each] for each in options(problem)]
    scale = max(min(_at(option, len(problem)) for option in each) for each in laid_out)
    model = new_model(seconds)
    T = model.addVar("T", lb=0.0)
    shares = []
    for each in laid_out:
        taken, spent = [], []
        for fixed, batches in each:
            z = model.addVar(vtype="B")
            taken.append(z)
            spent.append(fixed / scale * z)
            x = None
            if any(beta > 0 for _, lines in batches for _, beta in lines):
                x, share = model.addVar(lb=0.0), model.addVar(lb=0.0, ub=1.0)
                shares.append(share)
                model.addCons(z * z <= share * x)
            for count, lines in batches:
                y = model.addVar(lb=0.0)
                spent.append(y)
                for alpha, beta in lines:
                    line = count * alpha / scale * z + (count * beta / scale * x if beta > 0 else 0)
                    model.addCons(y >= line)
        model.addCons(quicksum(taken) == 1)
        model.addCons(quicksum(spent) <= T)
    if shares:
        model.addCons(quicksum(shares) <= 1)
    model.setObjective(T, "minimize")
    model.optimize()
    assert model.getStatus() in ("optimal", "gaplimit"), model.getStatus()
    return float(model.getObjVal()) * scale


def _option(option, F):
    """Seconds beside all steps, and every size of mini-batch with its count and lines; x in units of 1/F."""
    _, _, fixed, rtt, overlapped, batches, parts = option
    found = []
    for count, first, end in batches.tolist():
        rows = [(*row[:2], row[2] / F, *row[3:]) for row in parts[first:end].tolist()]
        found.append((count, _lines(rows, rtt, overlapped=overlapped)))
    return fixed, found


def _at(option, x):
    fixed, batches = option
    return fixed + sum(count * max(alpha + beta * x for alpha, beta in lines) for count, lines in batches)
