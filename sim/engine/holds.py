"""What keeps the next waiting request from entering a batch.

Schedulers note it where they stop letting requests in, as plain numbers, which cost the loop
nothing; it means something only while somebody waits.
"""

from __future__ import annotations

SLOTS = 0
"""As many sequences run as may (``max_num_seqs``)."""
TOKENS = 1
"""The step's tokens are spoken for (``max_num_batched_tokens``)."""
BLOCKS = 2
"""KV blocks: too few are free, or kept back for what running requests may still generate."""
BATCH = 3
"""A batch is in progress that takes nobody in."""
PREFIX = 4
"""Another request is computing the prefix that this one would compute."""

NAMES = ("batch slots", "token budget", "KV blocks", "batch in progress", "shared prefix")
"""What each stands for in words, by number."""
