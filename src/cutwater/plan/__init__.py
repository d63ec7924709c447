"""Cut layers and server shares for a fleet (paper, Secs. IV and V)."""
