"""ApiVersions: the APIs and versions that a server speaks; a client's first request (KIP-35).

The response's header has no tagged fields in any version, so that a client of any age can read it. If the server
doesn't know the version of the request, it answers in version 0 with UNSUPPORTED_VERSION (KIP-511).
"""

NAME = "ApiVersions"
API_KEY = 18
VERSIONS = (0, 5)
FLEXIBLE = 3

CHANGES = {
    1: "The response has `throttle_time_ms`.",
    2: "The answer comes before a quota's delay, not after it.",
    3: (
        "The client names its program: `client_software_name`, `client_software_version` (KIP-511). The response can "
        "carry `supported_features`, `finalized_features_epoch`, `finalized_features` and `zk_migration_ready` "
        "(KIP-584, KIP-866)."
    ),
    4: "The `min_version` of a supported feature may be 0 (KAFKA-17011).",
    5: (
        "The client names the node that it means: `cluster_id`, `node_id`. Another node answers REBOOTSTRAP_REQUIRED "
        "(KIP-1242)."
    ),
}

REQUEST = """
client_software_name     string  3+  ignorable
client_software_version  string  3+  ignorable
cluster_id               string  5+  null default=null ignorable
node_id                  int32   5+  ignorable default=-1
"""

RESPONSE = """
error_code                int16                  0+
api_keys                  []ApiVersion           0+
    api_key               int16                  0+
    min_version           int16                  0+
    max_version           int16                  0+
throttle_time_ms          int32                  1+  ignorable
supported_features        []SupportedFeatureKey  3+  ignorable tag=0
    name                  string                 3+
    min_version           int16                  3+
    max_version           int16                  3+
finalized_features_epoch  int64                  3+  default=-1 ignorable tag=1
finalized_features        []FinalizedFeatureKey  3+  ignorable tag=2
    name                  string                 3+
    max_version_level     int16                  3+
    min_version_level     int16                  3+
zk_migration_ready        bool                   3+  ignorable tag=3
"""
