"""Recipes on verl: ``drkernel train RECIPE --engine verl``. Extra: ``drkernel[verl]``; docs/engines.md."""
