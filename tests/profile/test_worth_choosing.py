"""The cuts that can be a client's fastest."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cutwater.profile.values import Cut, Profile, worth_choosing

AMOUNTS = st.integers(0, 6)


def make(rows, ruled_out=()):
    """A profile from (client bits, client FLOPs, smashed bits) for each cut."""
    total = rows[-1][1]
    cuts = tuple(
        Cut(
            cut=number,
            name=f"layer_{number}",
            stage="layer",
            client_bits=bits,
            client_forward_flops=flops,
            client_backward_flops=0,
            server_forward_flops=total - flops,
            server_backward_flops=0,
            smashed_bits=smashed,
            gradient_bits=smashed,
            client_memory_bits=0,
            ruled_out="tied" if number in ruled_out else None,
        )
        for number, (bits, flops, smashed) in enumerate(rows, start=1)
    )
    return Profile("made up", "1", 2, "exact", 0.0, 1, "sgd", cuts)


@st.composite
def profiles(draw):
    """Client bits and FLOPs grow along the cuts, as they do in any model; smashed data is whatever it is."""
    depth = draw(st.integers(1, 9))
    bits = np.cumsum(draw(st.lists(AMOUNTS, min_size=depth, max_size=depth)))
    flops = np.cumsum(draw(st.lists(AMOUNTS, min_size=depth, max_size=depth)))
    smashed = draw(st.lists(st.integers(1, 9), min_size=depth, max_size=depth))
    ruled_out = draw(st.sets(st.integers(1, max(depth - 1, 1)))) - {depth}
    rows = [(int(b), int(f), s) for b, f, s in zip(bits, flops, smashed, strict=True)]
    return make(rows, ruled_out)


def latency(profile, cut, rate, client, server, samples):
    """T_k(l) by eq. (20)."""
    row, last = profile.cuts[cut - 1], cut == len(profile)
    compute = row.client_forward_flops / client + (0 if last else row.server_forward_flops / server)
    sent = 0 if last else 2 * row.smashed_bits / rate
    return 2 * row.client_bits / rate + samples * (compute + sent)


@settings(deadline=None)
@given(
    profile=profiles(),
    rate=st.floats(0.01, 100),
    client=st.floats(0.01, 100),
    faster=st.floats(1, 100),
    samples=st.integers(1, 1000),
)
def test_the_fastest_cut_is_marked_wherever_the_server_is_no_slower(profile, rate, client, faster, samples):
    allowed = [cut.cut for cut in profile.cuts if cut.ruled_out is None]
    times = {cut: latency(profile, cut, rate, client, client * faster, samples) for cut in allowed}
    marked = worth_choosing(profile)
    assert min(times[cut] for cut in marked) <= min(times.values()) * (1 + 1e-12)


@given(profile=profiles())
def test_no_marked_cut_is_matched_by_another(profile):
    def amounts(cut):
        row = profile.cuts[cut - 1]
        return (row.client_bits, row.client_forward_flops, row.smashed_bits)

    marked = worth_choosing(profile)
    for cut in marked[:-1]:
        rivals = [other.cut for other in profile.cuts[:-1] if other.ruled_out is None and other.cut != cut]
        beaten = [r for r in rivals if all(a <= b for a, b in zip(amounts(r), amounts(cut), strict=True))]
        assert all(amounts(rival) == amounts(cut) and rival > cut for rival in beaten)
        assert profile.cuts[cut - 1].ruled_out is None
    assert marked[-1] == len(profile)


def test_within_a_stage_of_equal_width_only_the_first_cut_is_marked():
    assert worth_choosing(make([(1, 1, 9), (2, 2, 9), (3, 3, 4), (4, 4, 4), (5, 5, 1)])) == (1, 3, 5)


def test_a_cut_that_is_ruled_out_makes_room_for_the_next():
    rows = [(1, 1, 9), (2, 2, 9), (3, 3, 4)]
    assert worth_choosing(make(rows, ruled_out={1})) == (2, 3)
