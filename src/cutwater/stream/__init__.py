"""The activation stream: smashed data up and gradients down, one gRPC stream a session (Sec. III-B).

Flower carries a round (plans, weights, results); a mini-batch needs milliseconds, so it travels here.
From the wire upwards:

    frames        one gRPC message: typed, versioned, checksummed
    tensors       what the plan expects of a message, and tensors as raw bytes
    expectation   the parts of a session, what each carries, and by which codec
    messages      a part or a reply as a run of frames, checked before anything is allocated
    ticket        who may open which session, bound to run, round, client and cut
    tls           the server's own certificate, pinned by the ticket
    limits        caps, keepalive and the gRPC options they become
    step_trainer  whoever trains the server's halves, as the stream sees it
    one_part      what the server does with a part, from its bytes to its reply's
    window        which part may come, and the replies that are kept
    exactly_once  a session's state at the server: every part takes effect exactly once
    conversation  what is said over one connection, from the server's side
    service       lets connections in by their tickets, and ends them with a verdict
    server        the grpc.aio server, in a thread of its own
    connection    one connection of a device: the fast call where grpcio has it, else the plain one
    fast_call     driven by the thread that trains, through gRPC's core
    plain_call    by gRPC's public interface
    call_end      what the end of either means
    line          a session's connections, one after the other
    exchange      parts out and replies in, one at a time, by the thread that trains
    overlap       the same while the device computes, by threads of their own
    client        the blocking end for a device
"""

from importlib.util import find_spec

from cutwater.base.errors import EngineError

_MISSING = [name for name in ("cryptography", "grpc", "xxhash") if find_spec(name) is None]
if _MISSING:
    raise EngineError(
        f"the activation stream needs {', '.join(_MISSING)}: install it with  pip install 'cutwater[flower]'"
    )
