package main

import (
	"context"
	"fmt"
	"io"
	"time"
)

// expiry is the expiry of the locks.
const expiry = 2 * time.Second

// An outcome is the result of the scene.
type outcome struct {
	TokenA, TokenB uint64 // 0 with redsync v4
	A, B           report // of their writes
	Data           string // at the end
}

// refused reports whether A's write was refused because of its token.
func (o *outcome) refused() bool { return o.A.Step == refused }

// play runs the scene with library. A is paused between its check and its write.
func play(ctx context.Context, library string, addresses []string, out io.Writer) (*outcome, error) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(out, "  "+format+"\n", args...) }
	j := job{Library: library, Nodes: addresses[:nodes], Data: addresses[nodes], Expiry: expiry}
	var o outcome

	a, err := start(ctx, j.of("A"))
	if err != nil {
		return nil, err
	}
	defer a.end()
	r, err := a.next(ctx, locked)
	if err != nil {
		return nil, err
	}
	o.TokenA = r.Token
	say("A has the lock%s. %v of it are left: it may write", withToken(r.Token), r.Left.Round(time.Millisecond))
	if err := a.pause(); err != nil {
		return nil, err
	}
	say("A is stopped (SIGSTOP)")

	b, err := start(ctx, j.of("B"))
	if err != nil {
		return nil, err
	}
	defer b.end()
	if r, err = b.next(ctx, locked); err != nil { // waits until A's lock has expired
		return nil, err
	}
	o.TokenB = r.Token
	say("B has the lock%s: A's has expired", withToken(r.Token))
	if o.B, err = b.write(ctx); err != nil {
		return nil, err
	}
	say("B writes: %s", o.B)

	if err := a.resume(); err != nil {
		return nil, err
	}
	if o.A, err = a.write(ctx); err != nil {
		return nil, err
	}
	say("A goes on (SIGCONT) after a pause of %v, and writes: %s", o.A.Paused.Round(time.Millisecond), o.A)
	if o.Data, err = read(ctx, j); err != nil {
		return nil, err
	}
	say("The data: %q", o.Data)
	return &o, nil
}

func withToken(token uint64) string {
	if token == 0 {
		return ""
	}
	return fmt.Sprintf(", token %d", token)
}
