"""Training: the six stages of a step, the five phases of a round (paper, Sec. III-B)."""
