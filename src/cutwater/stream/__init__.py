"""The activation stream: smashed data up and gradients down, one gRPC stream a session (Sec. III-B).

Flower carries a round (plans, weights, results); a mini-batch needs milliseconds, so it travels here.
From the wire upwards:

    refusal       why an end says no
    frames        one gRPC message: typed, versioned, checksummed
    tensors       what the plan expects of a message, and tensors as raw bytes
    expectation   the parts of a session, what each carries, and by which codec
    heads         what a message says of its tensors, ahead of their bytes
    messages      a part or a reply as a run of frames, checked before anything is allocated
    pace          no faster than a session's part of a line that others share
    ticket        who may open which session, bound to run, round, client and cut
    tls           the server's own certificate, pinned by the ticket
    limits        caps, keepalive and the gRPC options they become
    step_trainer  whoever trains the server's halves, as the stream sees it
    one_part      what the server does with a part, from its bytes to its reply's
    move          what a session needs to go on at another cut
    entry         who is let in: the client that came first, over one connection at a time
    window        which part may come, and the replies that are kept
    exactly_once  a session's state at the server: every part takes effect exactly once
    journal       a file from which a session goes on after the process that hosted it has died
    noting        what a session writes there
    replay        how it is brought back from there
    conversation  what is said over one connection, from the server's side
    door          closes connections that show no ticket, before they fill the memory
    letters       what the two ends of a lease write to each other, exactly once
    lease         one client's letters at the server, over whatever connections it takes
    service       lets connections in by their tickets, and ends them with a verdict
    office        issues tickets, for a server in this process or in another
    server        the grpc.aio server, in a thread of its own
    lasting       one whose sessions outlive its process
    connection    one connection of a device: the fast call where grpcio has it, else the plain one
    fast_call     driven by the thread that trains, through gRPC's core
    plain_call    by gRPC's public interface
    call_end      what the end of either means
    lookout       tells a partition that is over from a server that takes its time
    session_connections  a session's connections, one after the other
    exchange      parts out and replies in, one at a time, by the thread that trains
    overlap       the same while the device computes, by threads of their own
    client        the blocking end for a device
    middle        the same for one that keeps labels and the model's tail
    lease_holder  a lease at the device
"""

import os

from cutwater.base.extras import STREAM, need

# Whoever knocks with a bad handshake would have gRPC write lines to stderr without end.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
need("the activation stream", STREAM)
