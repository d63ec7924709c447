"""How much of the world's models can be cut: checks on models of other libraries, and what became of each."""
