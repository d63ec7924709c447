"""One TOML file that serves planning, training and deployment."""
