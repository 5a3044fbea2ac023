"""Access: login modules, SASL mechanisms, credentials, TLS contexts, ACLs, quotas. No sockets and no loop."""
