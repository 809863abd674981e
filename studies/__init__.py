"""Studies: programs of a checkout that the package does not need, and that may import all of it.

    python -m studies.NAME --help

Belongs here: what answers a question of its own, such as whether printed tables are possible. The package may not
import them.
"""
