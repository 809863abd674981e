"""Servers over HTTP: a student or a probe as a decision model, and the agent with state.

Belongs here: HTTP, the form of requests and answers, who may ask, and which streams are kept between two requests.
Does not belong here: reading and decisions (`prism_jax.agent`), what is kept of them (`prism_jax.agent.state`),
calibration (`prism_jax.decision`).
Dependencies: the extra `serve`.

Where to change what:
- who may ask, limits, errors, health: `http.py`; how requests become batches: `turns.py`
- `POST /v1/decisions` and `/v1/systemone`: `app.py`, their forms in `form.py` and `system_one.py`, their answers in
  `answering.py`; names in addresses and compressed bodies in `encoded.py`
- what answers, of the flags of `serve`: `loading.py`
- the routes of streams, decisions, outcomes, records and people, and of shadow mode: `state_app.py`; bodies in
  `requests.py`, events in `door.py`
- the agents of all tenants, and what is done between requests: `agents.py`; tenants and their tokens: `namespaces.py`,
  `tokens.py`; a state that several processes own: `divided.py`, `connection.py`; on Ray: `cluster.py`, `replicas.py`
- the page of the person: `person_page.py`, its words in `person_view.py`, its files in `me/`; what the store has of one
  person: `person_data.py`
- signing in to it: `sessions.py`; what a browser is sent and sends: `browser.py`
- what the gate would have done where it only watched: `shadow.py`
"""
