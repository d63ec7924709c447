"""Data sources by name and seeded partitions over clients."""
