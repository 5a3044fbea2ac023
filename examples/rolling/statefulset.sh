#!/bin/sh
# Restarts the pods of a StatefulSet, the last one first, and stops at the first seat that isn't safe.
#
#   statefulset.sh GROUP STATEFULSET
#
# The pods' names are the instance ids (worker-statefulset.yaml), and its update strategy is OnDelete: a pod that this
# script deletes comes back from the newest template. The group has these pods alone as members and standbys; else
# MEMBERS says how many members it must keep, without standbys.
set -eu
[ $# -eq 2 ] || { echo 'usage: statefulset.sh GROUP STATEFULSET' >&2; exit 2; }
. "$(dirname "$0")/seat.sh"

group=$1 name=$2
replicas=$(kubectl get statefulset "$name" -o 'jsonpath={.spec.replicas}')
counted=$(count_members "$group")
members=${MEMBERS:-$((replicas - ${counted#* }))}

restart_pod() {
    kubectl delete pod "$1" --wait=true
}

ordinal=$((replicas - 1))
while [ "$ordinal" -ge 0 ]; do
    restart_seat "$group" "$name-$ordinal" "$members" restart_pod "$name-$ordinal"
    kubectl wait "pod/$name-$ordinal" --for=condition=Ready "--timeout=${TIMEOUT}s"
    ordinal=$((ordinal - 1))
done
