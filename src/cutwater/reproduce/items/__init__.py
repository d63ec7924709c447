"""One module for each table or figure: its settings, its numbers, its figure, its claims."""
