"""The process that hosts a run's sessions beside its ServerApp, with ``journal = true`` in the run config.

Its only argument is the descriptor of a socket that its parent is at the other end of.
"""

import re
import signal
import socket
import sys
from dataclasses import asdict

from cutwater.base.speech import Say
from cutwater.flower.run_config import RunConfig
from cutwater.flower.shared_study import study_for
from cutwater.serve.process import host_for
from cutwater.serve.sessions import RemoteSessions


def session_process(settings: RunConfig, run: str, say: Say) -> RemoteSessions:
    """The sessions of a run, in such a process."""
    port, address = settings.stream_port, settings.stream_address
    if settings.lease:  # which have that port
        port, address = settings.session_port, re.sub(r":[0-9]+$", "", address)
    return RemoteSessions(
        [sys.executable, "-m", "cutwater.flower.session_process"],
        {"study": asdict(settings), "run": run, "turns": settings.turns, "emulate": settings.emulate},
        host=settings.stream_host,
        port=port,
        advertise=address or None,
        say=say,
    )


def main() -> None:
    """Host sessions until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever is interrupted is the parent, which ends this
    with socket.socket(fileno=int(sys.argv[1])) as line:
        host_for(line, lambda told: study_for(RunConfig(**told)))


if __name__ == "__main__":
    main()
