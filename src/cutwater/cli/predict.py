"""`cutwater predict`: outputs of a finished run's model."""

import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutwater.base.errors import DataError
from cutwater.cli.common import Json, print_json, say
from cutwater.cli.finished_run import BestOption, RunFolder, kept_model, kept_study, which

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ENDS = (".npy", ".csv")


def predict(
    run: RunFolder,
    *,
    out: Annotated[Path, typer.Option(help="Where to write the outputs: .npy or .csv.")],
    input_: Annotated[
        Path | None,
        typer.Option(
            "--input",
            help="Samples: an .npy array, or an .npz of one array for each input.",
            show_default="the test set",
        ),
    ] = None,
    best: BestOption = False,
    json_: Json = False,
) -> None:
    """Write what the model of a run makes of samples: its outputs as they are, one row for each sample.

    Samples come first in an array and have the shape of [model] input. They are what the model takes; of the
    sources that have a name (mnist …) they are raw pixels, made ready as in training.

    Example: cutwater predict runs/digits --input images.npy --out outputs.csv
    """
    from cutwater.base.jsonfile import write_atomically
    from cutwater.execute.finished import predict as outputs_of

    if out.suffix.lower() not in _ENDS:
        raise DataError(f"outputs can't be written as {out.name!r}: end it in {' or '.join(_ENDS)}")
    inputs = None if input_ is None else _read(input_)
    model = kept_model(run, best)
    found = outputs_of(kept_study(run), model.weights, inputs)
    write_atomically(out, _content(found, out.suffix.lower()))
    if json_:
        shape = list(found.shape)
        print_json({"run": str(run), "round": model.round, "best": best, "out": str(out), "shape": shape})
    else:
        text = f"{len(found):,} outputs of the model {which(model)}, are in {out}."
        say(text)


def _read(path: Path) -> "list[NDArray[Any]]":
    """The arrays of a file; what is pickled is never read."""
    import numpy as np

    try:
        found = np.load(path, allow_pickle=False)
        arrays = [found] if isinstance(found, np.ndarray) else [found[name] for name in found.files]
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror or error}") from error
    except Exception as error:  # no array, a pickled one, a broken archive
        raise DataError(f"{path} holds no plain array ({error}): save it by numpy.save or savez") from error
    if any(array.ndim == 0 or array.dtype.kind not in "biuf" for array in arrays):
        raise DataError(f"{path} must hold arrays of numbers, with the samples first")
    return arrays


def _content(found: "NDArray[Any]", end: str) -> bytes:
    import numpy as np

    file = io.BytesIO()
    if end == ".npy":
        np.save(file, found, allow_pickle=False)
    else:
        np.savetxt(file, found.reshape(len(found), -1), delimiter=",", fmt="%.9g")
    return file.getvalue()
