"""What a program computes, compared without a tolerance: its values in two finite fields, at random points."""
