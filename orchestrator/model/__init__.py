"""What is seen, what is wanted and what happens: frozen data, standard library only."""
