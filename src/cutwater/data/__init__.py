"""Data sources by name, seeded partitions over clients, and the mini-batches of a session.

Nothing here imports torch until a mini-batch is asked for.
"""
