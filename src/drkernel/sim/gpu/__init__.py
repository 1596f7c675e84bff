"""The simulated GPU itself: memory, operators, launches, counts and modelled time."""
