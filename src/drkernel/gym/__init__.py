"""The gym grades a candidate kernel so that it cannot be fooled: judge, runner, sandbox, pools, episode, reward."""
