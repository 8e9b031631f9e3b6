#!/bin/sh
# For a site's admin: Slurm tells Ganger at once that a job of its has ended. In slurm.conf:
#   JobCompType=jobcomp/script
#   JobCompLoc=/etc/slurm/slurm-ended.sh
# It writes as the job's user, into the folder of the job's own output: as root by runuser; as the
# user `slurm` by sudo, which a rule must allow.
case "$JOBNAME" in ganger-*) ;; *) exit 0 ;; esac
[ -n "$STDOUT" ] || exit 0
set -- sh -c 'echo "$0" > "$1"' "$JOBSTATE" "${STDOUT%/*}/ended.$JOBID"
if [ "$(id -u)" = 0 ]; then exec runuser -u "$USERNAME" -- "$@"; fi
exec sudo -n -u "$USERNAME" -- "$@"
