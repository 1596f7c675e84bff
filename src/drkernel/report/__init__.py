"""HTML pages and plots made from runs and verdicts; self-contained, no network needed to open them."""
