"""DescribeConfigs: settings of topics and brokers (KIP-133).

Resource types: 2 topic, 4 broker, 8 broker logger. Null keys mean all settings.
"""

NAME = "DescribeConfigs"
API_KEY = 32
VERSIONS = (0, 4)
FLEXIBLE = 4

CHANGES = {
    1: "`include_synonyms` asks for `synonyms`; `config_source` takes the place of `is_default` (KIP-226).",
    2: "The answer comes before a quota's delay, not after it.",
    3: "`include_documentation` asks for `documentation`; the response has the `config_type` (KIP-569).",
}

REQUEST = """
resources               []DescribeConfigsResource  0+
    resource_type       int8                       0+
    resource_name       string                     0+
    configuration_keys  []string                   0+  null
include_synonyms        bool                       1+
include_documentation   bool                       3+
"""

RESPONSE = """
throttle_time_ms       int32                            0+
results                []DescribeConfigsResult          0+
    error_code         int16                            0+
    error_message      string                           0+  null
    resource_type      int8                             0+
    resource_name      string                           0+
    configs            []DescribeConfigsResourceResult  0+
        name           string                           0+
        value          string                           0+  null
        read_only      bool                             0+
        is_default     bool                             0
        config_source  int8                             1+  default=-1 ignorable
        is_sensitive   bool                             0+
        synonyms       []DescribeConfigsSynonym         1+  ignorable
            name       string                           1+
            value      string                           1+  null
            source     int8                             1+
        config_type    int8                             3+  ignorable
        documentation  string                           3+  null ignorable
"""
