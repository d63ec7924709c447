"""A model as ordered layers (paper, Sec. III-B): split, join, discovery, a zoo by name."""
