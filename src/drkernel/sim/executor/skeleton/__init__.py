"""A kernel without its data: where it goes in memory and how often, but not what it computes."""
