"""What optimizers keep beside the weights. Needs no torch: planning scales memory by it, too."""

OPTIMIZER_STATE = {
    "sgd": 0,
    "momentum": 1,
    "adam": 2,
    "adamw": 2,
    "adadelta": 2,
    "adafactor": 1,
    "adagrad": 1,
    "adamax": 2,
    "asgd": 1,
    "muon": 1,
    "nadam": 2,
    "radam": 2,
    "rmsprop": 1,
    "rprop": 2,
}
"""How many numbers an optimizer keeps for each trainable parameter, at most (Adafactor: of a vector)."""
