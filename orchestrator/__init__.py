"""Restarts Elasticsearch, OpenSearch and Riak clusters in safe waves."""
