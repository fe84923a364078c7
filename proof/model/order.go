package model

// This file keeps the order of messages for the models names, readers and semaphore. In these models a node executes
// the messages of one process in the order in which they were sent.

const maxOrdered = 4

// A sendOrder belongs to a node. For each call it has, as bits, the other calls of the same process that have sent a
// message before this call has, if that message is still on its way to the node.
type sendOrder [maxOrdered]uint8

// send notes that call c, which has no message on its way to the node, sends one. before are the other calls of its
// process that have messages on their way, as bits.
func (o *sendOrder) send(c int, before uint8) { o[c] = before &^ bit(c) }

// arrived notes that the last message of call c has been executed.
func (o *sendOrder) arrived(c int) {
	for other := range o {
		o[other] &^= bit(c)
	}
}

// follows reports whether a message of another call must be executed before that of call c.
func (o *sendOrder) follows(c int) bool { return o[c] != 0 }

// followed reports whether a message of call c is on its way, and another call of its process has sent one behind it.
// Then call c sends nothing more, because a sendOrder has no room for a second message of c behind the other call's.
func (o *sendOrder) followed(c int) bool {
	for _, before := range o {
		if before&bit(c) != 0 {
			return true
		}
	}
	return false
}

// ofProcess returns the calls of the same process as call c, as bits. process has the process of each call.
func ofProcess(process []uint8, c int) (calls uint8) {
	for o, p := range process {
		if p == process[c] {
			calls |= bit(o)
		}
	}
	return calls
}
