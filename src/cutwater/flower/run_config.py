"""What a Flower run config says. Light: a node that is only asked who it is needs no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from cutwater.base.errors import RunError, suggest


@dataclass(frozen=True)
class Settings:
    """The run config of the app; with ``_`` for ``-`` its keys are these fields."""

    scenario: str = "scenario.toml"
    """The scenario file; a relative path starts at the app's own folder."""
    planner: str = "exact"
    rounds: int = 0
    """Rounds in place of the scenario's own number, if above 0."""
    run_dir: str = ""
    """Where the run is kept and resumed from, at the server; nowhere if empty."""
    wait: float = 120.0
    """Seconds that the first round waits for all clients to be there."""
    stream_host: str = "127.0.0.1"
    """Where the server listens for activation streams."""
    stream_port: int = 0
    """Any free port if 0."""
    stream_address: str = ""
    """The host that devices find the stream at, if not ``stream_host``."""
    emulate: bool = False
    """Slow every node down to the compute and rates of the scenario, and the server to its own."""

    @classmethod
    def of(cls, config: Mapping[str, Any], beside: Path) -> "Settings":
        """The settings in a run config, or one sentence on what is wrong with it."""
        known = {each.name.replace("_", "-"): each for each in fields(cls)}
        given: dict[str, Any] = {}
        for key, value in config.items():
            if key not in known:
                raise RunError(f"the run config has an unknown key {key!r}; {suggest(key, known)}")
            kind: Any = known[key].type
            if kind is float and type(value) is int:
                value = float(value)  # noqa: PLW2901 - 120 is as good as 120.0
            if type(value) is not kind:
                raise RunError(f"the run config has {key} = {value!r}, but it must be a {kind.__name__}")
            given[known[key].name] = value
        made = cls(**given)
        return replace(made, scenario=str((beside / made.scenario).resolve()))
