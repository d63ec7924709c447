"""stub"""

from cutwater.codec.values import Codec


class _F:
    name = "fp32"
    lossless = True
    at_most = False


class _B:
    name = "bf16"
    lossless = False
    at_most = False

    def encode(self, values, seed):
        import torch

        return torch.from_numpy(values).to(torch.bfloat16).contiguous().view(torch.uint8).reshape(-1).numpy()

    def decode(self, data, shape):
        import torch

        return torch.from_numpy(data).view(torch.bfloat16).float().reshape(shape).numpy()


def find_codec(name: str) -> Codec:
    """stub"""
    return {"fp32": _F(), "bf16": _B()}[name]
