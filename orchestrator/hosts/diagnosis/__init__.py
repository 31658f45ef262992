"""How a host is read for a diagnosis: what is asked of it, and what the answers and recorded texts mean."""
