"""Split sessions on real devices: Flower carries the rounds, the activation stream the mini-batches.

settings     what a run config says
study        the study that follows from it, the same at both ends
wire         orders, weights and reports as Flower records, checked on arrival
throttle     emulation of slow devices and links, for fleets on one machine
node         one session at a device
answer       what a node answers to an order
client_app   the ClientApp
hosting      the server's halves behind the stream, run by promised shares
measured     what a round took, by the stopwatches of both ends
orders       what a node is told to train, with a ticket for its session
updates      what nodes send back: an update that counts, or why it does not
roster       which node is which client
rounds       a round over Flower's grid: plan, hand out, collect, judge, aggregate
server_app   the ServerApp
scaffold     a Flower app around a scenario
credentials  certificates and keys of a fleet on one machine
processes    what such a fleet consists of, and its end
fleet        SuperLink and SuperNodes on loopback
audit        predicted against measured
echo         how fast a link is
"""

from importlib.util import find_spec

from cutwater.base.errors import EngineError


def need_flower() -> None:
    """Say in one sentence what is missing, before anything is started."""
    missing = [name for name in ("flwr", "ray", "cryptography", "grpc") if find_spec(name) is None]
    if missing:
        raise EngineError(
            f"deployment needs {', '.join(missing)}: install it with  pip install 'cutwater[flower]'"
        )
