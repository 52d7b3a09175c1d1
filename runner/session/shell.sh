# Runs cells of a shell one after the other: directory, variables and functions stay. See python.py. SIGTERM ends a cell, not the shell.
exec 250<&0 251>&1 252>&2 </dev/null
trap 'return 143 2>/dev/null' TERM
while IFS= read -r -d '' -u 250 __secbox_nonce && IFS= read -r -d '' -u 250 SECBOX_ARTIFACTS && IFS= read -r -d '' -u 250 __secbox_code; do
	export SECBOX_ARTIFACTS
	. /dev/fd/249 249<<<"$__secbox_code" 250<&- 251>&- 252>&-
	__secbox_status=$?
	printf '\0%s %d\0' "$__secbox_nonce" "$__secbox_status" >&251
	printf '\0%s %d\0' "$__secbox_nonce" "$__secbox_status" >&252
done
