"""The pure rules of Riak, which the engine is given (`kind`)."""
