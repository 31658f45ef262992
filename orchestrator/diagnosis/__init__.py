"""The known syndromes, one module each: signs of a host in, findings with their numbers out. Pure."""
