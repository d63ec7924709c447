"""`cutwater probe`: what this device computes and how fast its link to the server is."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutwater.base.errors import EngineError
from cutwater.base.units import parse_size, show_compute, show_rate, show_seconds
from cutwater.cli.common import Json, err, print_json, say

if TYPE_CHECKING:
    from cutwater.profile.measure import Measurement


def probe(
    scenario: Annotated[
        Path | None, typer.Argument(help="Measure its model, in parts of its size; a small CNN if not given.")
    ] = None,
    *,
    server: Annotated[str | None, typer.Option(help="HOST:PORT of a `cutwater probe --listen`.")] = None,
    fingerprint: Annotated[
        str | None, typer.Option(help="SHA-256 that the server's certificate must have.")
    ] = None,
    size: Annotated[str, typer.Option(help="How much is sent each way.")] = "2 MB",
    repetitions: Annotated[int, typer.Option(min=1, help="Mini-batches that are timed.")] = 10,
    listen: Annotated[
        str | None, typer.Option(help="HOST:PORT: answer probes here until Ctrl-C, and measure nothing.")
    ] = None,
    json_: Json = False,
) -> None:
    """Measure this device before its first round: effective FLOPS, and rates to and from a server.

    What is printed goes into the scenario's [[client]] table.

    Example: cutwater probe examples/digits.toml --server 192.0.2.7:9095
    """
    if listen is not None:
        _listen(*_address(listen))
        return
    measurement = _measure(scenario, repetitions)
    link = None
    if server is not None:
        from cutwater.fleet.link_probe import probe_link

        link = probe_link(*_address(server), fingerprint=fingerprint, bytes_=int(parse_size(size) // 8))
    if json_:
        found: dict[str, Any] = {"compute": measurement.to_json()}
        print_json({**found, "link": asdict(link) if link else None})
        return
    say(f'compute = "{show_compute(measurement.flops.median)}"')
    if link is not None:
        say(f'up = "{show_rate(link.up)}"')
        say(f'down = "{show_rate(link.down)}"')
        say(f'rtt = "{show_seconds(link.round_trip)}"')
        shown = f"certificate {link.fingerprint}"
        say(shown + ("" if fingerprint else " (not checked)"), to=err, style="dim")


def _measure(path: Path | None, repetitions: int) -> "Measurement":
    import torch

    from cutwater.plan.session import part_sizes
    from cutwater.profile.count import load_model
    from cutwater.profile.measure import measure
    from cutwater.scenario.file import load_scenario
    from cutwater.scenario.sections import ModelSpec

    scenario, spec, batch = None, ModelSpec("cnn"), 32
    if path is not None:
        scenario = load_scenario(path)
        if scenario.model is None:
            raise EngineError(f"{path} has a profile but no [model]: measuring needs the model itself")
        spec, session = scenario.model, scenario.session
        # The larger parts of a mini-batch: a processor may be faster with some sizes than others.
        batch = max(part_sizes(session.batch_size, session.micro_batches))
    torch.set_num_threads(1)  # as sessions run
    layered, example = load_model(spec.name, spec.input, spec.classes, batch, **(spec.options or {}))
    flops = scenario.profile.total_flops if scenario is not None else None
    return measure(layered, example, repetitions, flops_per_sample=flops)


def _listen(host: str, port: int) -> None:
    from cutwater.fleet.link_probe import EchoServer

    with EchoServer(host, port) as server:
        say(f"listening on {host}:{server.port}, Ctrl-C ends it")
        say(f"fingerprint {server.certificate.fingerprint}")
        while True:
            time.sleep(1.0)


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not (host and colon and port.isdecimal() and int(port) < 1 << 16):
        raise EngineError(f"address {text!r} can't be read: write HOST:PORT, such as 192.0.2.7:9095")
    return host.strip("[]"), int(port)
