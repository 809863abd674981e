"""Changes one entry of a JSON value."""

import copy


def edited(value, place, new):
    """A copy of `value` with `new` at the path `place`; the value `...` removes the key."""
    value = copy.deepcopy(value)
    target = value
    for key in place[:-1]:
        target = target[key]
    if new is ...:
        del target[place[-1]]
    else:
        target[place[-1]] = new
    return value
