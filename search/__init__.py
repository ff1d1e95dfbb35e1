"""What to choose: search space, feasibility, Optuna study, frontier and report."""
