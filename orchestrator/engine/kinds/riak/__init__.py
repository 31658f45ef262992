"""What is particular to Riak."""
