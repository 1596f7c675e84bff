"""Who answers: a chat endpoint, a program, a script. A model in this process is :mod:`drkernel.rl.model.answerer`."""
