"""Split sessions on real devices: Flower carries the rounds, the activation stream the mini-batches.

run_config     what a run config says
shared_study   the study that follows from it, the same at both ends
wire           orders, weights and reports as Flower records, checked on arrival
letters        the same as letters of a lease
failures       what a node sends when it can't do what it was asked to
fixed_weights  weights that do not learn, kept at a device
node           what a node answers to an order, and does with a lease
client_app     the ClientApp
orders         what a node is told to train, with a ticket for its session
updates        what nodes send back: an update that counts, or why it does not
clocks         what a device says it took, held against the server's own clock
patient_grid   a grid that bears with a SuperLink which is too busy for a moment
replies        looking for replies with a few threads
roster         which node is which client
leases         which node holds a lease
watched        a running session as the server's clock has it
adapting       a round that adapts while it runs
resharing      gives its sessions the shares, and the cuts, that follow
executor       hands a round's orders to nodes and yields what comes back
session_process  the process that hosts sessions, where they are to outlive it
server_app     the ServerApp
scaffold       a Flower app around a scenario
"""

from cutwater.base.extras import FLOWER, need


def need_flower() -> None:
    """Say in one sentence what is missing, before anything is started."""
    need("deployment", FLOWER)
