// Package partition holds only tests: core-api's side of a link runs in one network namespace, a
// runner's process in another, and the network between them is cut at random while clients work. By
// default it is cut a few times; to test for a minute:
//
//	go test -run TestPartition ./sandbox/remote/partition -partition 1m
package partition
