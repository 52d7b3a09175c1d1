// Package cable is only tests: core-api's side of a link in one network namespace, a runner's process in another, and between them a cable
// that is pulled while clients work. By default it is pulled a few times; for a minute of it:
//
//	go test -run TestTheCableIsPulled ./sandbox/remote/cable -cable 1m
package cable
