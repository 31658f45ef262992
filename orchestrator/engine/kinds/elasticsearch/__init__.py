"""What is particular to Elasticsearch and OpenSearch."""
