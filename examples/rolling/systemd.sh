#!/bin/sh
# Restarts the instances of a systemd unit one after the other, and stops at the first seat that isn't safe.
#
#   systemd.sh GROUP UNIT NUMBER...         for example: systemd.sh workers worker 1 2 3
#
# The unit UNIT@.service starts a consumer with the instance id UNIT-%i (worker@.service). If the script stopped, mend the
# fault, then run it again with the remaining units. The group must keep MEMBERS members, without standbys; by default as
# many as it has at the start, and at least one for each unit that is no standby.
set -eu
[ $# -ge 3 ] || { echo 'usage: systemd.sh GROUP UNIT NUMBER...' >&2; exit 2; }
. "$(dirname "$0")/seat.sh"

group=$1 unit=$2
shift 2
counted=$(count_members "$group")
members=${MEMBERS:-${counted% *}}
[ "$members" -ge "$(($# - ${counted#* }))" ] || members=$(($# - ${counted#* }))
for number in "$@"; do
    restart_seat "$group" "$unit-$number" "$members" systemctl restart "$unit@$number.service"
done
