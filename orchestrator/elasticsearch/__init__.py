"""Elasticsearch and OpenSearch: what belongs to this kind of cluster alone."""
