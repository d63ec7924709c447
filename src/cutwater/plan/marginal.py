"""First-order values at a plan: what one more unit of server compute, or one second less on a client, saves.

All clients that share the server finish together at T, so Σ s_k/(T - a_k) = F. Differentiating, with
q_k = f_k² / s_k (share over time on the server),

    dT/dF = -1 / Σ q_k        dT/da_k = q_k / Σ q_k,

which holds while cuts and groups stay as they are.
"""

import numpy as np

from cutwater.base.arrays import Floats

TOGETHER = 1e-6
"""Clients whose latencies differ by less, relatively, finish together."""


def marginal(latencies: Floats, shares: Floats, on_server: Floats) -> tuple[float, Floats]:
    """-dT/dF in seconds per FLOPS, and dT/da_k for every client, from its latency, share and server time."""
    last = latencies >= latencies.max() * (1 - TOGETHER)
    whole = last & (shares == 0)
    effect = np.zeros(len(latencies))
    if whole.any():
        # A client without a share holds the round: the server can't help, and of two such no one alone can.
        if np.count_nonzero(whole) == 1:
            effect[whole] = 1.0
        return 0.0, effect
    q = np.divide(shares, on_server, out=effect, where=last & (on_server > 0))
    return float(1 / q.sum()), q / q.sum()
