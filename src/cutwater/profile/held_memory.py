"""What a client holds at the end of its forward pass, which is when training needs the most memory.

The backward pass frees what was saved about as fast as it makes gradients; those in flight add a few percent
of the tensors that live at the true peak. What libraries take for scratch space is not counted.
"""

from collections.abc import Iterable

from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks


class Storages:
    """The memory behind a set of tensors: what several of them share counts once."""

    def __init__(self, ignored: Iterable[Tensor] = ()) -> None:
        self.bytes = 0
        # Storages are kept, not only their addresses, so that no later one can get the address of another.
        self._held: dict[int, object] = {}
        self._aliases: dict[int, int] = {}
        self._kept: list[object] = []
        for tensor in ignored:
            self._held[self._key(tensor)] = tensor.untyped_storage()

    def add(self, tensors: Iterable[Tensor]) -> None:
        """Take these in."""
        for tensor in tensors:
            key = self._key(tensor)
            if key not in self._held:
                self._held[key] = tensor.untyped_storage()
                self.bytes += tensor.untyped_storage().nbytes()

    def bytes_with(self, tensors: Iterable[Tensor]) -> int:
        """What :attr:`bytes` would be with these as well."""
        new = {self._key(tensor): tensor.untyped_storage().nbytes() for tensor in tensors}
        return self.bytes + sum(size for key, size in new.items() if key not in self._held)

    def alias(self, copy: Tensor, original: Tensor) -> None:
        """Take the memory of ``copy`` for that of ``original`` from now on."""
        self._aliases[_address(copy)] = self._key(original)
        self._kept += [copy.untyped_storage(), original.untyped_storage()]

    def recording(self) -> saved_tensors_hooks:
        """Within, everything that autograd saves for the backward pass is added."""

        def pack(tensor: Tensor) -> Tensor:
            self.add([tensor])
            return tensor

        return saved_tensors_hooks(pack, lambda tensor: tensor)

    def _key(self, tensor: Tensor) -> int:
        return self._aliases.get(_address(tensor), _address(tensor))


def _address(tensor: Tensor) -> int:
    """Where the storage object lives: unlike a data pointer it tells storages without data apart, too."""
    address: int = tensor.untyped_storage()._cdata
    return address
