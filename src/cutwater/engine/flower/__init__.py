"""Split sessions on real devices: Flower carries the rounds, the activation stream the mini-batches.

settings     what a run config says, and the study that follows from it
wire         orders, weights and reports as Flower records, checked on arrival
throttle     emulation of slow devices and links, for fleets on one machine
node         one session at a device
client_app   the ClientApp
hosting      the server's halves behind the stream, run by promised shares
roster       which node is which client
rounds       a round over Flower's grid: plan, hand out, collect, judge, aggregate
server_app   the ServerApp
scaffold     a Flower app around a scenario
processes    what a fleet on one machine consists of, and its end
fleet        SuperLink and SuperNodes on loopback
audit        predicted against measured
"""

from importlib.util import find_spec

from cutwater.errors import EngineError


def need_flower() -> None:
    """Say in one sentence what is missing, before anything is started."""
    missing = [name for name in ("flwr", "ray", "cryptography", "grpc") if find_spec(name) is None]
    if missing:
        raise EngineError(
            f"deployment needs {', '.join(missing)}: install it with  pip install 'cutwater[flower]'"
        )
