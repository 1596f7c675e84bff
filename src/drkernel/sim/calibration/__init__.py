"""Calibration: small programs timed on a card, and the figures for which the model agrees with them."""
