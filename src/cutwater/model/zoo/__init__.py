"""Models by name, each on plain torch."""
