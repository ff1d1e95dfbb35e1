"""What happens when: a discrete-event model of workload, engine, cluster and metrics."""
