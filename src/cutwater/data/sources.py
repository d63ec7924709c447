"""Data sources by name: what ``source`` in [data] may say.

========================  =====================================================================
``digits``                1,797 real 8×8 digits that come with the package; needs no download
``mnist``                 four idx files from a folder, else downloaded once and checked by MD5
``fashion-mnist``         four idx files from a folder
``cifar10``               the six .bin files of the binary version, from a folder
``package.module:name``   a function of the user that returns (train, test) datasets or a Data
========================  =====================================================================

Folders are searched in this order: the one named by ``CUTWATER_DATA``, the scenario's own, that of Debian's
packages (``dataset-fashion-mnist``), the user's cache.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutwater.base.errors import CutwaterError, DataError, suggest
from cutwater.base.folders import cache_folder
from cutwater.base.speech import Say, by_file, quiet
from cutwater.data.custom import call_user_source
from cutwater.data.download import fetch, md5_of
from cutwater.data.files import read_cifar, read_idx
from cutwater.data.samples import ArraySamples, Data, shape_text

MNIST_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
_MNIST_SUMS = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}
_IDX_FILES = tuple(name.removesuffix(".gz") for name in _MNIST_SUMS)
_WHOSE_LABELS = {
    "ec29112dd5afa0611ce80d1b7f02629c": "mnist",
    "27ae3e4e09519cfbb04c329615203637": "mnist",
    "bb300cfdad3c16e7a12a480ee83cd310": "fashion-mnist",
}
"""MD5 of the test labels, gzipped or raw. MNIST and Fashion-MNIST use the same file names, and training on
the one in the belief that it is the other would go unnoticed."""
_CIFAR_TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
_CIFAR_FILES = (*_CIFAR_TRAIN, "test_batch.bin")
_CIFAR_PICKLED = ("data_batch_1", "cifar-10-batches-py", "cifar-10-python.tar.gz")
_DIGITS_TEST_EVERY = 5
"""Every fifth image of a digit is for testing, whatever the seed, so that accuracies of runs compare."""


@dataclass(frozen=True)
class _Request:
    """What the caller of :func:`load` asked for."""

    name: str
    folder: Path | None
    mirrors: Sequence[str]
    say: Say


def load(
    source: str,
    *,
    folder: str | os.PathLike[str] | None = None,
    mirrors: Sequence[str] = MNIST_MIRRORS,
    options: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    say: Say = quiet,
) -> Data:
    """The data of a source by name.

    ``folder`` is searched for the source's files; ``mirrors`` are where MNIST is downloaded from if it is
    nowhere (none: never download); ``options`` are the arguments of a user's own function, ``settings`` say
    how mini-batches are made of the datasets that it returns; ``say`` is told what takes long.

    >>> load("digits").input
    '1x8x8'
    """
    if ":" in source:
        return call_user_source(source, dict(options or {}), dict(settings or {}))
    if source not in _SOURCES:
        raise DataError(
            f"no data source is called {source!r}; {suggest(source, _SOURCES)}, or package.module:function"
        )
    if options or settings:
        given = sorted({**(options or {}), **(settings or {})})
        raise DataError(
            f"source {source!r} takes no options, but {', '.join(given)} was given; "
            "options are for a package.module:function"
        )
    return _SOURCES[source](_Request(source, Path(folder) if folder else None, mirrors, say))


def _digits(_: _Request) -> Data:
    embedded = files("cutwater.data") / "digits.npz"
    with embedded.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        inputs, labels = arrays["inputs"][:, None], arrays["labels"].astype(np.int64)
    test = np.zeros(len(labels), bool)
    for digit in range(10):
        test[np.flatnonzero(labels == digit)[_DIGITS_TEST_EVERY - 1 :: _DIGITS_TEST_EVERY]] = True
    return _images("digits", (inputs[~test], labels[~test]), (inputs[test], labels[test]), (4.882,), (6.019,))


def _mnist(request: _Request) -> Data:
    found = _find(request, partial(_idx_in, of=request.name))
    if found is None:
        cache = cache_folder() / "mnist"
        try:
            fetch(cache, _MNIST_SUMS, request.mirrors, request.say)
        except CutwaterError as error:
            raise DataError(
                f"MNIST is not on this machine and can't be downloaded ({error}); put "
                f"{', '.join(_MNIST_SUMS)} in a folder and name it by CUTWATER_DATA or by {_folder_key()}"
            ) from error
        found = _idx_in(cache)
        assert found is not None, "fetch brings every file or raises"
    return _idx_data(request.name, found, (33.32,), (78.57,))


def _fashion(request: _Request) -> Data:
    found = _find(request, partial(_idx_in, of=request.name))
    if found is None:
        others = _find(request, _idx_in)
        if others is not None:
            raise DataError(
                f"{others[0].parent} holds {_whose(others)}, but {request.name} was asked for; "
                f"put its files in a folder called {request.name}"
            )
        raise DataError(_missing(request, [f"{name}.gz" for name in _IDX_FILES]))
    return _idx_data(request.name, found, (72.94,), (90.02,))


def _cifar10(request: _Request) -> Data:
    found = _find(request, _cifar_in)
    if found is None:
        for place in _places(request):
            pickled = next((name for name in _CIFAR_PICKLED if (place / name).exists()), None)
            if pickled:
                raise DataError(
                    f"{place / pickled} is CIFAR-10's Python version, which is pickled and never read; "
                    "unpack the binary version (cifar-10-binary.tar.gz) instead"
                )
        raise DataError(_missing(request, _CIFAR_FILES))
    parts = [read_cifar(path) for path in found]
    train = np.concatenate([images for images, _ in parts[:-1]]), np.concatenate([y for _, y in parts[:-1]])
    return _images(request.name, train, parts[-1], (125.31, 122.95, 113.87), (62.99, 62.09, 66.70))


_SOURCES: dict[str, Callable[[_Request], Data]] = {
    "digits": _digits,
    "mnist": _mnist,
    "fashion-mnist": _fashion,
    "cifar10": _cifar10,
}
SOURCES = tuple(_SOURCES)
"""The names that need no code of the user."""


def _find(request: _Request, look: Callable[[Path], tuple[Path, ...] | None]) -> tuple[Path, ...] | None:
    return next((found for place in _places(request) if (found := look(place))), None)


def _places(request: _Request) -> Iterator[Path]:
    """Folders that may hold the source's files, the most particular first."""
    named = os.environ.get("CUTWATER_DATA")
    origins = {"CUTWATER_DATA": Path(named) if named else None, _folder_key(): request.folder}
    for origin, base in origins.items():
        if base is None:
            continue
        if not base.is_dir():
            raise DataError(f"{origin} names {base}, which is not a folder; name one that exists")
        yield from (base / name for name in _FOLDER_NAMES[request.name])
        yield base
    yield _PACKAGED / request.name
    yield cache_folder() / request.name


_PACKAGED = Path("/usr/share/datasets")
"""Where Debian's packages of data sets put them, such as dataset-fashion-mnist."""
_FOLDER_NAMES = {
    "mnist": ("mnist", "MNIST/raw"),
    "fashion-mnist": ("fashion-mnist", "FashionMNIST/raw"),
    "cifar10": ("cifar10", "cifar-10-batches-bin"),
}
"""What people call the folders, with those of torchvision and of the archives."""


def _folder_key() -> str:
    return by_file("folder in [data]", "folder of DataSettings")


def _missing(request: _Request, names: Sequence[str]) -> str:
    searched = ", ".join(str(place) for place in _places(request))
    return (
        f"{request.name} needs the files {', '.join(names)}, which are not all in one of {searched}; "
        f"put them in a folder and name it by CUTWATER_DATA or by {_folder_key()}"
    )


def _idx_in(folder: Path, of: str | None = None) -> tuple[Path, ...] | None:
    """All idx files of a folder, unless a source is told and they are known to be another's."""
    paths = [next(filter(Path.is_file, (folder / f"{name}.gz", folder / name)), None) for name in _IDX_FILES]
    found = tuple(path for path in paths if path is not None)
    complete = len(found) == len(paths) and (of is None or _whose(found) in (of, None))
    return found if complete else None


def _whose(paths: Sequence[Path]) -> str | None:
    """Which source these idx files are, where it is known."""
    return _WHOSE_LABELS.get(md5_of(paths[-1].read_bytes()))


def _cifar_in(folder: Path) -> tuple[Path, ...] | None:
    paths = tuple(folder / name for name in _CIFAR_FILES)
    return paths if all(path.is_file() for path in paths) else None


def _idx_data(name: str, paths: Sequence[Path], mean: tuple[float, ...], std: tuple[float, ...]) -> Data:
    train_x, train_y, test_x, test_y = (
        read_idx(path, dimensions) for path, dimensions in zip(paths, (3, 1, 3, 1), strict=True)
    )
    train, test = (train_x[:, None], train_y.astype(np.int64)), (test_x[:, None], test_y.astype(np.int64))
    return _images(name, train, test, mean, std)


_Arrays = tuple[NDArray[np.uint8], NDArray[np.int64]]


def _images(
    name: str, train: _Arrays, test: _Arrays, mean: tuple[float, ...], std: tuple[float, ...]
) -> Data:
    """Ten classes of images, normalised by the mean and spread of the raw pixels of the training set."""
    if train[0].shape[1:] != test[0].shape[1:]:
        raise DataError(
            f"{name} has training images of {shape_text(train[0].shape[1:])} but test images of "
            f"{shape_text(test[0].shape[1:])}; fetch the files again"
        )
    return Data(
        name=name,
        train=ArraySamples(*train, mean, std),
        test=ArraySamples(*test, mean, std),
        input=shape_text(train[0].shape[1:]),
        classes=10,
    )
