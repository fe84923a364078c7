package model

// This file holds what the models of waiting share about messages: each has calls of a few processes, and the
// messages of one process reach a node in the order in which they were sent.

const maxOrdered = 4

// A sendOrder says for each call of a model which other calls of its process have a message on its way to the
// node that was sent before the message of the call, as bits.
type sendOrder [maxOrdered]uint8

// send notes that call c sends its first message that is on its way to the node. before are the other calls of its
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

// followed reports whether another message of the process has been sent behind one of call c that is on its way.
// Call c sends nothing then: the models have no room for what follows.
func (o *sendOrder) followed(c int) bool {
	for _, before := range o {
		if before&bit(c) != 0 {
			return true
		}
	}
	return false
}

// ofProcess returns the calls of the process of call c, as bits. process names that of each call.
func ofProcess(process []uint8, c int) (calls uint8) {
	for o, p := range process {
		if p == process[c] {
			calls |= bit(o)
		}
	}
	return calls
}
