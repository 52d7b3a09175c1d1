# Reads the output of make and go test, and prints what failed in at most 50 lines and some 10,000 bytes: each failed test with its own lines, in which
# the server logs at level INFO are left out; panics and data races with the first lines of their stacks; and what did not compile.

function begin(line, lines) { # a failure, of which at most so many lines are kept
	failures++
	head[failures] = line
	kept[failures] = 0
	room = lines
}

function keep(line) {
	if (failures && kept[failures] < room) text[failures, ++kept[failures]] = line
}

{ sub(/\r$/, ""); gsub(/\t/, "    ") }

/^ *time=[^ ]+ level=(INFO|DEBUG)/ { next }

/^ *--- FAIL: / {
	begin($0, 24)
	logged = of_message = 0
	reading = "test"
	next
}

/^(panic:|fatal error:|SIG[A-Z]+:|WARNING: DATA RACE)/ {
	begin($0, 20)
	reading = "stack"
	next
}

/^FAIL    |^make(\[[0-9]+\])?: \*\*\*|^closing: |^(vet: )?[^ ]+\.go:[0-9]+:[0-9]+: / {
	begin($0, 0)
	reading = ""
	next
}

/^(ok  |\?   |FAIL$|=== )|^ *--- (PASS|SKIP): / { reading = ""; next }

reading == "stack" { keep($0); next }

reading == "test" && /[^ ]/ { # a message begins with its file and line, and goes on in lines with a deeper indent
	if ($0 ~ /^ +[A-Za-z0-9_]+\.go:[0-9]+: /) of_message = 0
	if ($0 ~ /^ *time=[^ ]+ level=/ ? logged++ < 6 : of_message++ < 10) keep($0)
}

END {
	# A test that failed only because a subtest did says nothing itself.
	for (i = 1; i <= failures; i++) {
		name = head[i]
		sub(/ \([0-9.]+s\)$/, "/", name)
		sub(/^ +/, "", name)
		child = head[i + 1]
		sub(/^ +/, "", child)
		if (kept[i] > 0 || index(child, name) != 1) order[++shown] = i
	}
	for (most = 24; most > 1; most--) {
		lines = shown
		for (i = 1; i <= shown; i++) lines += kept[order[i]] < most ? kept[order[i]] : most
		if (lines <= 50) break
	}
	if (lines > 50) lines = 50
	width = lines ? int(10000 / lines) : 0
	if (width > 600) width = 600
	for (i = 1; i <= shown; i++) {
		if (lines-- <= 0) {
			print "… and " (shown - i + 1) " more"
			break
		}
		print substr(head[order[i]], 1, width)
		for (j = 1; j <= most && j <= kept[order[i]] && lines-- > 0; j++) print substr(text[order[i], j], 1, width)
	}
}
