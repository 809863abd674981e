"""Streams in, batches out: where a run's streams come from, and how they become rows of few shapes."""
