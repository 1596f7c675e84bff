"""Sessions: one candidate in one runner, as the judge sees it, on a simulated GPU or on a real one."""
