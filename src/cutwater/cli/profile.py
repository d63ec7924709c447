"""`cutwater profile`: what every cut of a model costs."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from cutwater.base.errors import ModelError
from cutwater.base.jsonfile import write_json
from cutwater.base.units import show_compute, show_seconds, show_size
from cutwater.cli.common import Json, print_json, progress, read_option
from cutwater.cli.common import out as console
from cutwater.profile.options import check_option

if TYPE_CHECKING:
    from cutwater.profile.fit import Fit
    from cutwater.profile.measure import Measurement, Spread
    from cutwater.profile.values import Cut, Profile


def profile(
    model: Annotated[str, typer.Argument(help="A model by name, or your own as package.module:function.")],
    *,
    input_: Annotated[
        str, typer.Option("--input", help="One sample: 1x28x28 for an image, 128 for so many tokens.")
    ] = "1x28x28",
    classes: Annotated[int, typer.Option(help="Number of classes.")] = 10,
    count: Annotated[
        str, typer.Option(help="exact: what really runs; paper: mult-adds, backward = κ × forward.")
    ] = "exact",
    kappa: Annotated[float | None, typer.Option(help="κ for the paper's count, 4.7 unless given.")] = None,
    batch_size: Annotated[int, typer.Option(help="Mini-batch that the client's memory is for.")] = 32,
    optimizer: Annotated[str, typer.Option(help="Whose state memory holds: sgd, momentum, adam.")] = "sgd",
    option: Annotated[
        list[str] | None, typer.Option(help="Of the model, such as depth=24; may be repeated.")
    ] = None,
    measure: Annotated[
        int | None, typer.Option(help="Time so many mini-batches on this machine: κ and FLOPS.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the profile here, to plan from.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw it here: .png, .svg or .pdf.")] = None,
    json_: Json = False,
) -> None:
    """What stays on the device, what crosses the network and what the server computes, for every cut.

    MODEL is a name (an unknown one lists them all) or your own as package.module:function, which returns a
    torch module and may take input and classes. Nothing is allocated: a billion parameters take seconds.

    Where the model has BatchNorm, a line says so: with micro_batches of a session it sees smaller batches.

    Example: cutwater profile efficientnet_v2_m --input 1x28x28 --classes 10 --plot profile.png
    """
    from cutwater.profile.count import profile_model
    from cutwater.profile.fit import fit
    from cutwater.profile.measure import check_repetitions
    from cutwater.report.drawings import draw_profile
    from cutwater.report.figures import check_figure_path, save_figure

    if measure is not None:
        check_repetitions(measure)
    if plot is not None:
        check_figure_path(plot)
    options = dict(_option(text) for text in option or ())
    settings: dict[str, Any] = {"count": count, "kappa": kappa, "batch_size": batch_size}
    result = profile_model(model, input_, classes, optimizer=optimizer, **settings, **options)
    fitted = fit(result)
    measured = _measure(result, measure, options) if measure is not None else None
    if out is not None:
        write_json(out, result.to_json())
    if plot is not None:
        save_figure(draw_profile(result, fitted), plot)
    if json_:
        print_json(as_json(result, fitted, measured))
    else:
        _show(result, fitted, measured)


def as_json(profile: "Profile", fit: "Fit", measured: "Measurement | None") -> dict[str, Any]:
    """The profile's own document with the fit, and what was measured, if anything."""
    from cutwater.profile.values import worth_choosing

    keys = ("alpha", "beta", "kappa", "gamma1", "gamma2")
    r2 = {"model": fit.r2_model, "compute": fit.r2_compute, "smashed": fit.r2_smashed}
    body = {
        **profile.to_json(),
        "worth_choosing": list(worth_choosing(profile)),
        "fit": {**{key: getattr(fit, key) for key in keys}, "r2": r2},
    }
    return body if measured is None else {**body, "measured": measured.to_json()}


def _option(text: str) -> tuple[str, Any]:
    key, value = read_option(text, "depth=24", ModelError)
    check_option(key, f"option {text!r}")
    return key, value


def _measure(profile: "Profile", repetitions: int, options: dict[str, Any]) -> "Measurement":
    from cutwater.profile.count import load_model
    from cutwater.profile.measure import measure

    layered, example = load_model(
        profile.model, profile.input, profile.classes, profile.batch_size, **options
    )
    with progress() as bar:
        task = bar.add_task("measuring", total=repetitions)
        return measure(
            layered,
            example,
            repetitions,
            flops_per_sample=profile.total_flops,
            after_each=lambda: bar.advance(task),
        )


def _show(profile: "Profile", fit: "Fit", measured: "Measurement | None") -> None:
    from cutwater.profile.values import worth_choosing

    marked = worth_choosing(profile)
    total = profile.cuts[-1]
    console.print(
        f"[bold]{escape(profile.model)}[/bold], input {profile.input}: {len(profile)} layers, "
        f"{show_size(profile.total_bits)}; a sample takes {_flops(total.client_forward_flops)} forward, "
        f"{_flops(total.client_backward_flops)} backward ({profile.count} count); "
        f"memory is for batches of {profile.batch_size} with {profile.optimizer}"
    )
    console.print(_table(profile, marked))
    console.print(
        "● can be a client's fastest cut, if its share of the server is no slower than the client itself",
        style="dim",
    )
    for cut in profile.cuts:
        if cut.ruled_out:
            console.print(f"× cut {cut.cut} can't be used: {cut.ruled_out}", style="dim", markup=False)
    if all(cut.ruled_out for cut in profile.cuts[:-1]) and len(profile) > 2:
        console.print('with labels = "stay" in [session] there are pairs of cuts', style="dim", markup=False)
    if profile.batch_norm:
        console.print(
            "BatchNorm sees the parts of a mini-batch: with micro_batches = m in [session], batches 1/m as "
            "large, on every client",
            style="dim",
            markup=False,
        )
    for line in _fit_lines(fit):
        console.print(line)
    if measured is not None:
        for line in _measured_lines(measured):
            console.print(line)


def _table(profile: "Profile", marked: Sequence[int]) -> Table:
    """A row for each marked cut; what lies between is one row for each stage."""
    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    for title in ("", "\nCut", "\nLayer"):
        table.add_column(title, no_wrap=True)
    for title in ("Client\nmodel", "Client\nFLOPs", "Server\nFLOPs", "Smashed\ndata", "Client\nmemory"):
        table.add_column(title, justify="right")
    for cuts in _rows(profile.cuts, marked):
        first, last = cuts[0], cuts[-1]
        is_marked = first.cut in marked
        label = str(first.cut) if first is last else f"{first.cut}-{last.cut}"
        name = first.name if first is last else first.stage
        amounts = (
            _range(first, last, lambda cut: show_size(cut.client_bits)),
            _range(first, last, lambda cut: _short(cut.client_flops)),
            _range(first, last, lambda cut: _short(cut.server_forward_flops + cut.server_backward_flops)),
            _range(first, last, lambda cut: show_size(cut.smashed_bits)),
            _range(first, last, lambda cut: show_size(cut.client_memory_bits)),
        )
        mark = "●" if is_marked else "×" if first.ruled_out else ""
        table.add_row(mark, label, name, *amounts, style="" if is_marked else "dim")
    return table


def _rows(cuts: "Sequence[Cut]", marked: Sequence[int]) -> "Iterator[list[Cut]]":
    def key(cut: "Cut") -> tuple[int, str, str | None]:
        return (cut.cut if cut.cut in marked else 0, cut.stage, cut.ruled_out)

    return (list(group) for _, group in groupby(cuts, key))


def _range(first: "Cut", last: "Cut", show: "Callable[[Cut], str]") -> str:
    """From the first to the last cut of a row, the unit once where it is the same."""
    low, high = show(first), show(last)
    if low == high:
        return low
    number, _, unit = low.partition(" ")
    return f"{number}-{high}" if high.endswith(f" {unit}") else f"{low} - {high}"


def _fit_lines(fit: "Fit") -> Iterator[str]:
    yield "[bold]Fit[/bold] over the cut layer l (R² = 1 is perfect)"
    lines = (
        ("client model", "α·l²", f"α = {fit.alpha:.4g} bits", fit.r2_model),
        ("client FLOPs", "β·l·(1+κ)", f"β = {fit.beta:.4g}, κ = {fit.kappa:.3g}", fit.r2_compute),
        ("smashed data", "γ1/(l+γ2)", f"γ1 = {fit.gamma1:.4g} bits, γ2 = {fit.gamma2:.3g}", fit.r2_smashed),
    )
    for amount, formula, values, r2 in lines:
        yield f"  {amount}   {formula:9}   R² = {r2:.4f}   {values}"
    if min(fit.r2_model, fit.r2_compute, fit.r2_smashed) < 0.8:
        yield "  [yellow]The curves don't describe this model well: plan with its true profile.[/yellow]"


def _measured_lines(measured: "Measurement") -> Iterator[str]:
    def spread(value: "Spread", show: Callable[[float], str]) -> str:
        return f"{show(value.median)} ({show(value.low)} to {show(value.high)})"

    yield (
        f"[bold]Measured[/bold] on {measured.device}, {measured.threads} threads, batch "
        f"{measured.batch_size}, {measured.repetitions} times: median (quartiles)"
    )
    yield f"  forward    {spread(measured.forward_seconds, show_seconds)}"
    yield f"  backward   {spread(measured.backward_seconds, show_seconds)}"
    yield f"  κ          {spread(measured.kappa, lambda value: f'{value:.2f}')}"
    yield f"  speed      {spread(measured.flops, show_compute)}"


def _flops(amount: float) -> str:
    """An amount, not a speed.

    >>> _flops(1.28e9), _flops(0)
    ('1.28 GFLOPs', '0 FLOPs')
    """
    return show_compute(amount).removesuffix("S") + "s"


def _short(amount: float) -> str:
    """The same under a heading that says what it is.

    >>> _short(1.28e9), _short(0)
    ('1.28 G', '0')
    """
    return _flops(amount).removesuffix("FLOPs").strip()
