"""A traced model as a graph: its slices, what crosses between them, and values that hold tensors."""
