# shellcheck shell=sh
# Restarts one static member, for the scripts beside this file.
#
#   restart_seat GROUP INSTANCE MEMBERS COMMAND...
#
# It asks whether it can restart the member now, runs COMMAND, and waits until the new process has the seat. It fails
# before COMMAND if a restart isn't safe, and afterwards if the member isn't back within TIMEOUT seconds.
#
#   count_members GROUP
#
# It prints two numbers: how many members the group has, those that are away among them, and how many standbys.

: "${TENURE:=tenure}"
: "${TENURE_OPTIONS:=--bootstrap-server 127.0.0.1:9092}"
: "${READY_OPTIONS:=}"
: "${TIMEOUT:=120}"

count_members() {
    # shellcheck disable=SC2086 # several options
    table=$("$TENURE" groups describe "$1" --members $TENURE_OPTIONS) || return
    printf '%s\n' "$table" | awk -v group="$1" '
        NR == 1 { has_standbys = $NF == "STANDBY" }
        $1 == group { if (has_standbys && $NF == "true") standbys++; else members++ }
        END { print members + 0, standbys + 0 }'
}

restart_seat() {
    group=$1 instance=$2 members=$3
    shift 3
    # shellcheck disable=SC2086 # several options
    "$TENURE" groups ready "$group" --restart "$instance" --members "$members" $READY_OPTIONS $TENURE_OPTIONS ||
        return
    # shellcheck disable=SC2086
    table=$("$TENURE" groups describe "$group" --members $TENURE_OPTIONS) || return
    former=$(printf '%s\n' "$table" | awk -v seat="$instance" '$3 == seat { print $2 }')
    "$@" || return
    # shellcheck disable=SC2086
    "$TENURE" groups wait "$group" --members "$members" --restarted "$instance" --from "$former" $TENURE_OPTIONS \
        --timeout "$TIMEOUT"
}
