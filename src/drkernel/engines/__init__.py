"""Other people's trainers that run our episodes and our mathematics. ``verl`` is the one for more than one machine."""
