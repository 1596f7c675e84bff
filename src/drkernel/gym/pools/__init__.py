"""The places where evaluations run: this machine, or the machines of a Ray cluster."""
