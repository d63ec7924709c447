"""A grid without a network: every node is a thread that runs the real ClientApp handler."""

import threading
import uuid
from collections.abc import Callable

from flwr.app import Error, Message
from flwr.proto.node_pb2 import NodeInfo
from flwr.supercore.task_identity import TaskIdentity

Handler = Callable[[Message], Message | None]
"""Answers a message; None stands for a node that never answers."""


class MemoryGrid:
    """What a ServerApp needs of Flower's Grid."""

    def __init__(self, nodes: dict[int, Handler]) -> None:
        self.nodes, self.replies = nodes, {}
        # What Flower's own processes set before an app runs.
        TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, 1
        self.threads: list[threading.Thread] = []
        self.gone: set[int] = set()
        self.delivered = 0
        """Answers to training orders that were handed over."""

    def get_nodes(self):
        return [NodeInfo(node_id=node) for node in self.nodes if node not in self.gone]

    def push_messages(self, messages) -> list[str]:
        return [self._push(message) for message in messages]

    def _push(self, message: Message) -> str:
        id_ = uuid.uuid4().hex
        message.metadata.__dict__["_message_id"] = id_
        thread = threading.Thread(target=self._handle, args=(id_, message), daemon=True)
        self.threads.append(thread)
        thread.start()
        return id_

    def _handle(self, id_: str, message: Message) -> None:
        try:
            reply = self.nodes[message.metadata.dst_node_id](message)
        except Exception as error:
            reply = Message(Error(code=2, reason=repr(error)), reply_to=message)
        if reply is not None:
            self.replies[id_] = reply

    def pull_messages(self, ids):
        for id_ in [id_ for id_ in ids if id_ in self.replies]:
            reply = self.replies.pop(id_)
            try:
                yield reply
            finally:  # only now has the one who asked taken it
                self.delivered += reply.metadata.message_type == "train"

    def join(self) -> None:
        for thread in self.threads:
            thread.join(30)
