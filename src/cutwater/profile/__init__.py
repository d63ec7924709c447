"""The cost of every cut: counted, measured and fitted (paper, Secs. IV-A and V-A)."""
