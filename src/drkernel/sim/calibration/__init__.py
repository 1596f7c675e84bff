"""A card's own figures: small programs timed on it, and the values with which the model agrees with them."""
