# shellcheck shell=bash
# Steps of a script that checks things, one after the other or side by side. Sourced after setup.sh.
# The time of each step is printed when it ends, and the processor time of all that it ran: where
# there are more steps than cores, only that shows what a step costs. What a step beside others
# prints goes to a log of its own in target/test-logs, which is shown whole when it fails.

LOGS="${CARGO_TARGET_DIR:-$ROOT/target}/test-logs"
mkdir -p "$LOGS" || die "cannot write to $LOGS"
trap end_beside EXIT
trap 'exit 130' INT TERM
# What is said goes to the terminal even where a step's own output goes to a log, and so does what
# a script that is a step of another one says.
if [ -z "${STEPS_TERMINAL:-}" ] || ! { : >&7; } 2>/dev/null; then exec 7>&2; fi
export STEPS_TERMINAL=7
say() { printf '==> %s\n' "$*" >&7; }

declare -A BESIDE=()

# step NAME COMMAND...
step() {
    local name=$1 start=$SECONDS before
    shift
    count_core_seconds
    before=$CORE_SECONDS
    say "$name"
    "$@" || die "failed: $name"
    count_core_seconds
    # What ended beside it would be counted here.
    if [ "${#BESIDE[@]}" = 0 ]; then
        say "$name: $((SECONDS - start)) s, $((CORE_SECONDS - before)) core seconds"
    else
        say "$name: $((SECONDS - start)) s"
    fi
}

# count_core_seconds: CORE_SECONDS of all programs of this shell that have ended.
count_core_seconds() {
    local fields
    read -ra fields <"/proc/$BASHPID/stat"
    CORE_SECONDS=$(((fields[15] + fields[16]) / 100))
}

# give_way [NICENESS]: what this shell starts from now on takes what others leave of the cores.
give_way() { renice -n "${1:-10}" -p "$BASHPID" >/dev/null; }

# beside NAME COMMAND...: starts a step and goes on; `settle` waits for it.
beside() {
    local name=$1
    shift
    # A process group of its own, so that it can be ended with all that it started.
    set -m
    (
        set +m
        BESIDE=()
        trap end_beside EXIT
        trap 'exit 130' INT TERM
        step "$name" "$@"
    ) >"$(log_of "$name")" 2>&1 &
    BESIDE[$!]=$name
    set +m
}

# settle [COUNT]: waits until at most COUNT steps are left beside, 0 unless told. Shows what the
# tests among them have skipped.
settle() {
    local pid status log
    while [ "${#BESIDE[@]}" -gt "${1:-0}" ]; do
        status=0
        wait -n -p pid "${!BESIDE[@]}" || status=$?
        log=$(log_of "${BESIDE[$pid]}")
        if [ "$status" != 0 ]; then
            cat "$log" >&2
            die "failed: ${BESIDE[$pid]} (status $status; its output stands above)"
        fi
        grep '^SKIPPED' "$log" >&7 || true
        unset "BESIDE[$pid]"
    done
}

# log_of NAME
log_of() { printf '%s/%s.log\n' "$LOGS" "${1//[^a-zA-Z0-9]/-}"; }

# end_beside: ends what is still running when a step failed or somebody interrupted.
end_beside() {
    local pid
    for pid in "${!BESIDE[@]}"; do kill -TERM -- "-$pid" 2>/dev/null || true; done
    return 0
}
