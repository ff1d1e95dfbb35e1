"""From measured kernel tables to the time of one engine step."""
