"""Who may connect: login modules, SASL mechanisms and their credentials. No sockets and no loop."""
