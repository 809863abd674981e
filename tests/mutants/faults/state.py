"""The state of a server, what people ask of it, and who owns which part."""

from faults.fault import Fault

STATE = (
    Fault(
        "stale-owner-commits",
        "agent/state/owned_file.py",
        "if lease is None or (lease.owner, lease.epoch) != (self._owner, self.epoch):",
        "if lease is None:",
        "Who lost the lease of a partition still changes it.",
        ("agent/test_durable.py",),
    ),
    Fault(
        "key-answers-any-body",
        "agent/state/durable.py",
        "if earlier[0] != request.digest and not",
        "if not earlier and not",
        "Another request under the same key gets the answer of the first.",
        ("agent/test_durable.py", "agent/service/test_state_app.py"),
    ),
    Fault(
        "tenants-share-streams",
        "agent/service/agents.py",
        "(Namespace(reader, tenant), models.exported)",
        "(reader, models.exported)",
        "What a tenant's stream has shown moves another tenant's of the same name.",
        ("agent/service/test_state_app.py",),
    ),
)
