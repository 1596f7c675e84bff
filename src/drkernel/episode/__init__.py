"""The conversation with the judge: turns, prompts and feedback, context policies, answerers, metrics, the journal."""
