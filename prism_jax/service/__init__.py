"""The server of `/v1/decisions`: a student or a probe as a decision model, for every client of that form.

Belongs here: HTTP, the form of requests and answers, who may ask, and which streams are kept between two requests.
Does not belong here: reading and decisions (`prism_jax.agent`), calibration (`prism_jax.decision`).
Dependencies: the extra `serve`.
"""
