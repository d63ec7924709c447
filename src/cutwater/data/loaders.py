"""A torch DataLoader where a dataset is asked for: what of it holds here, and what has to be said otherwise.

Its dataset, its collate function, its workers and its batch size are taken over. Which samples a mini-batch
has follows from the run's seed, whatever its sampler would have drawn: one that shuffles or goes in order is
left alone, and one that chooses samples is refused.
"""

from typing import Any, NamedTuple

from cutwater.base.errors import DataError


class Loaded(NamedTuple):
    """What a loader, or a dataset alone, says."""

    dataset: Any
    collate: Any = None
    """None where samples are stacked, as torch does it unless told otherwise."""
    workers: int = 0
    batch_size: int | None = None


def is_loader(given: Any) -> bool:
    """Whether it is a DataLoader of torch."""
    from torch.utils.data import DataLoader

    return isinstance(given, DataLoader)


def unpacked(given: Any, name: str) -> Loaded:
    """What is in a DataLoader; a dataset is what it is."""
    if not is_loader(given):
        return Loaded(given)
    from torch.utils.data import BatchSampler, IterableDataset, default_collate

    if isinstance(given.dataset, IterableDataset):
        raise _refused(name, "reads a stream of samples", "give a map-style dataset with len() and [index]")
    if given.batch_size is None and given.batch_sampler is None:
        raise _refused(
            name, "has no batch_size, so that its dataset makes whole mini-batches", "give samples"
        )
    if type(given.batch_sampler) is not BatchSampler:
        raise _refused(name, f"has a {type(given.batch_sampler).__name__} of its own", _DRAWN)
    sampler = type(given.sampler).__name__
    if sampler not in ("RandomSampler", "SequentialSampler") or _draws_otherwise(given.sampler):
        raise _refused(name, f"chooses samples by a {sampler}", _DRAWN)
    if given.drop_last:
        raise _refused(
            name,
            "leaves the last samples of an epoch out (drop_last=True)",
            "leave that out, or set steps of the session in place of epochs",
        )
    collate = None if given.collate_fn is default_collate else given.collate_fn
    return Loaded(given.dataset, collate, given.num_workers, given.batch_size)


_DRAWN = "mini-batches are drawn from the run's seed: give its dataset, or a Subset of that"


def _draws_otherwise(sampler: Any) -> bool:
    """Whether a random sampler draws with replacement, or another number than there are samples."""
    if getattr(sampler, "replacement", False):
        return True
    return getattr(sampler, "num_samples", len(sampler.data_source)) != len(sampler.data_source)


def _refused(name: str, what: str, instead: str) -> DataError:
    return DataError(f"the DataLoader of {name} {what}, which can't be taken over: {instead}")
