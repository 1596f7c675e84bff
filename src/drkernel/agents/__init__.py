"""Tools for coding agents: the toolbox, and the Model Context Protocol server over it."""
