"""How sessions are carried out on this machine: in process, in workers, or slowed down as devices are."""
