package wire

// This file takes back requests of which nothing was sent, for a Redsync that closes.

// Recall leaves the requests of an open connection alone: they are about to be sent.
func (p *streamPool) Recall(which func(to Receiver, tag int) bool, why error) {
	if s := p.last.Load(); s != nil && s.conn.Load() == nil {
		s.recall(which, why)
	}
}

func (p *routedPool) Recall(which func(to Receiver, tag int) bool, why error) {
	p.mu.Lock()
	var back []*routed
	kept := p.queue[:0]
	for _, r := range p.queue {
		if which(r.req.To, r.req.Tag) {
			back = append(back, r)
		} else {
			kept = append(kept, r)
		}
	}
	clear(p.queue[len(kept):])
	p.queue = kept
	nodes := make([]*streamPool, 0, len(p.nodes))
	for _, node := range p.nodes {
		nodes = append(nodes, node)
	}
	p.mu.Unlock()
	for _, r := range back {
		r.deliver(Reply{Err: why, Fate: NotSent})
	}
	for _, node := range nodes {
		node.Recall(func(to Receiver, _ int) bool {
			r, is := to.(*routed)
			return is && r.pool == p && which(r.req.To, r.req.Tag)
		}, why)
	}
}

// recall sets Conn to 0, because a connection may be delivering other replies.
func (q *queue) recall(which func(to Receiver, tag int) bool, why error) {
	q.mu.Lock()
	var back []queued
	kept, encoded, rest := q.requests[:0], q.encoded[:0], q.encoded
	for i, req := range q.requests {
		_, size := firstCommand(rest)
		if _, asking := req.to.(ignored); asking { // it goes with the next request
			next := q.requests[min(i+1, len(q.requests)-1)]
			req.to, req.tag = next.to, next.tag
		}
		if which(req.to, req.tag) {
			back = append(back, q.requests[i])
		} else {
			kept, encoded = append(kept, q.requests[i]), append(encoded, rest[:size]...)
		}
		rest = rest[size:]
	}
	clear(q.requests[len(kept):])
	q.requests, q.encoded = kept, encoded
	q.mu.Unlock()
	q.fail(back, Reply{Err: why, Fate: NotSent})
}
