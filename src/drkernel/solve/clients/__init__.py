"""Chat clients, one file a kind; :func:`drkernel.solve.clients.factory.open_model` makes one from a model spec."""
