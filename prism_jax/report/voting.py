"""The page on which people judge: one file that opens from the disk and offline, and gives their answers as votes.

Texts stand in it as data, so that none of them is ever read as markup.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from prism_jax.report.controls import as_script_text
from prism_jax.report.templates import load_template


def voting_page(data: Mapping[str, Any]) -> str:
    """The page's HTML, the same for the same data (`prism_jax.judges.sampling.page_data`)."""
    digest = hashlib.sha256(as_script_text(data).encode("ascii")).hexdigest()
    return load_template("voting.html.jinja").render(
        data=as_script_text({**data, "digest": digest}), events=len(data["items"])
    )
