"""What a run tells of itself while it trains: one JSON line a step, TensorBoard, a bar, rates, traces."""
