"""Models by name, each on plain torch: ``zoo.build("resnet18", input="3x32x32", classes=10)``."""

from cutwater.model.zoo.inputs import InputSpec, parse_input
from cutwater.model.zoo.registry import build, example_input, is_user_model, names

__all__ = ["InputSpec", "build", "example_input", "is_user_model", "names", "parse_input"]
