// Package oracle says what a control plane may tell of its clients and what it
// must send them, from whole histories kept in plain maps.
//
// It is naive on purpose. It imports nothing of ours, so that no mistake of the
// code under test is made here a second time: it knows no generations, no
// exceptions, no versions and no clock; what a resource holds is a line of text.
// It is told everything that happens, at moments when nothing is under way:
//
//	World      what exists, and all that ever existed
//	Node       one client: what it truly holds, what it wants, what it was sent and said
//	Judge      compares what /audit says of a node with what is true
//
// What must hold (each line is checked by one function of judge.go, receive.go or rest.go):
//
//	a node shown as fresh holds what is current, all of it
//	whatever a node lacks is counted as behind, and by name; nothing else is, but what it has not acknowledged
//	a node that lacks something for longer than the ack timeout, or has not answered for probe interval and
//	ack timeout, is stale, but for a withheld ACK while another type is confirmed
//	a node is stale, rejected or reset only for a reason that it has given
//	a node that has answered everything has everything, but what it refused
//	a response holds what is current, of what was asked for, and each thing in it has a reason to be sent
//	a healthy node is asked for a sign of life in time
package oracle
