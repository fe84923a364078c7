package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/seed14bd9ef4/redsync/examples/internal/rig"
)

// An outcome is the result of the scene.
type outcome struct {
	TokenA, TokenB uint64 // 0 with redsync v4
	A, B           report // of their writes
	Data           string // at the end
}

// refused reports whether A's write was refused because of its token.
func (o *outcome) refused() bool { return o.A.Step == refused }

// play runs the scene with library. A is paused between its check and its write.
func play(ctx context.Context, library string, addresses []string, say func(format string, args ...any)) (*outcome, error) {
	j := job{Library: library, Nodes: addresses[:nodes], Data: addresses[nodes]}
	var o outcome

	a, err := rig.Start(ctx, j.of("A"))
	if err != nil {
		return nil, err
	}
	defer a.Kill()
	r, err := next(a, "A", locked)
	if err != nil {
		return nil, err
	}
	o.TokenA = r.Token
	say("A has the lock%s. %v of it are left: it may write", withToken(r.Token), r.Left.Round(time.Millisecond))
	if err := a.Pause(); err != nil {
		return nil, err
	}
	say("A is stopped (SIGSTOP)")

	b, err := rig.Start(ctx, j.of("B"))
	if err != nil {
		return nil, err
	}
	defer b.Kill()
	if r, err = next(b, "B", locked); err != nil { // waits until A's lock has expired
		return nil, err
	}
	o.TokenB = r.Token
	say("B has the lock%s: A's has expired", withToken(r.Token))
	if o.B, err = write(b, "B"); err != nil {
		return nil, err
	}
	say("B writes: %s", o.B)

	if err := a.Resume(); err != nil {
		return nil, err
	}
	if o.A, err = write(a, "A"); err != nil {
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

// next returns the next report of a holder. Its step must be one of steps.
func next(p *rig.Process, who string, steps ...step) (r report, err error) {
	_ = json.Unmarshal([]byte(p.Line()), &r) // a process that has ended leaves r empty
	if !slices.Contains(steps, r.Step) {
		return r, fmt.Errorf("%s: %s", who, r)
	}
	return r, nil
}

// write makes a holder write, and returns its report.
func write(p *rig.Process, who string) (report, error) {
	if err := p.Go(); err != nil {
		return report{}, err
	}
	return next(p, who, wrote, refused)
}
