"""Elasticsearch and OpenSearch, by HTTP."""
