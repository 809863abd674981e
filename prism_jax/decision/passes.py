"""The two signals of a pass, as one value, and those of the fast and the slow pass together."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["BothPasses", "Pass"]


class Pass(NamedTuple):
    """What one pass says of each step: probabilities, or their log-odds where a function asks for these.

    Numbers or arrays, whose kind and shape each function states (`arrays.Reals`).

    Attributes:
      need: That help is needed.
      accept: That an offer would be accepted.
    """

    need: Any
    accept: Any


class BothPasses(NamedTuple):
    """Both passes; where no slow pass takes part, the fast one stands for it too."""

    fast: Pass
    slow: Pass

    @property
    def arrays(self) -> tuple[Any, Any, Any, Any]:
        """The four arrays, of the fast pass first, need before acceptance."""
        return (*self.fast, *self.slow)

    def named(self, letter: str = "p") -> dict[str, Any]:
        """The four arrays by the names that messages and scores tables give them, such as `p_need_fast`."""
        return {
            f"{letter}_{signal}_{thinking}": value
            for thinking, signals in self._asdict().items()
            for signal, value in signals._asdict().items()
        }
