"""How sessions are carried out: in process, in worker processes, over Flower."""
