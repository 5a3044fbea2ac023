"""Who may connect, and who may do what: TLS contexts, SASL mechanisms, ACLs, quotas. No sockets and no loop."""
