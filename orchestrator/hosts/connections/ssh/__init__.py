"""SSH by paramiko: route, host keys, log-in, commands."""
