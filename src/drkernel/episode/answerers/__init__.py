"""Answerers: a chat endpoint, a program, a script. :mod:`drkernel.rl.model.answerer` runs a model in this process."""
