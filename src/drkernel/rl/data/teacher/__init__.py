"""The program teacher: generated task families, and a writer of real, varied Triton answers to them.

``problem.py`` says what a generated problem is, ``families.py`` draws problems by family, ``reference.py`` writes the
PyTorch side, ``writer.py`` the Triton side, and ``plans.py`` mixes good answers with the honest failures of models.
"""
