"""Federated rounds (paper, Sec. III-B): the study, selection, what is believed and true, and the loop."""
