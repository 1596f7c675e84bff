"""The program teacher: generated task families, and a writer of real, varied Triton answers to them.

``problem.py`` defines a generated problem, ``problem_families.py`` draws problems by family, ``reference.py`` writes
the PyTorch side, ``writer.py`` the Triton side, and ``plans.py`` mixes good answers with the mistakes that models
honestly make.
"""
