"""Other sizes of the inputs that a model takes: lengths, resolutions, and which of them go together.

Whatever a trace is not tried at, it is not used at: a size that never varied may be baked into it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations

from cutwater.model.discover.example import Dim, Example

Runs = Callable[[Example], bool]
MOST = 6
"""Variations that are tried out; each takes a few runs of the model."""


@dataclass(frozen=True)
class Variation:
    """Dimensions whose size may change together, and inputs of which it is another."""

    dims: frozenset[Dim]
    examples: tuple[Example, ...]
    """One smaller and one larger than the example, as far as the model takes them."""

    @property
    def is_length(self) -> bool:
        """Whether all are lengths of sequences, and none is a height or a width.

        torch.export computes with sizes that vary as with formulas, and those of a picture that is made
        smaller again and again take minutes.
        """
        return all(self.examples[0].values[index].ndim < 4 for index, _ in self.dims)


def find_variations(example: Example, runs: Runs) -> list[Variation]:
    """What varies in a model's inputs, by trying."""
    found: list[Variation] = []
    for dims in _candidates(example):
        taken = tuple(_taken(example, dims, runs)) if len(found) < MOST else ()
        apart = any(dims < variation.dims for variation in found)
        if taken:
            found.append(Variation(dims, taken[-1:] if apart else taken))
    return found


def _candidates(example: Example) -> Iterator[frozenset[Dim]]:
    """Sets of dimensions that have the same size: of all inputs, of two, of one, and single dimensions.

    The length of tokens and of their mask go together, as do height and width of a square picture; it is
    worth knowing whether they also go apart.
    """
    units: dict[int, dict[int, frozenset[Dim]]] = defaultdict(lambda: defaultdict(frozenset))
    for index, value in enumerate(example.values):
        for dim in range(int(example.has_batch(index)), value.ndim):
            if value.shape[dim] > 1:
                units[value.shape[dim]][index] |= {(index, dim)}
    for inputs in units.values():
        counts = sorted({len(inputs), *(count for count in (2, 1) if count <= len(inputs))}, reverse=True)
        sets = [
            frozenset[Dim]().union(*chosen) for n in counts for chosen in combinations(inputs.values(), n)
        ]
        single = [frozenset({dim}) for dims in inputs.values() for dim in sorted(dims)]
        yield from dict.fromkeys([*sets, *single])


def _taken(example: Example, dims: frozenset[Dim], runs: Runs) -> Iterator[Example]:
    index, dim = next(iter(dims))
    size = example.values[index].shape[dim]
    for sizes in ((size - 1, size // 2), (size + 3, size + size // 2, 2 * size)):
        tried = (example.resized(dims, other) for other in dict.fromkeys(sizes) if 0 < other != size)
        taken = next((other for other in tried if runs(other)), None)
        if taken is not None:
            yield taken


def unseen_lengths(example: Example) -> Variation | None:
    """What varies in all likelihood where nothing can be tried: the length of tokens and what goes along."""
    counted = [value for value in example.values if value.ndim > 1 and not value.is_floating_point()]
    length = max((value.shape[1] for value in counted), default=0)
    inputs = [index for index, value in enumerate(example.values) if value.ndim > 1]
    dims = frozenset((index, 1) for index in inputs if example.values[index].shape[1] == length)
    return Variation(dims, (example.resized(dims, length - 1),)) if length > 2 else None
