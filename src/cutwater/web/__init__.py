"""The planner page: a small server for one person, on this machine unless told otherwise."""

NO_WEB_SERVER = "the planner page needs a web server: pip install 'cutwater[web]'"
