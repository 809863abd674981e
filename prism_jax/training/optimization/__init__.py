"""One training step, as pure functions: objective, gradient, optimizer, and the parameters that they move."""
