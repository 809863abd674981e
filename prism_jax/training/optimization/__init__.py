"""One training step as pure functions: the objective, its gradient, the optimizer and the choice of trained parameters.

May not live here: reading or writing files, logging, drawing batches.
"""
