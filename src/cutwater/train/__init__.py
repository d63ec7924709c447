"""Training: the stages of a step, sessions, the exact average, metrics and scores (paper, Sec. III-B)."""
