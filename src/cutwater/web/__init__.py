"""The planner page: a small server for one person, on this machine unless told otherwise."""
