"""What nobody can know without an account: twelve experiments. Each yields lines of the report."""

from changes import by_hand, emptying, foreign_tags, listings, private_acl
from creation import boundary, burst, early_deletion, endpoints, guardrails, kms, tags_at_creation

ALL = [
    boundary,
    tags_at_creation,
    burst,
    early_deletion,
    guardrails,
    kms,
    endpoints,
    foreign_tags,
    by_hand,
    emptying,
    listings,
    private_acl,
]
