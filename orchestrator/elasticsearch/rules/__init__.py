"""The pure rules of Elasticsearch and OpenSearch, which the engine is given (`kind`)."""
