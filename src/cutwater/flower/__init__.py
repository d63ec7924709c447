"""Split sessions on real devices: Flower carries the rounds, the activation stream the mini-batches.

run_config     what a run config says
shared_study   the study that follows from it, the same at both ends
wire           orders, weights and reports as Flower records, checked on arrival
fixed_weights  weights that do not learn, kept at a device
node           what a node answers to an order
client_app     the ClientApp
orders         what a node is told to train, with a ticket for its session
updates        what nodes send back: an update that counts, or why it does not
replies        looking for replies with a few threads
roster         which node is which client
executor       hands a round's orders to nodes and yields what comes back
session_process  the process that hosts sessions, where they are to outlive it
server_app     the ServerApp
scaffold       a Flower app around a scenario
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
