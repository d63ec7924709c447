"""The ClientApp: says who it is, and trains: one session a message, or round after round by a lease.

A node's config names its client (``client="c3"``); in simulation the partition-id counts through the fleet.
Its data is its part of the scenario's, or what a loader of its own returns: a map-style dataset of this
client's samples, from ``loader="package.module:function"`` in its config.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from cutwater.base.errors import CutwaterError, RunError
from cutwater.base.freed_memory import keep_freed_memory
from cutwater.flower.failures import failure
from cutwater.flower.run_config import RunConfig

Answer = Callable[[RecordDict, str, Mapping[str, Any], RunConfig], RecordDict]
"""To what a message holds, by a client's name, its node's config and the run's."""


def client_app(beside: str | Path) -> ClientApp:
    """The ClientApp of an app whose files are in this folder."""
    app, folder = ClientApp(), Path(beside)

    def answered(message: Message, context: Context, answer: Answer) -> Message:
        node = context.node_config
        try:
            settings = RunConfig.of(context.run_config, folder)
            records = answer(message.content, client_name(node, settings), node, settings)
        except CutwaterError as error:
            records = failure(error)
        return Message(records, reply_to=message)

    @app.query()
    def query(message: Message, context: Context) -> Message:
        began = time.monotonic()

        def who(_: RecordDict, name: str, *__: object) -> RecordDict:
            seconds = time.monotonic() - began
            return RecordDict({"who": ConfigRecord({"client": name, "seconds": seconds})})

        return answered(message, context, who)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        began = time.monotonic()
        # Imported here, because a node that is asked who it is has no use for torch.
        from cutwater.flower.node import answer

        keep_freed_memory()
        return answered(message, context, partial(answer, began=began))

    @app.train("lease")
    def lease(message: Message, context: Context) -> Message:
        from cutwater.flower.node import hold

        keep_freed_memory()
        return answered(message, context, hold)

    return app


def client_name(node: Mapping[str, Any], settings: RunConfig) -> str:
    """Which client of the scenario a node is."""
    if "client" in node:
        return str(node["client"])
    place = node.get("partition-id")
    if type(place) is not int:
        raise RunError("the node's config has no client: start it with --node-config 'client=\"c1\"'")
    from cutwater.scenario.file import load_scenario

    names = load_scenario(settings.scenario).fleet.names
    if not 0 <= place < len(names):
        raise RunError(
            f"partition-id is {place}, but the scenario has {len(names)} clients: start as many nodes"
        )
    return names[place]
