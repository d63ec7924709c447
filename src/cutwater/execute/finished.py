"""What is done with a model that a run has kept: evaluated, used, and handed on."""

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from cutwater.base.errors import DataError, RunError
from cutwater.base.jsonfile import write_atomically
from cutwater.base.speech import Say, quiet
from cutwater.base.toml import parse_toml
from cutwater.base.usercode import blamed, look_beside, told
from cutwater.data.samples import ArraySamples, Batch, Data, input_text
from cutwater.data.test_batches import TEST_BATCH, TestBatches
from cutwater.execute.local import LocalTrainer, left_as_it_was
from cutwater.federate.from_scenario import data_settings, study_of
from cutwater.federate.study import Study
from cutwater.federate.tested import Tested
from cutwater.model.precision import one_thread
from cutwater.model.randomness import RandomStream
from cutwater.profile.walk import call
from cutwater.runs import layout
from cutwater.runs.checkpoint import separate
from cutwater.runs.reader import read_run
from cutwater.scenario.file import Scenario, read_scenario
from cutwater.train.scores import Scored

FORMATS = ("safetensors", "torch-export", "adapter")


def scenario_of_run(folder: str | os.PathLike[str]) -> Scenario:
    """The scenario that a run was trained from, as it was; what it names is looked up where it was."""
    run = read_run(folder)
    content = run.folder.read(layout.SCENARIO)
    if content is None:
        raise RunError(
            f"{folder} holds no {layout.SCENARIO}, because it was trained in Python: build its study there "
            "and use cutwater.load_run with cutwater.evaluate, cutwater.predict or cutwater.export"
        )
    copied = Path(folder) / layout.SCENARIO
    source = Path(run.info.scenario) if run.info.scenario else copied
    source = source if source.parent.is_dir() else copied
    look_beside(source.parent)
    return read_scenario(
        parse_toml(content.decode("utf-8", "replace"), str(copied)), str(source), source.parent
    )


def study_of_run(folder: str | os.PathLike[str], say: Say = quiet) -> Study:
    """The study that a run was trained from."""
    return study_of(scenario_of_run(folder), say=say)


def other_data(folder: str | os.PathLike[str], source: str, say: Say = quiet) -> Data:
    """Data of another source, for a model of a run; its folder is that of the run's scenario."""
    return replace(data_settings(scenario_of_run(folder)), source=source, options={}).load(say)


def evaluate(study: Study, weights: Mapping[str, Tensor], *, data: Data | None = None) -> Tested:
    """Scores of a model: on the test set and on what clients hold back, or on the test set of other data.

    An evaluation of one's own, which has its own data, is there unless other data is asked for.
    """
    check_fits(study, weights)
    batches = study.test() if data is None else TestBatches(data, study.train.device)
    if data is not None:
        data.check_fits(study.data.input, study.data.classes)
    if not len(batches) and (data is not None or study.evaluate is None):
        raise DataError(
            f"{(data or study.data).name!r} has no test set to evaluate on: name data that has one"
        )
    with left_as_it_was(study):
        scores = LocalTrainer(study.job(), batches).evaluate(weights) if len(batches) else []
        own = study.own_scores(weights) if data is None else None
    return Tested.of(study, scores, own) if data is None else Tested(Scored.of(scores, study.metrics))


def predict(
    study: Study, weights: Mapping[str, Tensor], inputs: Sequence[NDArray[Any]] | None = None
) -> NDArray[Any]:
    """A model's outputs, sample by sample: for these inputs, or for those of the study's test set.

    ``inputs`` has an array for each input of the model, N × the shape of a sample: what the model takes or,
    for the sources that have a name, raw pixels, which are made ready as those of the training set are.
    """
    with _holding(study, weights) as model:
        batches = _batches(study, inputs)
        with one_thread(), torch.inference_mode():
            model.eval()
            outputs = [_output(model, study.data.called(batch.inputs)) for batch in batches]
    return np.concatenate(outputs)


def export(
    weights: Mapping[str, Tensor],
    path: str | os.PathLike[str],
    *,
    study: Study | None = None,
    adapter: bool = False,
    about: Mapping[str, str] | None = None,
) -> None:
    """Write a model to a file: its weights by its own names (safetensors) or, with its study, a program.

    The weights are what ``load_state_dict(strict=True)`` of the model takes; the program is torch.export's,
    which needs neither the model's code nor this package. ``adapter`` writes what peft put around a model to
    a folder, with its study, as ``PeftModel.from_pretrained`` reads it.
    """
    if adapter:
        _write_adapter(weights, Path(path), study)
        return
    if study is None:
        write_atomically(path, to_bytes(separate(weights), {"format": "pt", **(about or {})}))
        return
    with _holding(study, weights) as model:
        inputs, content = study.data.called(study.two_samples().inputs), io.BytesIO()
        # The program shares the model's tensors, so it is written while these are the weights.
        torch.export.save(_exported(model.eval(), inputs), content)
        write_atomically(path, content.getvalue())


def _write_adapter(weights: Mapping[str, Tensor], folder: Path, study: Study | None) -> None:
    module = None if study is None else study.model.module
    # Only peft knows which tensors are the adapter's, and how it names them in a file.
    if study is None or module is None or not hasattr(module, "peft_config"):
        what = "no study was given" if module is None else f"the model is a {type(module).__name__}"
        raise RunError(
            f"there is no adapter to export ({what}): it takes the study of a model that peft's "
            "get_peft_model has made"
        )
    with _holding(study, weights):
        try:
            module.save_pretrained(str(folder))  # type: ignore[operator]
        except OSError as error:
            raise RunError(f"{folder} can't be written: {error.strerror or error}") from error


@contextmanager
def _holding(study: Study, weights: Mapping[str, Tensor]) -> Iterator[nn.Module]:
    """Within, the study's model has these weights, if they are its own; then it is as it was."""
    check_fits(study, weights)
    with left_as_it_was(study):
        study.model.module.load_state_dict(weights, strict=True)
        study.model.restart()
        yield study.model.module


def check_fits(study: Study, weights: Mapping[str, Tensor]) -> None:
    """Refuse the weights of another model."""
    known = {name: tensor.shape for name, tensor in study.initial.items()}
    given = {name: tensor.shape for name, tensor in weights.items()}
    odd = next((name for name in (*known, *given) if known.get(name) != given.get(name)), None)
    if odd is not None:
        raise RunError(f"the weights are of another model, which differs in {odd!r}: use those of this one")


def _exported(
    model: nn.Module, inputs: tuple[Tensor, ...] | dict[str, Tensor]
) -> torch.export.ExportedProgram:
    """A program for any number of samples or, where the model does not allow that, a sentence."""
    some = {0: torch.export.Dim.AUTO}
    try:
        with torch.no_grad():
            if isinstance(inputs, dict):
                named = dict.fromkeys(inputs, some)
                return torch.export.export(model, (), inputs, dynamic_shapes=named)
            return torch.export.export(model, inputs, dynamic_shapes=tuple(some for _ in inputs))
    except Exception as error:  # whatever torch can't trace in a user's model
        raise RunError(
            f"the model can't be exported as a program ({told(error)}): export its weights as safetensors"
        ) from error


def _batches(study: Study, inputs: Sequence[NDArray[Any]] | None) -> Sequence[Batch]:
    if inputs is None:
        if study.data.test is None:
            raise DataError(f"{study.data.name!r} has no test set: name the inputs")
        return TestBatches(study.data, study.train.device)
    names = study.data.names if study.data.names and len(study.data.names) == len(inputs) else None
    shapes = input_text([one.shape[1:] for one in inputs], names)
    count = len(inputs[0]) if inputs else 0
    if not study.data.takes(shapes) or not count or any(len(one) != count for one in inputs):
        raise DataError(
            f"the inputs are {count} samples of {shapes}, but must be one or more of {study.data.input}, the "
            "samples first"
        )
    device, like = study.train.device, study.data.train
    if isinstance(like, ArraySamples):
        raw = ArraySamples(inputs[0], np.zeros(count, np.int64), like.mean, like.std)
        places = (np.arange(start, min(start + TEST_BATCH, count)) for start in range(0, count, TEST_BATCH))
        return [raw.batch(some, device) for some in places]
    kinds = [one.dtype for one in study.two_samples().inputs]
    tensors = [torch.from_numpy(one).to(device, kind) for one, kind in zip(inputs, kinds, strict=True)]
    parts = zip(*(torch.split(one, TEST_BATCH) for one in tensors), strict=True)
    return [Batch(some, torch.zeros(len(some[0]))) for some in parts]


def _output(model: nn.Module, called: Any) -> NDArray[Any]:
    with blamed(RunError, lambda said: f"the model failed on the inputs ({said})"), RandomStream(0, 0):
        output = call(model, called)
    found = getattr(output, "logits", output)
    if not isinstance(found, Tensor):
        raise RunError(f"the model's output is {type(found).__name__}, but only a tensor can be written")
    array: NDArray[Any] = found.detach().float().cpu().numpy()
    return array
