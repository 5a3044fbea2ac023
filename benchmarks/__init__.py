"""The benchmark: what a request costs the server, beside a bare echo and Apache Kafka in the same run.

`python -m benchmarks` is the command; benchmarks/results/requests.md says how to use it and what came out. Three
processes take part: this command, which starts the others (`command`, `servers`); the server; and the load generator
(`load`, `works`, `driver`, `frames`), which knows a server by its wire and its process id alone.

House rule: nothing here imports the server, but `cost`, which compares two of them in its own process. A figure is CPU
time or a count, and a ratio within one run, wherever it can be: absolute times say little on machines that are shared.
"""
