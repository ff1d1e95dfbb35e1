"""Large language models as shapes: layers, heads, experts, dtypes."""
