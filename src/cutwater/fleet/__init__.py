"""A fleet on this machine: processes, credentials, SuperNodes on loopback, and how fast a link is."""
