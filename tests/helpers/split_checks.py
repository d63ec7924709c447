"""What must hold at every cut of every model: the bits of the whole, in train and in eval mode."""

import copy

import torch

import cutwater
from cutwater.model.graph.nested import tensors_in
from cutwater.model.randomness import RandomStream


def as_call(inputs):
    """(args, kwargs) of inputs as ``layered`` takes them."""
    if isinstance(inputs, dict):
        return (), inputs
    return (inputs if isinstance(inputs, tuple) else (inputs,)), {}


def with_batch(inputs, size):
    """The same inputs at another batch size."""

    def resize(value):
        return value[torch.arange(size) % len(value)]

    if isinstance(inputs, dict):
        return {name: resize(value) for name, value in inputs.items()}
    return tuple(map(resize, inputs)) if isinstance(inputs, tuple) else resize(inputs)


def over_the_wire(tensor):
    """What arrives of a tensor that was sent as bytes: values and shape, no history and no strides."""
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def loss_of(outputs):
    return sum(value.square().sum() for value in outputs if value.requires_grad)


def step(layered, cut, inputs, training=True):
    """One step, cut in two as between two machines: outputs, gradients, buffers. The model stays as it is."""
    model = layered.module
    state = {name: buffer.clone() for name, buffer in model.named_buffers()}
    model.zero_grad(set_to_none=True)
    client, server = (half.train(training) for half in layered.split(cut))
    args, kwargs = as_call(inputs)
    with RandomStream(seed=7, step=3):
        smashed = client(*args, **kwargs)
        if cut == len(layered):
            outputs = tensors_in(smashed)
            loss_of(outputs).backward()
        else:
            kept = smashed if isinstance(smashed, tuple) else (smashed,)
            assert all(isinstance(value, torch.Tensor) for value in kept)
            sent = tuple(over_the_wire(value).requires_grad_(value.requires_grad) for value in kept)
            before = [value.clone() for value in sent]
            outputs = tensors_in(server(sent if isinstance(smashed, tuple) else sent[0]))
            loss_of(outputs).backward()
            assert all(map(torch.equal, sent, before)), "the server changed what was sent"
            used = [(k, over_the_wire(s.grad)) for k, s in zip(kept, sent, strict=True) if s.grad is not None]
            torch.autograd.backward([k for k, _ in used], [g for _, g in used])
    result = {f"output {index}": value.detach() for index, value in enumerate(outputs)}
    result |= {f"gradient {name}": p.grad for name, p in model.named_parameters()}
    result |= {f"buffer {name}": buffer.clone() for name, buffer in model.named_buffers()}
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            buffer.copy_(state[name])
    return result


def assert_same_bits(result, expected):
    assert result.keys() == expected.keys()
    for name, value in expected.items():
        same = result[name] is value if value is None else torch.equal(result[name], value)
        assert same, f"{name} differs"


def usable_cuts(layered):
    return [cut for cut in range(1, len(layered)) if cut not in layered.ruled_out]


def check_every_cut(layered, inputs, batches=(3, 2), training=(True, False)):
    """Forward, backward and statistics equal the whole's at every cut that is offered."""
    for size in batches:
        sized = with_batch(inputs, size)
        for mode in training:
            whole = step(layered, len(layered), sized, mode)
            for cut in usable_cuts(layered):
                try:
                    assert_same_bits(step(layered, cut, sized, mode), whole)
                except Exception as error:
                    error.add_note(f"cut {cut} ({layered.layers[cut - 1].name}), batch {size}, train {mode}")
                    raise
        check_against_the_model_itself(layered, sized)


def check_against_the_model_itself(layered, inputs):
    """In eval mode, and in train mode with the same generator, the whole is the user's own model."""
    model = layered.module
    args, kwargs = as_call(inputs)
    settings = {"use_cache": False} if hasattr(getattr(model, "config", None), "use_cache") else {}
    for mode in (False, True):
        twin = copy.deepcopy(model).train(mode)
        torch.manual_seed(5)
        expected = tensors_in(twin(*args, **kwargs, **settings))
        client = copy.deepcopy(layered.split(len(layered)).client).train(mode)
        torch.manual_seed(5)
        found = tensors_in(client(*args, **kwargs))
        assert len(found) == len(expected)
        tolerance = {"rtol": 0, "atol": 0} if layered.exact else {"rtol": 1e-4, "atol": 1e-5}
        assert all(torch.allclose(a, b, **tolerance) for a, b in zip(found, expected, strict=True))


def check_joins(layered):
    """Halves hold disjoint states; joined they are the model's own, which loads strictly."""
    model = layered.module
    state = model.state_dict()
    for cut in [*usable_cuts(layered), len(layered)]:
        client, server = layered.split(cut)
        assert not client.state_dict().keys() & server.state_dict().keys()
        joined = cutwater.join(client, server).state_dict()
        assert joined.keys() == state.keys()
        assert all(torch.equal(joined[name], state[name]) for name in state)
        copy.deepcopy(model).load_state_dict(joined, strict=True)
