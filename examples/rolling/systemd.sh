#!/bin/sh
# Restarts the instances of a systemd unit one after the other, and stops at the first seat that isn't safe.
#
#   systemd.sh GROUP UNIT NUMBER...         for example: systemd.sh workers worker 1 2 3
#
# The unit UNIT@.service starts a consumer with the instance id UNIT-%i (worker@.service). Name all instances, because
# their number is the number of members that the group has to have.
set -eu
. "$(dirname "$0")/seat.sh"

group=$1 unit=$2
shift 2
for number in "$@"; do
    restart_seat "$group" "$unit-$number" "$#" systemctl restart "$unit@$number.service"
done
