"""How far predictions are from measurements: cases, errors, fits, intervals."""
