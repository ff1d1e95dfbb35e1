"""A run over time: for the eyes (Perfetto), and as the gauges that a real engine exports."""
