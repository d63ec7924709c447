"""One step, and one session, as they happen: an event simulation that knows no closed form.

A part of a mini-batch arrives at a station, waits until that is free, keeps it busy, and goes on to the next.
The client is one station for forward and backward passes, all forward ones first; the two directions of the
link are stations of their own; half of the round trip passes after each of them, and keeps nobody busy.
"""

import math
from heapq import heappop, heappush

import numpy as np

from cutwater.codec.registry import find_codec
from cutwater.data.batches import batch_sizes
from cutwater.plan.session import Session

CLIENT, UP, SERVER, DOWN = range(4)
ROUTE = (CLIENT, UP, SERVER, DOWN, CLIENT)
BITS = {"float32": 32, "int64": 64}


def overlapped_events(parts, rtt):
    """Seconds until all parts, each given by what it takes at the five places of its route, are through."""
    delay = (0.0, rtt / 2, 0.0, rtt / 2)
    free_at = [0.0] * 4
    arrivals = []
    for number in range(len(parts)):
        heappush(arrivals, (0.0, 0, number))
    end = 0.0
    while arrivals:
        arrived, place, number = heappop(arrivals)
        station = ROUTE[place]
        end = free_at[station] = max(arrived, free_at[station]) + parts[number][place]
        if place < 4:
            heappush(arrivals, (end + delay[place], place + 1, number))
    return max(free_at)


def in_turn_events(parts, rtt):
    """The same where a part sets out when the one before it is through."""
    return sum(overlapped_events([part], rtt) for part in parts)


def sizes_of_parts(samples, micro_batches):
    """Samples of each part of a mini-batch."""
    return [len(part) for part in np.array_split(np.arange(samples), min(micro_batches, samples))]


def message_bits(profile, cut, codec, samples, *, down):
    """What the tensors at a cut take as one message with so many samples."""
    at = profile.cuts[cut - 1]
    if codec == "fp32":
        return (at.gradient_bits if down else at.smashed_bits) * samples
    total = 0
    for one in at.crossing:
        if down and not one.gradient:
            continue
        if one.dtype == "float32":
            total += find_codec(codec).size(one.shape).bits(samples)
        else:
            total += BITS[one.dtype] * int(np.prod(one.shape)) * samples
    return total


def up_to_the_next(number):
    """Of 64 values between each power of two and its double."""
    step = 2.0 ** (math.floor(math.log2(number)) - 6)
    return math.ceil(number / step) * step


def once(profile, client, session, cut, wire):
    """Of a session's rows, the part that goes up where each goes up once; None where all do, each time."""
    at = profile.cuts[cut - 1]
    if not at.repeats or wire.schedule == "overlapped":
        return None
    own = client if client.epochs is not None or client.steps is not None else session
    drawn = (own.steps or 0) * (client.batch_size or session.batch_size)
    new = min(up_to_the_next(client.samples / drawn), 1.0) if own.steps else 1 / own.epochs
    one, two = (message_bits(profile, cut, wire.up, samples, down=False) for samples in (1, 2))
    return new if (two - one) * (1 - new) > 32 else None


def up_bits(profile, client, session, cut, wire, samples, *, first):
    """What a part sends up, in the first pass over the samples or in a later one."""
    full = message_bits(profile, cut, wire.up, samples, down=False)
    new = once(profile, client, session, cut, wire)
    if new is None:
        return full
    if client.steps or (client.epochs is None and session.steps):
        one, two = (message_bits(profile, cut, wire.up, count, down=False) for count in (1, 2))
        return full - samples * ((two - one) * (1 - new) - 32)
    return (full if first else 0) + 32 * samples


def part_seconds(profile, client, session, wire, cut, samples, share, *, first):
    """What a part of so many samples takes at each place of its route."""
    at = profile.cuts[cut - 1]
    on_server = samples * (at.server_forward_flops + at.server_backward_flops)
    return (
        samples * at.client_forward_flops / client.compute,
        up_bits(profile, client, session, cut, wire, samples, first=first) / client.up,
        on_server / share if on_server else 0.0,
        message_bits(profile, cut, wire.down, samples, down=True) / client.down,
        samples * at.client_backward_flops / client.compute,
    )


def model_seconds(profile, client, cut):
    """The client's half down and up; weights that do not learn only down, and only those it does not hold."""
    at = profile.cuts[cut - 1]
    held = profile.cuts[min(client.holds, len(profile)) - 1].frozen_bits if client.holds else 0
    moved = at.client_bits + at.buffer_bits
    return (moved + max(at.frozen_bits - held, 0)) / client.down + moved / client.up


def mini_batches(client, session):
    """How many samples each mini-batch of the client's session has, and whether it is of the first pass."""
    own = client if client.epochs is not None or client.steps is not None else session
    size = client.batch_size or session.batch_size
    sizes = batch_sizes(client.samples, Session(batch_size=size, epochs=own.epochs, steps=own.steps))
    return [(samples, place < len(sizes) // (own.epochs or 1)) for place, samples in enumerate(sizes)]


def session_events(problem, k, cut, wire, share):
    """Seconds of client k's session, from the model's way down to its way up."""
    profile, client, session = problem.profile, problem.fleet[k], problem.session
    total = model_seconds(profile, client, cut)
    step = overlapped_events if wire.schedule == "overlapped" else in_turn_events
    for samples, first in mini_batches(client, session):
        if cut == len(profile):
            at = profile.cuts[-1]
            total += samples * (at.client_forward_flops + at.client_backward_flops) / client.compute
            continue
        sizes = sizes_of_parts(samples, session.micro_batches)
        parts = [
            part_seconds(profile, client, session, wire, cut, size, share, first=first) for size in sizes
        ]
        total += step(parts, client.rtt)
    return total
