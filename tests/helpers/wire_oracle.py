"""The optimum over cuts and wires by trying everything: every combination of all clients' options.

What a session takes with a share comes from when each part arrives where and finds its station free; the
share that has it done by T, and the T of a combination, come from bisection. Nothing is shared with the
planner, not even which options a client may use.
"""

from collections import Counter

import numpy as np
from numba import njit
from step_events import message_bits, mini_batches, model_seconds, sizes_of_parts, up_bits


def options(problem):
    """For each client its options, each a cut, a wire's place and what the loops below need of them."""
    return [
        [
            (cut, place, *_laid_out(problem, client, cut, wire))
            for cut in range(1, problem.layers + 1)
            for place, wire in enumerate(problem.options)
            if (cut < problem.layers or place == 0) and may(problem, client, cut, wire)
        ]
        for client in problem.fleet
    ]


def may(problem, client, cut, wire):
    """Whether a client may use a cut by a wire."""
    at, whole = problem.profile.cuts[cut - 1], cut == problem.layers
    if cut < client.min_cut or cut in client.forbidden or at.ruled_out:
        return False
    if not whole and client.codecs and not {wire.up, wire.down} <= client.codecs:
        return False
    if not whole and client.schedules and wire.schedule not in client.schedules:
        return False
    return _memory(problem, client, cut, wire) <= client.memory


def _memory(problem, client, cut, wire):
    """Bits held at most: what stays (for plain SGD weights and gradients), activations, coded copies."""
    profile, at = problem.profile, problem.profile.cuts[cut - 1]
    stays = min(at.client_memory_bits, 2 * at.client_bits)
    each = (at.client_memory_bits - stays) / profile.batch_size
    batch = client.batch_size or problem.session.batch_size
    sizes = sizes_of_parts(batch, problem.session.micro_batches)
    if wire.schedule == "in turn" or cut == problem.layers:
        return stays + each * max(sizes)
    if wire.up == "fp32":
        return stays + each * batch
    copies = sum(message_bits(profile, cut, wire.up, size, down=False) for size in sizes)
    return stays + each * batch + copies


def _laid_out(problem, client, cut, wire):
    """Seconds whatever the steps take, round trip, whether parts overlap, mini-batches, parts."""
    profile, at = problem.profile, problem.profile.cuts[cut - 1]
    fixed = model_seconds(profile, client, cut)
    sizes = Counter(mini_batches(client, problem.session))
    if cut == problem.layers:
        flops = at.client_forward_flops + at.client_backward_flops
        fixed += sum(size * count for (size, _), count in sizes.items()) * flops / client.compute
        sizes = {}
    batches, parts = [], []
    for (size, first), count in sizes.items():
        of_it = sizes_of_parts(size, problem.session.micro_batches)
        batches.append((count, len(parts), len(parts) + len(of_it)))
        parts += [_part(problem, client, wire, cut, samples, first) for samples in of_it]
    return (
        fixed,
        client.rtt,
        wire.schedule == "overlapped",
        np.array(batches, dtype=np.int64).reshape(-1, 3),
        np.array(parts, dtype=np.float64).reshape(-1, 5),
    )


def _part(problem, client, wire, cut, samples, first):
    """Seconds at each place of a part's route; at the server FLOPs."""
    profile, at = problem.profile, problem.profile.cuts[cut - 1]
    return (
        samples * at.client_forward_flops / client.compute,
        up_bits(profile, client, problem.session, cut, wire, samples, first=first) / client.up,
        samples * (at.server_forward_flops + at.server_backward_flops),
        message_bits(profile, cut, wire.down, samples, down=True) / client.down,
        samples * at.client_backward_flops / client.compute,
    )


@njit
def seconds(share, fixed, rtt, overlapped, batches, parts):
    """A session with a share (which may be 0 where the server has nothing to do)."""
    total = fixed
    for b in range(batches.shape[0]):
        first, end = batches[b, 1], batches[b, 2]
        answered = np.zeros(end - first)
        client = up = server = down = 0.0
        through = 0.0
        for p in range(first, end):
            if not overlapped:
                client = through
            client += parts[p, 0]
            up = max(up, client) + parts[p, 1]
            work = parts[p, 2]
            server = max(server, up + rtt / 2) + (work / share if work > 0 else 0.0)
            down = max(down, server) + parts[p, 3]
            answered[p - first] = down + rtt / 2
            if not overlapped:
                through = answered[p - first] + parts[p, 4]
        if overlapped:
            through = client
            for p in range(first, end):
                through = max(through, answered[p - first]) + parts[p, 4]
        total += batches[b, 0] * through
    return total


@njit
def share_for(T, F, fixed, rtt, overlapped, batches, parts):
    """The smallest share of F that has a session done by T, by bisection on 1/share; infinite if none is."""
    work = 0.0
    for b in range(batches.shape[0]):
        for p in range(batches[b, 1], batches[b, 2]):
            work += batches[b, 0] * parts[p, 2]
    if work == 0.0:
        return 0.0 if seconds(1.0, fixed, rtt, overlapped, batches, parts) <= T else np.inf
    if F <= 0.0 or seconds(F, fixed, rtt, overlapped, batches, parts) > T:
        return np.inf
    low, high = 1 / F, T / work  # by then the server alone would take all the time there is
    while high - low > 1e-15 * low:
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        if seconds(1 / middle, fixed, rtt, overlapped, batches, parts) <= T:
            low = middle
        else:
            high = middle
    return 1 / low


def feasible(problem, T):
    """Whether any plan has everyone done by T."""
    F = problem.server.compute
    return sum(min(share_for(T, F, *option[2:]) for option in each) for each in options(problem)) <= F


def optimum(problem):
    """The smallest T of all combinations."""
    each = options(problem)
    F, best = problem.server.compute, _start(problem, each)
    place = [0] * len(each)
    while True:
        chosen = [each[k][i][2:] for k, i in enumerate(place)]
        if _fits(best * (1 - 1e-13), F, chosen):
            best = _of_combination(best, F, chosen)
        for k in range(len(place)):
            place[k] = (place[k] + 1) % len(each[k])
            if place[k]:
                break
        else:
            return best


def _start(problem, each):
    """Some T that all are done by: with equal shares."""
    equal = problem.server.compute / len(problem)
    return 1.01 * max(min(seconds(equal, *option[2:]) for option in of_one) for of_one in each)


def _fits(T, F, chosen):
    used = 0.0
    for option in chosen:
        used += share_for(T, F, *option)
        if used > F:
            return False
    return True


def _of_combination(high, F, chosen):
    low = 0.0
    while high - low > 1e-13 * high:
        middle = 0.5 * (low + high)
        if _fits(middle, F, chosen):
            high = middle
        else:
            low = middle
    return high
