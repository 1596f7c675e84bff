"""The program teacher: generated task families, and a writer of real, varied Triton answers to them.

``problem.py`` defines a generated problem, draws problems by family and writes the PyTorch side; ``writer.py`` writes
the Triton side, and mixes good answers with the mistakes that models honestly make.
"""
