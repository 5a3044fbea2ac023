# etcd for docker/docker-compose.cluster.yml, from the package sources of the base image: with Debian 12, etcd 3.4.23.
# For a cluster of your own take etcd's own image, 3.6 or later: docs/run/cluster.md.

ARG BASE=python:3.11-slim-bookworm

FROM ${BASE}
USER root
RUN apt-get update -qq \
    && apt-get install --yes -qq --no-install-recommends etcd-server etcd-client \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --no-log-init --no-create-home --shell /usr/sbin/nologin store \
    && install --directory --mode=0700 --owner=store --group=store /data
USER 1000:1000
VOLUME /data
EXPOSE 2379 2380
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["etcdctl", "endpoint", "health"]
CMD ["etcd", "--data-dir=/data"]
