"""The protocol between host and device: commands, and frames on a socket."""
