"""Which cuts can be a client's fastest. Needs no torch."""

from cutwater.profile.values import Cut, Profile


def worth_choosing(profile: Profile) -> tuple[int, ...]:
    """The cuts l that no other cut matches with as few bits of w^C, FLOPs of the client, bits of S and of G.

    Whatever its rate, a client whose share of the server is at least as fast as the client itself has its
    lowest latency (eq. (20)) at one of these, because T_k then grows with each of the four. Where the server
    is the slower side, or its compute is scarce among clients, another cut can be the better one. L is always
    among them: it alone needs no server and sends nothing in a mini-batch.
    """
    whole = profile.cuts[-1]
    allowed = [cut for cut in profile.cuts[:-1] if cut.ruled_out is None]
    best = [cut.cut for cut in allowed if not any(_beats(other, cut) for other in allowed)]
    return (*best, whole.cut)


def _amounts(cut: Cut) -> tuple[float, ...]:
    return (cut.client_bits, cut.client_flops, cut.smashed_bits, cut.gradient_bits)


def _beats(other: Cut, cut: Cut) -> bool:
    """No worse in any amount, and better in one; of equals, the earlier is kept."""
    if other.cut == cut.cut:
        return False
    theirs, ours = _amounts(other), _amounts(cut)
    no_worse = all(a <= b for a, b in zip(theirs, ours, strict=True))
    return no_worse and (theirs != ours or other.cut < cut.cut)
