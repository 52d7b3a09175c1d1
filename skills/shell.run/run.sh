jq -rj .script "$SKILL_INPUT" >/tmp/script || exit 125
bash -l /tmp/script
code=$?
printf '{"exit_code": %d}\n' "$code" >"$SKILL_OUTPUT"
exit "$code"
