"""Access to the hosts: connections, readings, services and tuning."""
