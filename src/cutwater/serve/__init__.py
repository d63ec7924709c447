"""The server of split sessions: its halves, its promised shares, and the queue that keeps them."""
