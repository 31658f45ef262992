"""What the counters of hosts say: findings, from data alone."""
