"""One training step as pure functions: the objective, its gradient, the optimizer and the choice of trained parameters.

Does not belong here: reading or writing files, logging, drawing batches.
"""
