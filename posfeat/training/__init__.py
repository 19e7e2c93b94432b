"""Learning from poses: the two decoupled stages, their joint alternative, and the one loop that runs them."""
