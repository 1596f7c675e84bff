"""The conversation with the judge: turns, prompts and feedback, context policies, who answers, metrics, the journal."""
