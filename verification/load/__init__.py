"""The load of a verification: prompts of exact tokens, a streaming client, and what it saw."""
