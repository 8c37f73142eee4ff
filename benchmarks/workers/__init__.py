"""Workers and queues: what a look, a thread, a takeover and a hundred idle workers cost."""
