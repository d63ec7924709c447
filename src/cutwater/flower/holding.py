"""What a node does with a lease: it trains an order after the other until the server ends the lease."""

import time
from collections.abc import Mapping
from typing import Any

from flwr.app import ConfigRecord, RecordDict

from cutwater.base.errors import CutwaterError, RunError
from cutwater.federate.study import Study
from cutwater.flower.failures import failure
from cutwater.flower.letters import from_letter, to_letter
from cutwater.flower.node import answer, ready
from cutwater.flower.run_config import RunConfig
from cutwater.stream.lease_holder import LeaseHolder
from cutwater.stream.ticket import Ticket

LEASE = "lease"
"""The record of a message that offers one."""


def hold(
    content: RecordDict,
    name: str,
    node: Mapping[str, Any],
    settings: RunConfig,
    *,
    study: Study | None = None,
) -> RecordDict:
    """Hold the lease that a message offers to client ``name``; what is answered to the message afterwards.

    A node of a simulation lends its process to others between two messages, so it declines.
    """
    if "client" not in node and study is None:
        return RecordDict({"declined": ConfigRecord({"reason": "the node shares its process with others"})})
    offer = content.get(LEASE)
    if not isinstance(offer, ConfigRecord) or type(offer.get("most")) is not int:
        raise RunError("the message offers no lease: do server and node run the same release?")
    ticket, most = Ticket.from_text(str(offer.get("ticket"))), offer["most"]
    assert isinstance(most, int)
    study = study or ready(settings)
    sessions = 0
    with LeaseHolder(ticket, client=name, most=most) as lease:
        for letter in lease.letters():
            began = time.monotonic()
            try:
                records = answer(from_letter(letter), name, node, settings, study=study, began=began)
            except CutwaterError as error:
                records = failure(error)
            lease.post(to_letter(records))
            sessions += 1
    return RecordDict({"held": ConfigRecord({"sessions": sessions})})
