"""What a Flower run config says. Light: a node that is only asked who it is needs no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from cutwater.base.errors import RunError
from cutwater.base.kinds import Flag, Number, Text, Whole
from cutwater.base.schema import check, described, read


@described("the run config", RunError, dashes=True)
@dataclass(frozen=True)
class RunConfig:
    """The run config of the app; with ``_`` for ``-`` its keys are these fields."""

    scenario: Annotated[
        str, Text(file=True), "the scenario file, in the app's folder or by an absolute path"
    ] = "scenario.toml"
    planner: Annotated[str, Text(), "as for `cutwater train`"] = "exact"
    rounds: Annotated[int, Whole(0), "rounds in place of the scenario's own number, if above 0"] = 0
    run_dir: Annotated[
        str,
        Text(empty=True, file=True),
        "where the ServerApp keeps the run folder, nowhere if empty; started again, it goes "
        "on after its last committed round",
    ] = ""
    wait: Annotated[float, Number(0, unit="seconds"), "how long the first round waits for all clients"] = (
        120.0
    )
    stream_host: Annotated[str, Text(), "where the server listens for activation streams"] = "127.0.0.1"
    stream_port: Annotated[int, Whole(0, 65_535), "the port that it listens on; any free one if 0"] = 0
    stream_address: Annotated[
        str, Text(empty=True), "the host that devices find the stream at, if not `stream-host`"
    ] = ""
    lease: Annotated[
        bool,
        Flag(),
        "whether a node keeps its process and its connection for all rounds, instead of a new process for "
        "each message",
    ] = True
    enrol_at_once: Annotated[
        int,
        Whole(0),
        "how many nodes are offered a lease before the next are, where they share a machine that can't start "
        "them all at once; all if 0",
    ] = 0
    journal: Annotated[
        bool,
        Flag(),
        "whether sessions are hosted by a process of their own, with a journal on disk, so that a round goes "
        "on if it dies",
    ] = False
    session_port: Annotated[
        int,
        Whole(0, 65_535),
        "the port of this process where nodes hold leases, which have `stream-port`; any free one if 0",
    ] = 0
    move_cuts: Annotated[
        bool,
        Flag(),
        "whether a session's cut may move while it runs, where that makes the round shorter; with `journal` "
        "or `emulate`, none does",
    ] = True
    turns: Annotated[
        str,
        Text(empty=True, file=True),
        "the socket of `cutwater turns`, where other runs compute on the same machine, each by its part "
        "(`compute` of its `[server]`); empty if the run has the machine to itself",
    ] = ""
    emulate: Annotated[
        bool,
        Flag(),
        "slow every node down to the compute and rates of the scenario, and the server to its own",
    ] = False

    def __post_init__(self) -> None:
        check(self)

    @classmethod
    def of(cls, config: Mapping[str, Any], beside: Path) -> "RunConfig":
        """The settings in a run config, or one sentence on what is wrong with it."""
        made = read(cls, config)
        return replace(made, scenario=str((beside / made.scenario).resolve()))
