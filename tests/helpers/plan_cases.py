"""Profiles, fleets and problems for the planning tests, made up or drawn by hypothesis."""

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from cutwater.base.errors import PlanError
from cutwater.plan.fleet import Client, Fleet
from cutwater.plan.latency import before_server, server_work
from cutwater.plan.problem import Band, Problem, Server
from cutwater.plan.session import Session
from cutwater.profile.values import Cut, Profile


def make_profile(
    bits, forward, smashed, *, kappa=2.0, gradient=None, memory=None, ruled_out=(), batch_size=32
):
    """A profile from cumulative client-side columns; the server has what the client has not."""
    total = forward[-1]
    gradient = smashed if gradient is None else gradient
    memory = bits if memory is None else memory
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
            gradient_bits=gradient[i],
            client_memory_bits=memory[i],
            ruled_out="tied parameters" if i + 1 in ruled_out else None,
        )
        for i in range(len(bits))
    )
    return Profile("made", "1x8x8", 10, "exact", kappa, batch_size, "sgd", cuts)


def network_like(layers=59, seed=0):
    """A profile shaped like a deep CNN's: parameters late, activations early."""
    rng = np.random.default_rng(seed)
    bits = np.cumsum(rng.uniform(0.5, 1.5, layers) * np.arange(1, layers + 1)) * 4e5
    forward = np.cumsum(rng.uniform(0.3, 1.7, layers)) * 4e6
    smashed = rng.uniform(0.5, 1.5, layers) * 7e5 / (np.arange(1, layers + 1) + 3)
    memory = 2 * bits + np.cumsum(smashed) * 64
    columns = ([int(x) for x in column] for column in (bits, smashed, memory))
    bits, smashed, memory = columns
    return make_profile(bits, [float(x) for x in forward], smashed, kappa=4.7, memory=memory)


def random_fleet(rng, count, *, layers=None, memory=None, asymmetric=False):
    """Clients of the paper's kind; with min_cut, memory limits and asymmetric rates on request."""
    up = rng.uniform(2, 12, count) * 8e6
    down = up * rng.uniform(1, 5, count) if asymmetric else up
    return Fleet.from_columns(
        compute=rng.uniform(50e9, 300e9, count),
        up=up,
        down=down,
        samples=rng.integers(361, 3579, count),
        min_cut=1 if layers is None else rng.integers(1, max(layers // 3, 1) + 1, count),
        memory=np.inf if memory is None else np.where(rng.random(count) < 0.5, np.inf, memory(rng, count)),
    )


def random_problem(rng, profile, count, *, limits=False, per_client=300e9):
    """A random problem of the paper's kind; with limits, memory always fits at least the first cuts."""
    column = np.sort(profile.column("client_memory_bits"))
    least = column[len(profile) // 3]
    fleet = random_fleet(
        rng,
        count,
        layers=len(profile) if limits else None,
        memory=(lambda r, n: r.uniform(least, column[-1] * 1.1, n)) if limits else None,
        asymmetric=limits,
    )
    compute = per_client * count * float(rng.uniform(0.2, 2.0) if limits else 1.0)
    return Problem(profile, fleet, Server(compute), Session(epochs=20))


@st.composite
def profiles(draw, max_layers=6):
    layers = draw(st.integers(1, max_layers))
    amounts = lambda low, high: st.lists(  # noqa: E731
        st.floats(low, high), min_size=layers, max_size=layers
    )
    bits = np.cumsum(draw(amounts(1e3, 1e8)))
    # Some layers cost nothing, such as a flattening: then a cut below L may leave no work to the server.
    free = np.array(draw(st.lists(st.booleans(), min_size=layers, max_size=layers)))
    forward = np.cumsum(np.where(free, 0.0, draw(amounts(1e5, 1e9)))) + 1e5
    smashed = draw(amounts(1e2, 1e7))
    share = draw(st.sampled_from([0.0, 0.25, 1.0]))
    memory = draw(st.permutations([float(x) for x in bits * 3]))
    ruled_out = draw(st.sets(st.integers(1, max(layers - 1, 1)), max_size=2)) - {layers}
    return make_profile(
        [int(x) for x in bits],
        [float(x) for x in forward],
        [int(x) for x in smashed],
        kappa=draw(st.floats(1, 6)),
        gradient=[int(x * share) for x in smashed],
        memory=[int(x) for x in memory],
        ruled_out=ruled_out,
    )


@st.composite
def clients(draw, name, layers):
    limited = draw(st.booleans())
    return Client(
        name=name,
        compute=draw(st.floats(1e9, 1e12)),
        up=draw(st.floats(1e5, 1e9)),
        down=draw(st.floats(1e5, 1e9)),
        samples=draw(st.integers(1, 5000)),
        epochs=draw(st.sampled_from([None, 1, 7])),
        batch_size=draw(st.sampled_from([None, 8, 64])),
        min_cut=draw(st.integers(1, layers)),
        memory=draw(st.floats(1e4, 1e9)) if limited else float("inf"),
        forbidden=frozenset(draw(st.sets(st.integers(1, layers), max_size=2))),
    )


@st.composite
def problems(draw, max_clients=4, max_layers=6):
    profile = draw(profiles(max_layers))
    fleet = [draw(clients(f"c{k}", len(profile))) for k in range(draw(st.integers(1, max_clients)))]
    # Some of them alike, so that finishing times tie.
    if draw(st.booleans()):
        fleet.append(Client(**{**vars(fleet[0]), "name": "twin"}))
    compute = draw(st.one_of(st.just(0.0), st.floats(1e8, 1e14)))
    session = draw(st.sampled_from([Session(epochs=3), Session(steps=20, batch_size=16)]))
    try:
        return Problem(profile, fleet, Server(compute), session)
    except PlanError:
        assume(False)
        raise


def need(problem, k, T):
    """need_k(T) straight from its definition, one client at a time: the reference for the compiled loops."""
    best = np.inf
    for cut in problem.allowed.cuts(k):
        before, work = before_server(problem, cut)[k], server_work(problem, cut)[k]
        if work == 0 and before <= T:
            return 0.0
        if work > 0 and before < T:
            best = min(best, work / (T - before))
    return best


def alone(problem, k):
    """T̃_k: the best latency of client k without any share."""
    cuts = problem.allowed.cuts(k)
    return min(
        (before_server(problem, cut)[k] for cut in cuts if server_work(problem, cut)[k] == 0), default=np.inf
    )


def shared_problem(seed, clients, layers=6):
    """Clients whose links together carry up to a hundred times what the shared ones do."""
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, network_like(layers, seed), clients, limits=bool(seed % 2))
    up, down = 10 ** rng.uniform(-2, 0.1, 2) * (problem.fleet.up.sum(), problem.fleet.down.sum())
    band = Band(*((up, down), (up, np.inf), (np.inf, down))[seed % 3])
    return problem.replace(band=band)


def helped_by_server(seed, clients):
    """Weak devices on shared links that are wide enough for the server to help them."""
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, network_like(30, seed), clients)
    up, down = rng.uniform(0.3, 0.8, 2) * (problem.fleet.up.sum(), problem.fleet.down.sum())
    weak = problem.fleet.replace(compute=problem.fleet.compute / 20)
    return problem.replace(clients=weak, band=Band(*((up, down), (up, np.inf), (np.inf, down))[seed % 3]))
