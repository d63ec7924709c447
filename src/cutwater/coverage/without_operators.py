"""torchvision without its compiled operators, which don't load beside every build of torch.

Its Python files name the operators when they are imported, and other libraries import it in turn. Declared by
name alone, everything that does without them (all of the models here) works.
"""

import importlib
import re
import sys

import torch

_MISSING = re.compile(r"operator torchvision::(\w+) does not exist")
_declared: list[torch.library.Library] = []


def import_torchvision() -> None:
    """Import torchvision, whether its operators load or not; where it is not installed, nothing happens."""
    while True:
        try:
            importlib.import_module("torchvision")
            return
        except ImportError:
            return
        except RuntimeError as error:
            missing = _MISSING.search(str(error))
            if missing is None:
                raise
            library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
            library.define(f"{missing[1]}(Tensor value) -> Tensor")  # type: ignore[no-untyped-call]
            _declared.append(library)
            for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
                del sys.modules[name]
