"""Which resource a run was bound by: told from its logs, and by widening each (what if)."""
